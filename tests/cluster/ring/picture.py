"""A picture of this machine, to compare the states before and after a ring: what a ring could leave behind.

Taken from the kernel and the file system, not from what the ring recorded about itself.
"""
import os
from pathlib import Path

from . import paths
from .process import MARK

# (folder, depth): where kubelet, containerd, CNI, runc, Carve and the ring itself write on a machine.
WATCHED = (("/run", 1), ("/run/netns", 1), ("/run/containerd", 2), ("/run/carve", 2), ("/run/nvidia-sim", 1),
           ("/run/runc", 1), ("/var/lib", 1), ("/var/lib/kubelet", 1), ("/var/lib/containerd", 1), ("/var/lib/cni", 2),
           ("/var/lib/carve", 1), ("/var/log/pods", 1), ("/var/log/containers", 1), ("/etc/cni", 2), ("/etc/cdi", 1),
           ("/usr/lib/carve", 1), ("/opt/cni", 1), ("/dev", 1), ("/var/cache", 1))


def _files():
    found = set()
    for top, depth in WATCHED:
        for folder, folders, files in os.walk(top):
            level = len(Path(folder).relative_to(top).parts)
            if level >= depth:
                folders.clear()
                continue
            found |= {f"file {folder}/{name}" for name in folders + files}
    return {name for name in found if not name.startswith(("file /dev/tty", "file /dev/pts"))}


def _mounts():
    return {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _interfaces():
    return {f"interface {name}" for name in os.listdir("/sys/class/net")}


def _cgroups():
    name = paths.name()
    return {f"cgroup {folder}" for folder, folders, _ in os.walk("/sys/fs/cgroup") if name in Path(folder).parts}


def _processes():
    """Processes of a ring of this name, found by the mark in their environment or by a namespace shared with such
    one."""
    mark = f"{MARK}={paths.name()}".encode()
    marked, by_namespace = set(), {}
    own = {os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt")}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            namespaces = {os.readlink(f"/proc/{entry}/ns/{kind}") for kind in ("net", "mnt")} - own
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        what = f"process {entry} {command}"
        if mark in environment:
            marked.add(what)
        for namespace in namespaces:
            by_namespace.setdefault(namespace, set()).add(what)
    for sharing in by_namespace.values():
        if sharing & marked:
            marked |= sharing
    return marked


def take() -> set:
    return _files() | _mounts() | _interfaces() | _cgroups() | _processes()
