"""Carve on a node, as processes of a build: arbiter and agent, with a token that is bound to the node.

Users install the DaemonSets of deploy/. This form is for tests that kill and restart one process at a time.
"""
import contextlib
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "checker"))
import read_node  # noqa: E402

from . import cgroups, control_plane, paths
from .process import until, until_process
from .state import wait_gone

NAMESPACE = "carve-system"
ACCOUNT = "carve-agent"
DRIVER = "gpu.elasticgpu.io"
LIBRARIES = "/var/lib/simulated-driver"
AGENT_SOCKET = "/run/carve/agent.sock"


def manifests() -> list:
    """The files from which a cluster is installed."""
    deploy = paths.REPOSITORY / "deploy"
    return sorted(deploy.glob("*.yaml")) + sorted(deploy.glob("crds/*.yaml"))


def install_objects(ring) -> None:
    """Namespace, account, RBAC, DeviceClasses, CRD, policies: everything of deploy/ except the workloads."""
    kube = ring.kube()
    files = [word for path in manifests() for word in ("-f", path)]
    # kubectl reads the YAML; it takes 80 ms of processor time per call, so it does not also apply each object.
    for object_ in _objects(ring.kubectl("create", "--dry-run=client", "-o", "json", *files).stdout):
        if object_["kind"] not in ("DaemonSet", "Deployment", "Job", "Pod"):
            kube.apply(object_)
    until = time.monotonic() + 30
    while kube.get("ServiceAccount", ACCOUNT, NAMESPACE) is None:
        if time.monotonic() > until:
            raise RuntimeError(f"deploy/ creates no service account {NAMESPACE}/{ACCOUNT}")
        time.sleep(0.1)


def _objects(text):
    """kubectl prints one JSON document after the other, Lists among them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        found, at = decoder.raw_decode(text, at)
        yield from (found["items"] if found["kind"] == "List" else [found])
        at += len(re.match(r"\s*", text[at:]).group())


def kept_agent(keeper: int):
    """The pid of a keeper's agent; None while there is none, or when `keeper` is itself the agent."""
    with contextlib.suppress(OSError):      # the process has ended
        for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split():
            if b"--kept-by=" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
    return None


class Carve:
    """Arbiter and agent of one node."""

    def __init__(self, ring, node, plugins="dra"):
        self.ring = ring
        self.node = node
        self.plugins = plugins
        self.build = ring.build

    # --- the agent's identity --------------------------------------------------------------------------------------

    def token(self, seconds=3600, node=None) -> str:
        """A token of the agent's account that names the node, as the kubelet mounts it into the DaemonSet's pod."""
        kube = self.ring.kube()
        name = node or self.node.name
        path = kube.path("ServiceAccount", ACCOUNT, NAMESPACE, "token")
        answer = kube.request("POST", path, {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
                "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": name,
                                   "uid": kube.get("Node", name)["metadata"]["uid"]}}})
        return answer["status"]["token"]

    def write_credentials(self, seconds=3600, server=control_plane.SERVER) -> Path:
        """Writes the agent's kubeconfig, with the token in a file next to it, as in a pod. Returns its path on the
        node."""
        folder = self.node.folder / "agent-credentials"
        folder.mkdir(mode=0o700, exist_ok=True)
        unfinished = folder / "token.unfinished"
        unfinished.write_text(self.token(seconds))
        unfinished.rename(folder / "token")
        config = folder / "kubeconfig"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "ring",
            "clusters": [{"name": "ring", "cluster": {
                "server": server, "certificate-authority": str(self.ring.certificates.file("ca.crt"))}}],
            "users": [{"name": "agent", "user": {"tokenFile": str(folder / "token")}}],
            "contexts": [{"name": "ring", "context": {"cluster": "ring", "user": "agent"}}]}))
        return config

    # --- processes ---------------------------------------------------------------------------------------------------

    def start_arbiter(self, program=None) -> None:
        self.node.start("arbiter", [program or self.build / "bin" / "carve", "arbiter"])
        until_process(self.node.state, f"{self.node.name}-arbiter", "the arbiter's socket", 20,
                      self.node.outside("/run/carve/arbiter/control").exists)

    def start_agent(self, *more, program=None, wait=True) -> None:
        v2, _ = cgroups.mounts()
        config = self.write_credentials()
        self.forget_registration()
        self.node.start("agent", [
            program or self.build / "bin" / "carve", "agent", "--node-name", self.node.name, "--kubeconfig", config,
            "--plugins", self.plugins, "--driver-root", LIBRARIES, "--driver-mount", "/run/nvidia-sim",
            "--cgroup-root", v2 / cgroups.NAME / f"{self.node.name}-slices", *more])
        if wait:
            self.wait_agent()

    def wait_agent(self, seconds=30) -> None:
        """Waits until the agent serves its own socket and, with the DRA driver, has published its cards."""
        name = f"{self.node.name}-agent"
        until_process(self.node.state, name, "the agent answers at its socket", seconds, self.answers)
        if "dra" in self.plugins:
            until_process(self.node.state, name, "ResourceSlices of the node", seconds, self.published)
            until_process(self.node.state, name, "the kubelet has registered the driver", seconds, self.registered)

    def answers(self) -> bool:
        """True when the agent accepts connections. The socket file alone says nothing: it outlives a killed agent."""
        with socket.socket(socket.AF_UNIX) as one:
            return one.connect_ex(str(self.node.outside(AGENT_SOCKET))) == 0

    def forget_registration(self) -> None:
        """Makes registered() ignore what the kubelet's log contains so far, before the kubelet is started again."""
        self.kubelet_log = self.node.state.log(f"{self.node.name}-kubelet").stat().st_size

    def registered(self) -> bool:
        """True when the kubelet has logged, since this agent's start (or forget_registration()), a connection to the
        driver."""
        with open(self.node.state.log(f"{self.node.name}-kubelet"), encoding="utf-8", errors="replace") as log:
            log.seek(self.kubelet_log)
            return any(DRIVER in line and "connected=true" in line for line in log)

    def published(self) -> list:
        """The node's ResourceSlices."""
        return [item for item in self.ring.kube().list("ResourceSlice", None)
                if item["spec"]["driver"] == DRIVER and item["spec"].get("nodeName") == self.node.name]

    def agent(self):
        """The pid of the agent; None while there is none. With slots the agent is the child of the started process, its
        keeper (src/app/keeper)."""
        started = self.node.pid("agent")
        if started is None or "slots" not in self.plugins:
            return started
        return kept_agent(started)

    def kill_agent(self) -> None:
        """Sends SIGKILL to the keeper, and the agent ends with it, as when their container ends."""
        agent = self.agent()
        self.node.kill("agent")
        if agent is not None and not wait_gone(agent, 30):
            raise RuntimeError(f"the agent (pid {agent}) does not end with its keeper")

    def crash_agent(self, seconds=30) -> None:
        """Sends SIGKILL to the agent only, as soon as there is one; its keeper starts another."""
        pid = until("an agent that can be killed", seconds, self.agent, every=0.01)
        os.kill(pid, signal.SIGKILL)
        if not wait_gone(pid, 30):
            raise RuntimeError(f"the agent (pid {pid}) does not end after SIGKILL")

    def stop(self) -> None:
        for name in ("agent", "arbiter"):
            self.node.stop(name)

    # --- what the driver and the agent report -----------------------------------------------------------------------

    def truth(self, *what):
        """The simulated driver's own account of the node, from carve-simctl. Tests treat it as the truth."""
        return json.loads(self.node.run([self.build / "bin" / "carve-simctl", *what]).stdout)

    def granted(self) -> tuple:
        """(the limits in the arbiter's pages, the owners of the slices in the journal), for check.check_pages."""
        journal = (self.node.folder / "var-lib/carve/journal.d/journal").read_text()
        return (read_node.pages(self.node.outside("/run/carve/arbiter/pages")),
                read_node.owners(read_node.journal(journal)[1]))

    def living(self) -> list:
        """The processes that have a card open on this node, according to the simulated driver."""
        return [process for process in self.truth("account")["processes"] if process["alive"]]

    def inspect(self):
        """The agent's own view, which a test never treats as the truth."""
        return json.loads(self.node.run([self.build / "bin" / "carve", "inspect", "-o", "json"]).stdout)
