"""What the ring has on this machine, written down before it is made, so that anybody can take it away later.

A process is remembered by pid *and* start time: a pid that was given to somebody else is never touched.
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
    """Clock ticks after boot at which the process began; None when there is none (or a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class State:
    """The file state.json of the ring: processes in the order they were started, nodes, and where to reach the API."""

    def __init__(self, folder: Path, content: dict):
        self.folder = folder
        self.content = content

    @classmethod
    def create(cls) -> "State":
        folder = paths.state()
        folder.mkdir(mode=0o711, parents=True)        # FileExistsError: a ring is there
        state = cls(folder, {"boot": boot_id(), "processes": [], "cgroups": [], "nodes": {}, "mounts": []})
        state.save()
        return state

    @classmethod
    def load(cls) -> "State | None":
        """The ring that is (or was) there; None without. A state folder cut off while it was made counts as empty."""
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
        """The living process of that name."""
        for process in self.content["processes"]:
            if process["name"] == name and self.same_boot and process["start"] is not None and \
                    start_time(process["pid"]) == process["start"]:
                return process["pid"]
        return None

    def forget(self, name: str) -> None:
        self.content["processes"] = [p for p in self.content["processes"] if p["name"] != name]
        self.save()

    def add(self, kind: str, value: str) -> None:
        """Notes a cgroup or mount before it is made."""
        if value not in self.content[kind]:
            self.content[kind].append(value)
            self.save()

    def log(self, name: str) -> Path:
        folder = self.folder / "log"
        folder.mkdir(exist_ok=True)
        return folder / f"{name}.log"


def exclusive():
    """Waits until no other `up` or `down` works on this ring. Held until this process ends, however it ends."""
    held = socket.socket(socket.AF_UNIX)
    while True:
        try:
            held.bind(f"\0{paths.name()}-at-work")        # an abstract name: no file that could be left over
            return held
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.1)


def wait_gone(pid: int, seconds: float) -> bool:
    """Waits for the end of a process, a child of ours or not. True when it is gone."""
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
