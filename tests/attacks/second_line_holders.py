#!/usr/bin/env python3
"""Tests memory without a context while several processes have the card's device file open: a daemon outside slices, a
process of a slice that uses no CUDA, and the process that takes the memory. The slice that takes it must be ended, and
no slice may be ended for memory of a program outside. The figures are from the simulated driver's account.
second_line_holders.py --bin <build>/bin; exit code 77: skipped."""
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration", "node"))
from machine import Machine, cgroup2_mount, enter_private_namespace, see_only_own_processes, until  # noqa: E402

MIB = 1 << 20
TAKEN = 4096 * MIB


def unexplained(machine):
    return [e for e in machine.view()["events"] if e["kind"] == "breach-unexplained"]


def start_daemon():
    """Starts a process of root that holds the card's file and uses no CUDA, like nvidia-persistenced."""
    file = os.open("/dev/nvidia0", os.O_RDWR)
    daemon = subprocess.Popen(["sleep", "600"], pass_fds=(file,))
    os.close(file)
    return daemon


def start_neighbour(machine):
    """Starts a slice that computes: NVML lists its process."""
    neighbour = machine.start("run", "--memory", "2Gi", "--cores", "50", "--", machine.program("carve-sample-spin"),
                              "--kernel-us", "500", "--seconds", "600")
    until("the neighbour computes", 20, lambda: [p for p in machine.truth("account")["processes"]
                                                 if p["pid"] == neighbour.pid and p["launches"] > 100])
    return neighbour


def start_holder(machine):
    """Starts a slice with a process that holds the card's file and never has a context."""
    holder = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", "sh", "-c",
                           "exec 9<>/dev/nvidia0; echo ready; exec sleep 600")
    assert holder.stdout.readline() == "ready\n", holder.stderr.read()
    return holder


def held_by(machine, pid):
    return sum(p["explicit_bytes"] for p in machine.truth("account")["processes"] if p["pid"] == pid and p["alive"])


def a_slice_takes_memory(machine, daemon, neighbour):
    taker = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", machine.program("carve-attack"),
                          "no-context-memory", "--bytes", str(TAKEN), "--hold-ms", "20000")
    since = None
    while taker.poll() is None:
        if since is None and held_by(machine, taker.pid) >= 2048 * MIB:
            since = time.monotonic()
        time.sleep(0.01)
    assert since is not None, "it never held its memory, so nothing was tested"
    took = time.monotonic() - since
    print(f"a slice takes {TAKEN // MIB} MiB without a context, beside a daemon: ended {took * 1000:.0f} ms later")
    assert taker.returncode == -signal.SIGKILL and took < 1, (taker.returncode, took, unexplained(machine))
    text = unexplained(machine)[-1]["text"]
    assert f"{daemon.pid} (in no slice: " in text.partition("not suspected: ")[2], text
    assert daemon.poll() is None and neighbour.poll() is None
    until("the memory is free", 5, lambda: held_by(machine, taker.pid) == 0)


def a_program_outside_takes_memory(machine, neighbour):
    known = len(unexplained(machine))
    holder = start_holder(machine)
    environment = dict(os.environ, LD_LIBRARY_PATH=machine.state + "/simulated-driver")
    outside = subprocess.Popen([machine.program("carve-attack"), "no-context-memory", "--bytes", str(TAKEN),
                                "--hold-ms", "4000"], env=environment, stdout=subprocess.DEVNULL)
    until("it holds its memory", 10, lambda: held_by(machine, outside.pid) >= TAKEN)
    named = until("an event", 2, lambda: unexplained(machine)[known:])
    text = named[-1]["text"]
    assert f"{outside.pid} (in no slice: {os.path.realpath(machine.program('carve-attack'))}" in text, text
    outside.wait(timeout=30)
    said = unexplained(machine)[known:]
    print(f"a program outside takes {TAKEN // MIB} MiB: {len(said)} events name it, no slice is ended")
    assert outside.returncode == 0 and all(e["slice"] == "" for e in said), said
    assert holder.poll() is None and neighbour.poll() is None, said
    holder.kill()
    holder.wait()


def main():
    if os.geteuid() != 0 or cgroup2_mount() is None:
        print("SKIPPED: needs root and a cgroup2 mount")
        return 77
    see_only_own_processes()
    enter_private_namespace()
    machine = Machine(sys.argv[sys.argv.index("--bin") + 1], "t4x1")
    daemon = None
    try:
        machine.up()
        daemon = start_daemon()
        neighbour = start_neighbour(machine)
        time.sleep(1.2)  # the arbiter's list of registered processes is valid after its first second
        a_slice_takes_memory(machine, daemon, neighbour)
        a_program_outside_takes_memory(machine, neighbour)
    except BaseException:
        print(machine.logs()[-4000:])
        raise
    finally:
        if daemon is not None:
            daemon.kill()
            daemon.wait()
        machine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
