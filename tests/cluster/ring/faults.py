"""What befalls a cluster: one of its processes is killed, or stops for a while and goes on. What runs in a container is
started again by the kubelet, the others by a supervisor here, as an init system does."""
import contextlib
import os
import signal
import threading
import time

from . import carve
from .kube import wait_for
from .testing import RingTest

PARTS = ("leader", "agent", "keeper", "arbiter", "kubelet", "containerd", "apiserver")


def main_process(container_id: str) -> int:
    """The process of a container whose parent is not in it."""
    members = RingTest.pids_of(container_id.partition("://")[2])
    for pid in members:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            if int(stat.read().rpartition(")")[2].split()[1]) not in members:
                return pid
    raise LookupError(f"no process in container {container_id}")


def _stands_still(pid) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


def _is_gone(pid) -> bool:
    return not os.path.exists(f"/proc/{pid}")


class Supervisor:
    """An init system for kubelets, containerds and the API server of a ring: what has ended is started again, whatever
    it ended of (a kubelet ends by itself when it finds no containerd)."""
    PAUSE = 1.0

    def __init__(self, ring):
        self.ring = ring
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(self.PAUSE):
            if self.ring.state.pid("apiserver") is None:
                self.ring.start_api_server()
            for node in self.ring.nodes:
                if node.pid("containerd") is None:
                    node.start_containerd()
                if node.pid("kubelet") is None:
                    node.start_kubelet()


class Faults:
    """Kills and stops parts of a ring that has all of Carve. Which one of several: by the dice."""

    def __init__(self, ring, dice, patience, say=print):
        self.ring, self.dice, self.patience, self.say = ring, dice, patience, say
        self.kube = ring.kube()
        self.done = {}                      # (part, "kill" or "stop") -> how often
        self.began = []                     # (seconds since the epoch, "kill" or "stop", part, node's name)
        self.cut_short = []                 # stops that did not last: somebody else ended the process, or let it go on
        self._stops = []                    # threads that will let something go on
        self._stopped = {}                  # pid -> (part, node's name), of those that stand still now

    def _pod_process(self, pod) -> int:
        return main_process(pod["status"]["containerStatuses"][0]["containerID"])

    def find(self, part, node) -> int:
        """The process; LookupError while there is none."""
        if part == "apiserver":
            pid = self.ring.state.pid("apiserver")
        elif part in ("kubelet", "containerd"):
            pid = node.pid(part)
        else:
            pods = [pod for pod in self.kube.list("Pod", carve.NAMESPACE) if "deletionTimestamp" not in pod["metadata"]]
            if part == "leader":
                holder = self.kube.get("Lease", "carve-control", carve.NAMESPACE)["spec"]["holderIdentity"]
                wanted = [pod for pod in pods if pod["metadata"]["name"] == holder.partition("_")[0]]
            else:
                start = "carve-agent-" if part == "keeper" else f"carve-{part}-"
                wanted = [pod for pod in pods if pod["metadata"]["name"].startswith(start) and
                          pod["spec"].get("nodeName") == node.name]
            pid = self._pod_process(wanted[0]) if wanted else None
            if part == "agent" and pid is not None:
                pid = carve.kept_agent(pid)
        if pid is None:
            raise LookupError(f"{part} is not there")
        return pid

    def _pinned(self, part, node):
        """(pid, a handle) of the process as soon as there is one: its number may be another's a moment later. Not of one
        that stands still: a stop is to last."""
        def found():
            with contextlib.suppress(LookupError, KeyError, IndexError, OSError):
                pid = self.find(part, node)
                return None if pid in self._stopped else (pid, os.pidfd_open(pid))
        return wait_for(f"{part} on {node.name} to be there", self.patience, found, every=0.2)

    def _some_node(self, part):
        """One on which this part does not stand still, if there is one."""
        standing = {name for one, name in list(self._stopped.values()) if one == part}
        return self.dice.choice([node for node in self.ring.nodes if node.name not in standing] or self.ring.nodes)

    def kill(self, part) -> None:
        node = self._some_node(part)
        _, handle = self._pinned(part, node)
        self._note("kill", part, node)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)

    def stop(self, part, seconds) -> None:
        """SIGSTOP; goes on by itself after so many seconds. An agent's keeper may not wait for it that long."""
        node = self._some_node(part)
        pid, handle = self._pinned(part, node)
        self._note("stop", part, node)
        self._stopped[pid] = (part, node.name)
        signal.pidfd_send_signal(handle, signal.SIGSTOP)

        def go_on():
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                if not _stands_still(pid) and not (part == "agent" and _is_gone(pid)):
                    self.cut_short.append(f"{part} of {node.name}")
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            del self._stopped[pid]
            os.close(handle)
        thread = threading.Thread(target=go_on)
        thread.start()
        self._stops.append(thread)

    def may_be_away(self, part, node, since, until, stopped) -> bool:
        """Whether that part of the node may have answered nobody at some time between: it stood still for `stopped` seconds, or
        was killed, and the kubelet waited before it started it again."""
        return any(one == part and on == node and at <= until and since <= at + (stopped if what == "stop" else self.patience)
                   for at, what, one, on in self.began)

    def wait_all_go_on(self) -> None:
        for thread in self._stops:
            thread.join()
        self._stops.clear()

    def _note(self, what, part, node) -> None:
        self.done[(part, what)] = self.done.get((part, what), 0) + 1
        self.began.append((time.time(), what, part, node.name))
        self.say(f"{what} {part}" + (f" of {node.name}" if part not in ("leader", "apiserver") else ""))
