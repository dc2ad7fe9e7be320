"""Disasters of nodes: reboots, full disks, an unavailable API server, processes that cannot be ended."""
import contextlib
import os
import signal
import time
import unittest
import uuid
from pathlib import Path

from . import cgroups
from .kube import wait_for


def reboot(node, start) -> None:
    """As after a power cut: all processes of the node are gone, /run and /dev are empty, the boot id is another.

    `start(node)` starts what a machine starts at boot in addition to containerd and kubelet (driver, arbiter, agent).
    Disk contents stay: containerd's, the kubelet's and Carve's folders below /var/lib.
    """
    holder = node.state.pid(f"{node.name}-namespace")
    kubepods = [root / node.name for root in cgroups.all_groups() if (root / node.name).is_dir()]
    groups = [node.tracker.path, *kubepods]
    while living := set().union(*(cgroups.members(group) for group in groups)) - {holder}:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for name in [p["name"] for p in node.state.content["processes"]]:
        if name.startswith(node.name + "-") and not name.endswith("-namespace"):
            node.state.forget(name)
    for group in kubepods:
        cgroups.empty(group)
    node.run(["sh", "-c", "umount -R /run; mount -t tmpfs -o mode=0755 ring-run /run; mkdir -p /run/cdi /run/lock; "
              "rm -f /dev/nvidia*"])
    boot = node.folder / "boot_id"
    boot.write_text(str(uuid.uuid4()) + "\n")
    node.run(["mount", "--bind", boot, "/proc/sys/kernel/random/boot_id"])
    node.start_containerd()
    node.wait_containerd()
    start(node)
    node.start_kubelet()


@contextlib.contextmanager
def full_disk(node, folder: str, bytes_left: int = 0):
    """Mounts a separate file system over a folder of the node, with the folder's content, and fills it to
    `bytes_left`."""
    size = 16 << 20
    node.run(["sh", "-c", f"mkdir -p /var/lib/ring-full && mount -t tmpfs -o size={size} ring-full /var/lib/ring-full && "
              f"cp -a {folder}/. /var/lib/ring-full/ && mount --bind /var/lib/ring-full {folder}"])
    filler = node.outside(folder) / ".ring-filler"
    room = os.statvfs(node.outside(folder))
    with open(filler, "wb") as out:
        out.write(b"\0" * max(0, room.f_bavail * room.f_frsize - bytes_left))
    try:
        yield filler
    finally:
        filler.unlink(missing_ok=True)


def stop_threads(pid: int):
    """SIGSTOP. Returns when every thread has stopped: until then a thread on another processor may answer."""
    os.kill(pid, signal.SIGSTOP)
    until, states = time.monotonic() + 10, set()
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):     # a thread has ended meanwhile
            tasks = Path(f"/proc/{pid}/task").glob("*/stat")
            states = {task.read_text().rpartition(")")[2].split()[0] for task in tasks}
            if states == {"T"}:
                return
        time.sleep(0.001)
    raise RuntimeError(f"the threads of process {pid} do not stop: {states}")


@contextlib.contextmanager
def api_server_away(ring):
    """The API server does not answer: SIGSTOP, in the middle of any request."""
    pid = ring.state.pid("apiserver")
    stop_threads(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        ring.wait_api_server()


@contextlib.contextmanager
def stopped(pid: int):
    """A process that is alive and does nothing (SIGSTOP)."""
    stop_threads(pid)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def runtime_stopped_amid(node, prepare, begin, under_way, come_right, tries=8, seconds=15):
    """Stops containerd while the kubelet is processing pods; yields `under_way(begun)`, which is not empty. `prepare()`
    returns `begun`, for which the kubelet has little left to wait; containerd is stopped; `begin(begun)` does the rest.

    What is under way may be only a part: every two seconds the kubelet's loop looks for pods to clean up, waits for
    containerd there and accepts no further pod until it answers. When this happens first, the kubelet accepts none.
    Then containerd goes on, `come_right(begun)` is called for what was begun, and the next try prepares more."""
    for _ in range(tries):
        begun = prepare()
        with stopped(node.pid("containerd")):
            begin(begun)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if found := under_way(begun):
                    yield found
                    return
                time.sleep(0.1)
        come_right(begun)
    raise AssertionError(f"the kubelet accepted nothing in {tries} tries while its runtime was stopped")


@contextlib.contextmanager
def unreachable(pid: int):
    """A container's process that no signal reaches, as in an uninterruptible wait: it is in a frozen group below the
    container's (the runtime thaws the container's own group to kill it). Skips the test where there is no v1 freezer: a
    frozen process of cgroup v2 can be killed."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    path = next((path for _, controllers, path in lines if "freezer" in controllers.split(",")), None)
    if path is None:
        raise unittest.SkipTest("no v1 freezer here")
    group = Path("/sys/fs/cgroup/freezer" + path + "/stuck")
    group.mkdir()
    (group / "cgroup.procs").write_text(str(pid))
    (group / "freezer.state").write_text("FROZEN")
    try:
        wait_for("frozen", 10, lambda: (group / "freezer.state").read_text().strip() == "FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
