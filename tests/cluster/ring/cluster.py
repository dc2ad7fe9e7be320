"""The whole ring: starting it, removing it, and the handle by which tests use a running one. Start reading here."""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from . import binaries, cgroups, control_plane, etcd, images, network, paths
from .certs import Certificates, kubeconfig
from .kube import Kube, wait_for
from .node import Node
from .process import Place, spawn, stop, tail, until, until_process
from .state import State

PROGRAMS = ("carve-sample-spin", "carve-sample-alloc")


class Ring:
    """A running ring: `Ring.load()` finds the one that `up` started."""

    def __init__(self, state: State, found: dict):
        self.state = state
        self.binaries = found
        self.certificates = Certificates(state.folder / "certificates")

    @classmethod
    def find(cls) -> "Ring | None":
        """The ring that `up` has started completely; processes of it may have ended since."""
        state = State.load()
        if state is None or not state.content.get("ready") or not state.same_boot:
            return None
        return cls(state, {name: Path(path) for name, path in state.content["binaries"].items()})

    @classmethod
    def load(cls) -> "Ring":
        ring = cls.find()
        if ring is None or ring.state.pid("apiserver") is None:
            raise SystemExit("ring: none is running; start one with tests/cluster/up")
        return ring

    @property
    def build(self) -> Path | None:
        """The build folder of the simulator and Carve on the nodes."""
        build = self.state.content.get("build")
        return Path(build) if build else None

    @property
    def nodes(self) -> list:
        return [Node(self.state, self.binaries, self.certificates, entry["index"], self.state.content["network"])
                for entry in self.state.content["nodes"].values()]

    def node(self, index=1) -> Node:
        return Node(self.state, self.binaries, self.certificates, index, self.state.content["network"])

    @property
    def control(self) -> Place:
        """The place of the control plane. Processes that connect to it directly run here too."""
        return Place(cgroups.Tracker("control").make(), network_of=self.state.content["network"])

    def kube(self, token=None, certificate="admin") -> Kube:
        file = self.certificates.file
        port = int((self.state.folder / "port_forward.port").read_text())
        if token:
            return Kube(port, file("ca.crt"), token=token)
        return Kube(port, file("ca.crt"), file(f"{certificate}.crt"), file(f"{certificate}.key"))

    @property
    def kubeconfig(self) -> Path:
        return self.state.folder / "admin.kubeconfig"

    def kubectl(self, *arguments, check=True, **options):
        # kubectl ends before a garbage collection would pay off.
        options.setdefault("env", {**os.environ, "GOGC": "off"})
        return subprocess.run([self.binaries["kubectl"], "--kubeconfig", self.kubeconfig, *map(str, arguments)],
                              text=True, capture_output=True, check=check, **options)

    # --- starting ------------------------------------------------------------------------------------------------

    def start_api_server(self, *more):
        control_plane.start_api_server(self.state, self.binaries, self.certificates, self.control, *more)

    def stop_api_server(self):
        control_plane.stop_api_server(self.state)

    def restart_scheduler(self, settings=None, environment=None):
        """Restarts the cluster's own kube-scheduler, with its first configuration or with `settings` (a
        KubeSchedulerConfiguration) and additional `environment` variables."""
        stop(self.state, "scheduler", grace=15)
        control_plane.start_scheduler(self.state, self.binaries, self.certificates, self.control, settings, environment)

    def wait_api_server(self, seconds=60):
        """Waits until the API server answers; fails immediately when its process has ended."""
        until_process(self.state, "apiserver", "kube-apiserver ready", seconds, self.kube().ready)

    def _open_port_forward(self):
        port_file = self.state.folder / "port_forward.port"
        spawn(self.state, "port_forward", [sys.executable, Path(__file__).with_name("port_forward.py"), port_file,
                                   self.state.content["network"], network.API_SERVICE, network.API_PORT],
              Place(cgroups.Tracker("control").make()))
        until("the forwarder to the API server", 10, port_file.exists)
        file = self.certificates.file
        kubeconfig(self.kubeconfig, f"https://127.0.0.1:{port_file.read_text()}", file("ca.crt"),
                   file("admin.crt"), file("admin.key"))

    def _first_objects(self):
        """Objects that the installer of a stock cluster creates: the API server may call kubelets."""
        self.kube().apply({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "ring:kubelet-clients"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "ring:kubelet-clients"}]})

    def _start_services(self):
        """Starts service addresses and DNS (services.py)."""
        file = self.certificates.file
        spawn(self.state, "services", [sys.executable, Path(__file__).with_name("services.py"), file("ca.crt"),
                                       file("admin.crt"), file("admin.key")], self.control)

    def _wait_nodes(self):
        kube = self.kube()

        def all_ready():
            ready = [node for node in kube.list("Node")
                     if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])]
            return len(ready) >= len(self.nodes)
        try:
            wait_for("all nodes Ready", 90, all_ready)
        except AssertionError as error:
            raise RuntimeError(f"{error}\n" + "\n".join(
                tail(self.state, f"{node.name}-kubelet") for node in self.nodes)) from None
        wait_for("the default service account", 30, lambda: kube.get("ServiceAccount", "default"))

    def repair(self) -> list:
        """Continues and restarts the processes that a scenario which failed or was killed left stopped, and waits until
        every node is Ready. When ctest ends a scenario at its time limit, it also ends what the scenario has started.
        Returns what it did: "n1-kubelet started"."""
        done = []
        for name in [process["name"] for process in self.state.content["processes"]]:
            pid = self.state.pid(name)
            with contextlib.suppress(OSError):
                if pid and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    os.kill(pid, signal.SIGCONT)
                    done.append(f"{name} continued")

        def started(name, start, *arguments):
            if self.state.pid(name) is not None:
                return False
            start(*arguments)
            done.append(f"{name} started")
            return True
        if started("apiserver", self.start_api_server):
            self.wait_api_server()
        for name, start in (("controller-manager", control_plane.start_controller_manager),
                            ("scheduler", control_plane.start_scheduler)):
            started(name, start, self.state, self.binaries, self.certificates, self.control)
        for node in self.nodes:
            if started(f"{node.name}-containerd", node.start_containerd):
                node.wait_containerd()
            started(f"{node.name}-kubelet", node.start_kubelet)
        if done:
            self._wait_nodes()
        return done

    @classmethod
    def up(cls, nodes: int, simulate: str | None, build: Path | None, say) -> "Ring":
        """Starts everything and returns when every node is Ready. After an error `down` removes what was started."""
        found = binaries.find()
        state = State.create()
        state.content.update(binaries={name: str(path) for name, path in found.items()},
                             build=str(build) if build else None, simulate=simulate)
        state.save()
        ring = cls(state, found)
        control = cgroups.Tracker("control").make()
        ring.certificates.make_all({f"n{i}": network.node_address(i) for i in range(1, nodes + 1)})
        say("certificates")
        state.content["network"] = network.make(state, control, nodes)
        state.save()
        ring._open_port_forward()
        etcd.start(state, found, ring.certificates, ring.control)
        ring.start_api_server()
        made = [Node(state, found, ring.certificates, i, state.content["network"]) for i in range(1, nodes + 1)]
        for node in made:
            node.make_namespace()
            node.start_containerd()
        archives = []
        programs = [build / "bin" / name for name in PROGRAMS if build and (build / "bin" / name).exists()]
        if made:
            archives = images.make_all(state.folder / "images", programs)
            say("images made")
        for node in made:
            node.wait_containerd()
            node.import_images(archives)
            if simulate:
                node.start_simulator(build, simulate)
        if made:
            say("containerd up, images imported")
        ring.wait_api_server()
        say("API server ready")
        control_plane.start_controller_manager(state, found, ring.certificates, ring.control)
        control_plane.start_scheduler(state, found, ring.certificates, ring.control)
        ring._first_objects()
        ring._start_services()
        for node in made:
            node.start_kubelet()
        ring._wait_nodes()
        state.content["ready"] = True
        state.save()
        say("nodes Ready" if made else "control plane up")
        return ring


# --- removing it -------------------------------------------------------------------------------------------------

def keep_logs(state: State) -> Path | None:
    """Copies the logs to a folder that outlives the ring. They contain no secrets (keys, tokens)."""
    source, target = state.folder / "log", paths.kept_logs()
    if not source.is_dir():
        return None
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    for node in state.content["nodes"]:
        pods = state.folder / node / "var-log" / "pods"
        if pods.is_dir():
            shutil.copytree(pods, target / f"{node}-pods", symlinks=True, dirs_exist_ok=True)
    return target


def down(say=lambda _: None) -> None:
    """Removes the ring, regardless of how much of it is left. Does nothing when there is none.

    Ends the processes in order where the order matters (the API server releases its port, containerd its shims), then
    everything that is still in the ring's cgroups. Finds no process by its name.
    """
    state = State.load()
    if state is None:
        leftover = cgroups.kill_and_remove()
        if leftover:
            raise SystemExit(f"ring: could not remove {', '.join(leftover)}")
        return
    if state.same_boot:
        order = [p["name"] for p in state.content["processes"]]
        last = [name for name in order if name.endswith(("-namespace", "-containerd")) or name == "etcd"]
        for name in reversed([name for name in order if name not in last and name != "apiserver"]):
            stop(state, name, grace=15)
        control_plane.stop_api_server(state)      # after its watchers: it would wait for them
        say("control plane and kubelets ended")
    leftover = cgroups.kill_and_remove()
    if leftover:
        raise SystemExit(f"ring: could not remove {', '.join(leftover)}")
    say("containers, containerd and etcd ended, cgroups removed")
    _unmount_below(state.folder)
    shutil.rmtree(state.folder)
    say("state folder removed")


def _unmount_below(folder: Path) -> None:
    """The nodes' mounts ended with their namespaces. A mount that is left is a mistake that must not delete files."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = line.split()[4].replace("\\040", " ")
        if point == str(folder) or point.startswith(f"{folder}/"):
            subprocess.run(["umount", point], check=True)


def timer(prefix="ring"):
    """Returns say(what), which prints what was done and how long it took since the previous line."""
    last = [time.monotonic()]

    def say(what):
        now = time.monotonic()
        print(f"{prefix}: {now - last[0]:6.1f} s  {what}", file=sys.stderr, flush=True)
        last[0] = now
    return say


def need_root():
    if os.geteuid() != 0:
        raise SystemExit("ring: needs root to create namespaces, mounts and cgroups")
