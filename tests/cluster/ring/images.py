"""Container images built on the machine: OCI archives, written by the code that writes the product's own image.

`pause` is ten lines of C; `busybox` is Debian's busybox-static; `programs` contains programs of a build with the
libraries that they need, for instance a sample that uses the GPU.
"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import paths

sys.path.insert(0, str(paths.REPOSITORY / "deploy"))
import oci_archive  # noqa: E402

PAUSE = "local.test/pause:1"
BUSYBOX = "local.test/busybox:1"
PROGRAMS = "local.test/programs:1"


def base_tree(root: Path) -> None:
    """A small system: busybox under its usual names, an empty /tmp, /etc with a root user, library folders."""
    busybox = Path("/bin/busybox")
    if oci_archive.libraries_of(busybox) or not busybox.exists():
        raise SystemExit("ring: /bin/busybox is missing or not static: apt-get install busybox-static")
    for folder in ("bin", "etc", "tmp", "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "var", "proc", "sys", "dev", "run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for link, target in (("lib", "usr/lib"), ("lib64", "usr/lib64")):     # merged, as in current distributions
        os.symlink(target, root / link)
    shutil.copy(busybox, root / "bin/busybox")
    for applet in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if applet != "busybox":
            os.symlink("busybox", root / "bin" / applet)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


def compile_c(source: Path, target: Path, *flags) -> None:
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", *flags, "-o", target, source, *(["-ldl"] if not flags else [])],
                   check=True)


def make_all(folder: Path, programs: list) -> list:
    """Writes all archives of the ring. `programs`: paths of a build's programs that containers run. Returns the
    archives."""
    folder.mkdir(parents=True, exist_ok=True)
    pause, busybox, with_programs = (folder / name for name in ("pause", "busybox", "programs"))
    pause.mkdir()
    compile_c(paths.HERE / "images/pause.c", pause / "pause", "-static")
    base_tree(busybox)
    base_tree(with_programs)
    own = [folder / f"ring-{name}" for name in ("look", "reach")]
    for program in own:
        compile_c(paths.HERE / f"images/{program.name[5:]}.c", program)
    for program in [*own, *programs]:
        oci_archive.install(with_programs, program)
    archives = []
    for root, name, entrypoint in ((pause, PAUSE, ["/pause"]), (busybox, BUSYBOX, []), (with_programs, PROGRAMS, [])):
        archive = folder / f"{root.name}.tar"
        oci_archive.write(root, name, archive, entrypoint)
        archives.append(archive)
    return archives
