"""Starting and stopping the ring's processes: in their namespaces, in their cgroup, with a log, recorded."""
import ctypes
import os
import signal
import subprocess
import time

from . import paths
from .state import State, start_time, wait_gone

_libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS = 0x00020000
CLONE_NEWNET = 0x40000000
MARK = "CARVE_RING_PROCESS"         # in the environment of every process of a ring: its name
# Kubernetes' programs collect garbage less often: processors are scarce here, memory is not. One thread of each runs at a
# time: each needs a few per cent of a processor, and with two it spends a sixth of that on the search for more work.
GO = {"GOGC": "400", "GOMAXPROCS": "1"}


class Place:
    """Where a process runs: the namespaces of a process that holds them, and the cgroup by which it is found again."""

    def __init__(self, cgroup, network_of: int | None = None, mounts_of: int | None = None):
        self.cgroup = cgroup                        # cgroups.Tracker
        self.namespaces = [(pid, kind, flag) for pid, kind, flag in
                           ((network_of, "net", CLONE_NEWNET), (mounts_of, "mnt", CLONE_NEWNS)) if pid]

    def enter(self) -> None:
        """Moves the calling process there. It must be single-threaded: setns() of a mount namespace requires that."""
        self.cgroup.enter()
        opened = [(os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC), flag)
                  for pid, kind, flag in self.namespaces]
        for fd, flag in opened:
            if _libc.setns(fd, flag) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(fd)
        if self.namespaces:
            os.chdir("/")


def unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def spawn(state: State, name: str, command: list, place: Place | None = None, environment=None, before=None) -> int:
    """Starts a process of the ring and records it. Its output goes to log/<name>.log.

    `before` runs in the child, after the child has entered its place and before the program is executed.
    """
    def prepare():
        if place is not None:
            place.enter()
        if before is not None:
            before()

    with open(state.log(name), "ab") as log:
        child = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 start_new_session=True, preexec_fn=prepare, cwd="/",
                                 env={**os.environ, **GO, MARK: paths.name(), **(environment or {})})
    state.add_process(name, child.pid)
    child.returncode = 0      # this process may end first, so subprocess must not wait for the child
    return child.pid


def run(command: list, place: Place | None = None, check=True, timeout=120, **options):
    """Runs a command to its end in a place. Returns a CompletedProcess with text. A RuntimeError contains its
    stderr."""
    done = subprocess.run([str(part) for part in command], preexec_fn=place.enter if place else None, text=True,
                          capture_output=True, timeout=timeout, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr.strip()}")
    return done


def stop(state: State, name: str, grace: float = 20) -> None:
    """Sends SIGTERM, then SIGKILL after `grace` seconds. Returns when the process is gone."""
    pid = state.pid(name)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        if not wait_gone(pid, grace):
            os.kill(pid, signal.SIGKILL)
            if not wait_gone(pid, 30):
                raise RuntimeError(f"{name} (pid {pid}) does not end after SIGKILL")
    state.forget(name)


def kill(state: State, name: str) -> None:
    """Sends SIGKILL and returns when the process is gone. Does nothing when there is none."""
    pid = state.pid(name)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        if not wait_gone(pid, 30):
            raise RuntimeError(f"{name} (pid {pid}) does not end after SIGKILL")
    state.forget(name)


PATIENT = 20  # seconds


def until(what: str, seconds: float, condition, every: float = 0.05):
    """Polls a condition that has no event, first after `every` seconds and then less often, up to four times that:
    polls take processor time from what they wait for. Returns the condition's value; the TimeoutError names `what`.

    Times of PATIENT seconds and more are no promise of the product: they end a wait that hangs. They are multiplied by
    four, because a virtual machine on a busy host is several times slower."""
    if seconds >= PATIENT:
        seconds *= 4
    deadline = time.monotonic() + seconds
    longest = 4 * every
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(every)
        every = min(every * 1.2, longest)


def until_process(state: State, name: str, what: str, seconds: float, condition) -> None:
    """Waits until a process has done something. RuntimeError with the end of its log when it ends or takes too long."""
    def done_or_dead():
        return condition() or state.pid(name) is None
    try:
        until(what, seconds, done_or_dead)
        if condition():
            return
        reason = f"{name} ended before: {what}"
    except TimeoutError as error:
        reason = str(error)
    raise RuntimeError(f"{reason}\n{tail(state, name)}")


def tail(state: State, name: str, lines: int = 25) -> str:
    try:
        return "\n".join(state.log(name).read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


__all__ = ["Place", "spawn", "run", "stop", "kill", "until", "until_process", "tail", "unshare", "start_time"]
