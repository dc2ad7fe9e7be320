"""What befalls a cluster: one of its processes is killed, or stops for a while and goes on. What runs in a container is
started again by the kubelet, the others by a supervisor here, as an init system does. Each fault is written down with
its window: from the signal until the part serves again."""
import contextlib
import http.client
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "checker"))
import excuses  # noqa: E402

from . import carve, moments  # noqa: E402
from .kube import ApiError, wait_for  # noqa: E402
from .node import CONTAINERD_SOCKET  # noqa: E402
from .state import start_time  # noqa: E402
from .testing import RingTest  # noqa: E402

PARTS = ("leader", "agent", "keeper", "arbiter", "kubelet", "containerd", "apiserver")
_DOOR = "/var/lib/kubelet/device-plugins/carve-slots.sock"
SOCKETS = {         # where somebody listens while the part serves; the socket of one that was killed refuses
    "agent": (carve.AGENT_SOCKET, _DOOR), "keeper": (carve.AGENT_SOCKET, _DOOR),
    "arbiter": ("/run/carve/arbiter/control",), "kubelet": ("/var/lib/kubelet/pod-resources/kubelet.sock",),
    "containerd": (CONTAINERD_SOCKET,)}


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


def _listens(path) -> bool:
    """Whether somebody takes connections there; the arbiter takes packets, the others a stream."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.settimeout(1)
            if one.connect_ex(str(path)) == 0:
                return True
    return False


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
    STEADY = 2          # seconds for which a part has to serve: a kubelet that finds no containerd serves, and ends
    LOOK = 0.2          # seconds between two looks whether it does

    def __init__(self, ring, dice, patience, say=print):
        self.ring, self.dice, self.patience, self.say = ring, dice, patience, say
        self.kube = ring.kube()
        self.done = {}                      # (part, "kill" or "stop") -> how often
        self.windows = []                   # of excuses.Window, in the order in which they began
        self.cut_short = []                 # stops that did not last: somebody else ended the process, or let it go on
        self._stops = []                    # threads that will let something go on
        self._stopped = {}                  # pid -> (part, node's name), of those that stand still now
        self._recoveries = []               # threads that wait until a part serves again

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
        """(pid, a handle) of the process as soon as there is one: its number may be another's a moment later. Not of
        one that stands still: a stop is to last."""
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
        pid, handle = self._pinned(part, node)
        window = self._note("kill", part, node)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        self._await_recovery(window, pid, node)

    def stop(self, part, seconds) -> None:
        """SIGSTOP; goes on by itself after so many seconds. An agent's keeper may not wait for it that long."""
        node = self._some_node(part)
        pid, handle = self._pinned(part, node)
        window = self._note("stop", part, node)
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
            self._await_recovery(window, None, node)
        thread = threading.Thread(target=go_on)
        thread.start()
        self._stops.append(thread)

    def wait_all_go_on(self) -> None:
        for thread in self._stops:
            thread.join()
        self._stops.clear()

    def wait_all_serve(self) -> None:
        """Until each part serves again that a fault has hit; AssertionError that names those that do not."""
        for thread in self._recoveries:
            thread.join()
        away = [str(window) for window in self.windows if window.ended is None]
        if away:
            raise AssertionError(f"not back within {self.patience} s: {away}")

    def _await_recovery(self, window, killed, node) -> None:
        """On a thread of its own, closes the window when the part has begun to serve steadily. killed: a process that
        is to be gone before."""
        thread = threading.Thread(target=self._recover, args=(window, killed, node), daemon=True)
        thread.start()
        self._recoveries.append(thread)

    def _recover(self, window, killed, node) -> None:
        free = time.time()
        since = None
        while time.time() < free + self.patience:
            if (killed is None or start_time(killed) is None) and self._serves(window.part, node, free):
                since = since or time.time()
                if time.time() >= since + self.STEADY:
                    window.ended = since
                    return
            else:
                since = None
            time.sleep(self.LOOK)

    def _serves(self, part, node, free) -> bool:
        with contextlib.suppress(OSError, ApiError, http.client.HTTPException, LookupError, RuntimeError):
            if part == "apiserver":
                return self.kube.ready()
            if part == "leader":
                return self._control_serves(free)
            # Without containerd a kubelet does nothing; and what a killed one had asked goes on only then.
            if part == "kubelet" and ("containerd", node.name) in list(self._stopped.values()):
                return False
            return all(_listens(node.outside(path)) for path in SOCKETS[part])
        return False

    def _control_serves(self, free) -> bool:
        """Somebody has renewed the lease since, and all replicas are Ready whose processes live."""
        lease = self.kube.get("Lease", "carve-control", carve.NAMESPACE)["spec"]
        pods = [pod for pod in self.kube.list("Pod", carve.NAMESPACE)
                if pod["metadata"]["name"].startswith("carve-control-")]
        return moments.of_rfc3339(lease["renewTime"]) > free and bool(pods) and all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"]) and
            self._pod_process(pod) for pod in pods)

    def _note(self, what, part, node) -> excuses.Window:
        self.done[(part, what)] = self.done.get((part, what), 0) + 1
        window = excuses.Window(what, part, node.name, time.time())
        self.windows.append(window)
        self.say(str(window))
        return window
