"""What the ring has on this machine, recorded before it is created, so that any later process can remove it.

A process is recorded by pid *and* start time: a pid that was reused by another process is never touched.
"""
import errno
import json
import os
import select
import socket
import time
from pathlib import Path

from . import paths


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process; None when there is no such process (or a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class State:
    """The file state.json of the ring: processes in the order in which they were started, nodes, and the API's
    address."""

    def __init__(self, folder: Path, content: dict):
        self.folder = folder
        self.content = content

    @classmethod
    def create(cls) -> "State":
        folder = paths.state()
        folder.mkdir(mode=0o711, parents=True)        # FileExistsError: there is a ring already
        state = cls(folder, {"boot": boot_id(), "processes": [], "cgroups": [], "nodes": {}, "mounts": []})
        state.save()
        return state

    @classmethod
    def load(cls) -> "State | None":
        """The ring that exists (or existed); None when there is none. A state folder without a valid file counts as
        empty."""
        folder = paths.state()
        if not folder.is_dir():
            return None
        try:
            return cls(folder, json.loads((folder / "state.json").read_text()))
        except (FileNotFoundError, ValueError):
            return cls(folder, {"boot": boot_id(), "processes": [], "cgroups": [], "nodes": {}, "mounts": []})

    def save(self) -> None:
        unfinished = self.folder / "state.json.unfinished"
        unfinished.write_text(json.dumps(self.content, indent=1))
        unfinished.rename(self.folder / "state.json")

    @property
    def same_boot(self) -> bool:
        return self.content["boot"] == boot_id()

    def add_process(self, name: str, pid: int) -> None:
        self.content["processes"] = [p for p in self.content["processes"] if p["name"] != name]
        self.content["processes"].append({"name": name, "pid": pid, "start": start_time(pid)})
        self.save()

    def pid(self, name: str) -> int | None:
        """The pid of the living process of that name; None when there is none."""
        for process in self.content["processes"]:
            if process["name"] == name and self.same_boot and process["start"] is not None and \
                    start_time(process["pid"]) == process["start"]:
                return process["pid"]
        return None

    def forget(self, name: str) -> None:
        self.content["processes"] = [p for p in self.content["processes"] if p["name"] != name]
        self.save()

    def add(self, kind: str, value: str) -> None:
        """Records a cgroup or mount before it is created."""
        if value not in self.content[kind]:
            self.content[kind].append(value)
            self.save()

    def log(self, name: str) -> Path:
        folder = self.folder / "log"
        folder.mkdir(exist_ok=True)
        return folder / f"{name}.log"


def exclusive():
    """Waits until no other `up` or `down` works on this ring. Held until this process ends, in any way."""
    held = socket.socket(socket.AF_UNIX)
    while True:
        try:
            held.bind(f"\0{paths.name()}-at-work")        # an abstract name: it leaves no file behind
            return held
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.1)


def wait_gone(pid: int, seconds: float) -> bool:
    """Waits for the end of a process, a child of this one or not. True when it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        gone = bool(poller.poll(seconds * 1000))
    finally:
        os.close(fd)
    if gone:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass
    return gone
