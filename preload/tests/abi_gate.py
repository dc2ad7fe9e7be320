#!/usr/bin/env python3
"""Checks what the two objects of the library require of the system, by their dynamic symbol tables.

abi_gate.py OBJECT TABLE SONAME DRIVER_PATH: no symbol above glibc 2.17, no symbol of the C++ runtime, only the libc
functions of the list below, the given SONAME and dependency, exactly the table's rows as exports, and no text
relocations. With --musl SANDBOX STAND_IN a program linked with musl also loads the object: SANDBOX is the tool that
runs the program with STAND_IN, an object without functions, in the driver's place.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

FLOOR = (2, 17)
MAY_USE = set("""
__cxa_finalize __errno_location __gmon_start__ _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable
clock_gettime close connect dlclose dlopen dlsym madvise memcpy memmove memset mmap munmap nanosleep open
pthread_create pthread_detach pthread_attr_init pthread_attr_destroy pthread_attr_setdetachstate
pthread_attr_setstacksize pthread_sigmask recvmsg sched_yield send setsockopt prctl sigfillset socket strcmp syscall
""".split())
C_PLUS_PLUS = re.compile(r"^(_Zn|_Zd|__cxa_(?!finalize)|_Unwind|__gxx)")
LIBC = ["libdl.so.2", "libpthread.so.0", "libc.so.6"]

problems = []


def check(holds, text):
    if not holds:
        problems.append(text)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(path):
    """(name, version, defined) of every entry of the dynamic symbol table."""
    for line in run("objdump", "-T", path).split("\n"):
        match = re.match(r"[0-9a-f]+ .{7} (\S+)\s+[0-9a-f]+\s+(?:\(?([A-Za-z_0-9.]+)\)?\s+)?(\S+)$", line)
        if match:
            yield match.group(3), match.group(2) or "", match.group(1) != "*UND*"


def check_symbols(path, table):
    exported = set()
    for name, version, defined in symbols(path):
        if defined:
            exported.add(name)
            continue
        match = re.match(r"GLIBC_(\d+)\.(\d+)", version)
        check(not match or (int(match.group(1)), int(match.group(2))) <= FLOOR, f"{name} needs {version}")
        check(not C_PLUS_PLUS.match(name), f"{name} belongs to the C++ runtime")
        check(name in MAY_USE, f"{name} is not on the list of functions that the library may call")
    rows = set(re.findall(r"^(?:HOOK|GATE|COPY)\((\w+),", pathlib.Path(table).read_text(), re.M))
    check(exported == rows, f"exported but no row: {sorted(exported - rows)}; "
                            f"row but not exported: {sorted(rows - exported)}")
    return len(exported)


def check_dynamic(path, soname, driver):
    dynamic = run("readelf", "-dW", path)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    check(needed == [driver] + LIBC, f"depends on {needed}")
    check(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == [soname], "the SONAME is not the driver's")
    check("(TEXTREL)" not in dynamic and "RPATH" not in dynamic and "RUNPATH" not in dynamic,
          "text relocations or a search path")
    check("GLIBC_ABI_DT_RELR" not in run("objdump", "-p", path), "relative relocations packed: too new a loader")


def check_musl(path, sandbox, stand_in):
    """Loads it in a program of another C library; the driver below is an empty object."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "load.c"
        source.write_text('#include <dlfcn.h>\n#include <stdio.h>\nint main(int c, char** v) {\n'
                          '  void* h = dlopen(v[1], RTLD_NOW);\n  if (!h) { puts(dlerror()); return 1; }\n'
                          '  return dlsym(h, v[2]) == 0;\n}\n')
        program = str(pathlib.Path(folder) / "load")
        run("musl-gcc", str(source), "-o", program)
        some = next(name for name, _, defined in symbols(path) if defined)
        done = subprocess.run([sandbox, stand_in, "-", "-", "--", program, path, some],
                              capture_output=True, text=True)
        check(done.returncode == 0, f"under musl: {done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    for word in ("object", "table", "soname", "driver"):
        parser.add_argument(word)
    parser.add_argument("--musl", nargs=2, metavar=("SANDBOX", "STAND_IN"))
    args = parser.parse_args()
    count = check_symbols(args.object, args.table)
    check_dynamic(args.object, args.soname, args.driver)
    if args.musl:
        check_musl(args.object, *args.musl)
    for problem in problems:
        print(problem)
    print(f"abi gate: {args.soname}: {count} exports, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
