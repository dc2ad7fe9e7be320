"""Makes a container image from a folder: an OCI archive, without a registry, a builder or a daemon.

`ctr -n k8s.io images import FILE` and `podman load -i FILE` read it. The same content always results in the same file.
"""
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

# Libraries that belong to the C library. An image with a C library gets all of them, even if its programs do not need them:
# a library that is loaded later may need them, and must not get another version.
C_LIBRARY = ("libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6")
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _layer(root: Path) -> bytes:
    """The folder as a tar archive: owned by root, without times, sorted, so that the same content has the same digest."""
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(root)), recursive=False, filter=plain)
    return buffer.getvalue()


def write(root: Path, name: str, target: Path, entrypoint=(), environment=(), user="", labels=None,
          level=0) -> None:
    """Writes `root` as an OCI archive with the image name `name` (with a host part and a tag, as the runtimes want).
    `level`: of gzip's compression of the layer, 1 to 9; 0 stores it uncompressed."""
    layer = _layer(root)
    stored = gzip.compress(layer, level, mtime=0) if level else layer
    config = json.dumps({
        "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "config": {"Entrypoint": list(entrypoint), "User": user, "Env": [PATH, *environment],
                   **({"Labels": labels} if labels else {})},
    }).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": _digest(config),
                   "size": len(config)},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar" + ("+gzip" if level else ""),
                    "digest": _digest(stored), "size": len(stored)}]}).encode()
    index = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": _digest(manifest),
                       "size": len(manifest), "platform": {"architecture": "amd64", "os": "linux"},
                       "annotations": {"io.containerd.image.name": name,
                                       "org.opencontainers.image.ref.name": name}}]}).encode()
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(archive, "index.json", index)
        for blob in (config, manifest, stored):
            _add(archive, "blobs/sha256/" + _digest(blob).partition(":")[2], blob)


def libraries_of(program: Path) -> list:
    """The shared libraries that a program needs, including the loader, as ldd finds them on this machine."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", done.stdout)]


def copy(file: Path, target: Path, strip=False) -> None:
    """Copies one program or library as an executable file; `strip`: without its symbols."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, target)
    if strip:
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
    target.chmod(0o755)


def install(root: Path, program: Path, folder="usr/bin", strip=False) -> None:
    """Copies a program and the libraries that it needs into the tree of an image."""
    copy(program, root / folder / program.name, strip)
    needed = libraries_of(program)
    needed += [library.with_name(name) for library in needed if library.name == "libc.so.6" for name in C_LIBRARY]
    for library in needed:
        place = root / str(library).lstrip("/")
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(library), place)
