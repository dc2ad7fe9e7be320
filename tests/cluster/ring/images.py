"""Container images made on the spot: an OCI archive from a folder, no registry, no builder.

`pause` is ten lines of C; `busybox` is Debian's busybox-static; `programs` holds programs of a build with the
libraries they need, for instance a sample that uses the GPU.
"""
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from . import paths

PAUSE = "local.test/pause:1"
BUSYBOX = "local.test/busybox:1"
PROGRAMS = "local.test/programs:1"


# What comes with the C library in every image that has one, whether or not a program of it asks for it.
C_LIBRARY = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _layer(root: Path) -> bytes:
    """The folder as a tar: owned by root, without times, in order, so that equal content has an equal digest."""
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=plain)
    return buffer.getvalue()


def write_archive(root: Path, name: str, target: Path, entrypoint=(), environment=(), user="") -> None:
    """Writes `root` as an OCI archive with the image name `name`, to be imported with `ctr images import`."""
    layer = _layer(root)
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "config": {"Entrypoint": list(entrypoint), "User": user,
                   "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *environment]},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": _digest(config),
                   "size": len(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": _digest(layer),
                    "size": len(layer)}]}).encode()
    index = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": _digest(manifest),
                       "size": len(manifest), "platform": {"architecture": "amd64", "os": "linux"},
                       "annotations": {"io.containerd.image.name": name,
                                       "org.opencontainers.image.ref.name": name}}]}).encode()
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", index)
        for blob in (config, manifest, layer):
            _add(archive, "blobs/sha256/" + _digest(blob).partition(":")[2], blob)


def libraries_of(program: Path) -> list:
    """The shared libraries a program needs, as ldd finds them on this machine (the loader too)."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", done.stdout)]


def install(root: Path, program: Path, folder="usr/bin") -> None:
    """Copies a program and its libraries into an image's folder."""
    target = root / folder / program.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, target)
    target.chmod(0o755)
    needed = libraries_of(program)
    needed += [library.with_name(name) for library in needed if library.name == "libc.so.6" for name in C_LIBRARY]
    for library in needed:
        place = root / str(library).lstrip("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), place)


def base_tree(root: Path) -> None:
    """A small system: busybox under its usual names, an empty /tmp, /etc with a root user, folders of libraries."""
    busybox = Path("/bin/busybox")
    if libraries_of(busybox) or not busybox.exists():
        raise SystemExit("ring: /bin/busybox is missing or not static: apt-get install busybox-static")
    for folder in ("bin", "etc", "tmp", "usr/bin", "usr/lib/x86_64-linux-gnu", "usr/lib64", "var", "proc", "sys", "dev", "run"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for link, target in (("lib", "usr/lib"), ("lib64", "usr/lib64")):     # merged, as in today's distributions
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
    """All archives of the ring. `programs`: paths of a build's programs that containers run. [archive path]"""
    folder.mkdir(parents=True, exist_ok=True)
    pause, busybox, with_programs = (folder / name for name in ("pause", "busybox", "programs"))
    pause.mkdir()
    compile_c(paths.HERE / "images/pause.c", pause / "pause", "-static")
    base_tree(busybox)
    base_tree(with_programs)
    look = folder / "ring-look"
    compile_c(paths.HERE / "images/look.c", look)
    for program in [look, *programs]:
        install(with_programs, program)
    archives = []
    for root, name, entrypoint in ((pause, PAUSE, ["/pause"]), (busybox, BUSYBOX, []), (with_programs, PROGRAMS, [])):
        archive = folder / f"{root.name}.tar"
        write_archive(root, name, archive, entrypoint)
        archives.append(archive)
    return archives
