"""The ring's cgroups, on machines with cgroup v2, v1 or both.

A *tracker* holds processes so that all of them, forks included, are found again. A node's *root* is the group below
which its kubelet creates the pods' groups.
"""
import os
import signal
import time
from pathlib import Path

from . import paths

NAME = paths.name()


def mounts() -> tuple:
    """(mount point of cgroup v2 or None, mount points of v1's hierarchies)."""
    v2, v1 = None, []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        kind, point = right.split()[0], left.split()[4]
        if kind == "cgroup2":
            v2 = Path(point)
        elif kind == "cgroup":
            v1.append(Path(point))
    return v2, v1


class Tracker:
    """A group of the unified hierarchy (or, without one, of v1's pids) that holds a node's processes and their
    children."""

    def __init__(self, name: str):
        v2, v1 = mounts()
        base = v2 or next((point for point in v1 if point.name == "pids"), v1[0])
        self.path = base / NAME / name

    def make(self) -> "Tracker":
        self.path.mkdir(parents=True, exist_ok=True)
        return self

    def enter(self) -> None:
        (self.path / "cgroup.procs").write_text(str(os.getpid()))


def make_node_root(node: str) -> str:
    """Creates the cgroup root of a node's kubelet in every hierarchy. Returns its path in the kubelet's form."""
    v2, v1 = mounts()
    if v2 and not v1:
        for folder in (v2, v2 / NAME, v2 / NAME / node):
            folder.mkdir(exist_ok=True)
            for controller in (folder / "cgroup.controllers").read_text().split():
                try:
                    (folder / "cgroup.subtree_control").write_text(f"+{controller}")
                except OSError:
                    # some controllers cannot be delegated; the kubelet names those that it misses
                    pass
    for hierarchy in v1:
        parent = hierarchy
        for part in (NAME, node):
            group = parent / part
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (parent / name).exists():
                    (group / name).write_text((parent / name).read_text())
            parent = group
    return f"/{NAME}/{node}"


def all_groups() -> list:
    """Every existing top folder of the ring, in every hierarchy."""
    v2, v1 = mounts()
    return [point / NAME for point in [*v1, *([v2] if v2 else [])] if (point / NAME).is_dir()]


def roots_of(node: str) -> list:
    """A node's root in every hierarchy."""
    return [group / node for group in all_groups() if (group / node).is_dir()]


def members(group: Path) -> set:
    found = set()
    for folder, _, _ in os.walk(group):
        try:
            found |= {int(pid) for pid in (Path(folder) / "cgroup.procs").read_text().split()}
        except (FileNotFoundError, OSError):
            pass                             # the group has been removed
    return found


def kill_and_remove(seconds: float = 30) -> list:
    """Kills the processes in the ring's groups and removes the groups. Returns those that could not be removed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        groups = all_groups()
        if not groups:
            return []
        living = set().union(*(members(group) for group in groups)) - {os.getpid()}
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for group in groups:
            _thaw(group)
            for folder, _, _ in os.walk(group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:
                    pass                     # still in use; the next round tries again
        time.sleep(0.02)
    return [str(group) for group in all_groups()]


def empty(group: Path) -> None:
    """Removes the groups below one (their processes are gone). The group itself stays."""
    for folder, _, _ in os.walk(group, topdown=False):
        if Path(folder) != group:
            try:
                os.rmdir(folder)
            except OSError:
                pass                         # still in use for a moment; the kubelet removes it later


def _thaw(group: Path) -> None:
    """Thaws the groups, because v1 cannot kill a frozen process."""
    for state in group.rglob("freezer.state"):
        try:
            if state.read_text().strip() != "THAWED":
                state.write_text("THAWED")
        except OSError:
            pass
