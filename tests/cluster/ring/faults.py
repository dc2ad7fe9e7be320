"""Faults of a cluster: a process is killed, or is stopped for a while and continues. The kubelet restarts what runs in
a container; a supervisor here restarts the others, as an init system does. Each fault is recorded with its window: from
the signal until the part serves again."""
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
_DEVICE_PLUGIN = "/var/lib/kubelet/device-plugins/carve-slots.sock"
SOCKETS = {         # where a part listens while it serves; the socket of a killed process refuses connections
    "agent": (carve.AGENT_SOCKET, _DEVICE_PLUGIN), "keeper": (carve.AGENT_SOCKET, _DEVICE_PLUGIN),
    "arbiter": ("/run/carve/arbiter/control",), "kubelet": ("/var/lib/kubelet/pod-resources/kubelet.sock",),
    "containerd": (CONTAINERD_SOCKET,)}


def main_process(container_id: str) -> int:
    """The process of a container that has its parent outside the container."""
    members = RingTest.pids_of(container_id.partition("://")[2])
    for pid in members:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            if int(stat.read().rpartition(")")[2].split()[1]) not in members:
                return pid
    raise LookupError(f"no process in container {container_id}")


def _is_stopped(pid) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


def _is_gone(pid) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def _listens(path) -> bool:
    """True when a process accepts connections there. The arbiter uses SOCK_SEQPACKET, the others SOCK_STREAM."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.settimeout(1)
            if one.connect_ex(str(path)) == 0:
                return True
    return False


class Supervisor:
    """An init system for kubelets, containerds and the API server of a ring: restarts each after it has ended,
    regardless of the reason (a kubelet ends by itself when it finds no containerd)."""
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
    """Kills and stops parts of a ring with all of Carve installed. `dice` selects the node of a part."""
    # seconds for which a part must serve: a kubelet that finds no containerd serves at first, then ends
    STEADY = 2
    LOOK = 0.2          # seconds between two checks of that

    def __init__(self, ring, dice, patience, say=print):
        self.ring, self.dice, self.patience, self.say = ring, dice, patience, say
        self.kube = ring.kube()
        self.done = {}                      # (part, "kill" or "stop") -> count
        self.windows = []                   # of excuses.Window, in the order in which they began
        # stops that another process cut short by ending or continuing the stopped one
        self.cut_short = []
        self._stops = []                    # threads that will continue a stopped process
        self._stopped = {}                  # pid -> (part, node's name) of processes that are stopped now
        self._recoveries = []               # threads that wait until a part serves again

    def _pod_process(self, pod) -> int:
        return main_process(pod["status"]["containerStatuses"][0]["containerID"])

    def find(self, part, node) -> int:
        """The pid of the part's process; LookupError while there is none."""
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
            raise LookupError(f"there is no process of {part}")
        return pid

    def _pinned(self, part, node):
        """(pid, pidfd) of the part's process as soon as there is one; the pidfd is safe against reuse of the pid.
        Ignores a stopped process, so that its stop lasts."""
        def found():
            with contextlib.suppress(LookupError, KeyError, IndexError, OSError):
                pid = self.find(part, node)
                return None if pid in self._stopped else (pid, os.pidfd_open(pid))
        return wait_for(f"a process of {part} on {node.name}", self.patience, found, every=0.2)

    def _some_node(self, part):
        """A node on which this part is not stopped, if there is one."""
        stopped = {name for one, name in list(self._stopped.values()) if one == part}
        return self.dice.choice([node for node in self.ring.nodes if node.name not in stopped] or self.ring.nodes)

    def kill(self, part) -> None:
        node = self._some_node(part)
        pid, handle = self._pinned(part, node)
        window = self._note("kill", part, node)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)
        self._await_recovery(window, pid, node)

    def stop(self, part, seconds) -> None:
        """Sends SIGSTOP, and SIGCONT after `seconds`. An agent's keeper may end the agent sooner."""
        node = self._some_node(part)
        pid, handle = self._pinned(part, node)
        window = self._note("stop", part, node)
        self._stopped[pid] = (part, node.name)
        signal.pidfd_send_signal(handle, signal.SIGSTOP)

        def go_on():
            time.sleep(seconds)
            with contextlib.suppress(ProcessLookupError):
                if not _is_stopped(pid) and not (part == "agent" and _is_gone(pid)):
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
        """Waits until each part that a fault has hit serves again; the AssertionError names those that do not."""
        for thread in self._recoveries:
            thread.join()
        missing = [str(window) for window in self.windows if window.ended is None]
        if missing:
            raise AssertionError(f"not back within {self.patience} s: {missing}")

    def _await_recovery(self, window, killed, node) -> None:
        """Closes the window, from a separate thread, when the part serves steadily. killed: the pid that must be gone
        first."""
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
            # Without containerd a kubelet does nothing, and the requests of a killed kubelet continue only then.
            if part == "kubelet" and ("containerd", node.name) in list(self._stopped.values()):
                return False
            return all(_listens(node.outside(path)) for path in SOCKETS[part])
        return False

    def _control_serves(self, free) -> bool:
        """True when a leader has renewed the coordination.k8s.io Lease since then and all replicas run and are
        Ready."""
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
