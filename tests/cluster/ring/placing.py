"""Placement without nodes: control and a kube-scheduler as processes of a ring, and nodes that exist only as objects.

Everything that decides is real (etcd, API server, kube-scheduler, `carve control` with its manifest's rights). The
nodes have no kubelet and no agent, so there may be a thousand of them.
"""
import concurrent.futures
import http.client
import json
import os
import re
import socket
import ssl
from pathlib import Path

from . import binder, carve, control_plane, network, paths
from .certs import kubeconfig
from .kube import ApiError, Kube, wait_for
from .process import run, spawn, stop

DEPLOY = paths.REPOSITORY / "deploy"
LABEL = "carve-ring/simulated-node"
CONTROL, FOLLOWER, SCHEDULER = "placing-control", "placing-follower", "placing-scheduler"
GIB = 1 << 30
# No kubelet reports the status of such nodes: the node controller taints them, sooner or later.
WITHOUT_KUBELET = [{"key": f"node.kubernetes.io/{what}", "operator": "Exists"} for what in ("not-ready", "unreachable")]


class ControlConnection(http.client.HTTPConnection):
    """Connects to control by its address; its certificate is for its Service's name. certificates:
    Placing.scheduler_certificates()."""

    def __init__(self, port, certificates):
        super().__init__("127.0.0.1", port, timeout=30)
        certificate, key, authority = certificates
        self.context = ssl.create_default_context(cafile=str(authority))
        self.context.load_cert_chain(str(certificate), str(key))

    def connect(self):
        super().connect()
        self.sock = self.context.wrap_socket(self.sock, server_hostname=f"carve-control.{carve.NAMESPACE}.svc")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def status_writes(ring, name=None):
    """The number of kube-scheduler's writes to the status of pods (of that pod), from the API server's audit log."""
    count = 0
    for line in (ring.state.log("apiserver").parent / control_plane.AUDIT_LOG).read_text().splitlines():
        if '"status"' in line and "kube-scheduler" in line:
            what = json.loads(line)
            there = what.get("objectRef", {})
            count += (there.get("resource"), there.get("subresource")) == ("pods", "status") and name in (None, there["name"])
    return count


def node_object(index, cards):
    """A Node as a kubelet would create it, with capacity for many pods and slots for all. Its nvidia.com/gpu is for a
    stock scheduler; Carve's profile ignores it."""
    amounts = {"cpu": "256", "memory": "2Ti", "pods": "1000", "nvidia.com/gpu": str(cards), binder.SLOT: "1000"}
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "no kubelet"}
    name = f"sim-{index:04}"
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, LABEL: "true"}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}


def gpu_object(index, card, gib=80):
    """A GPU object as an agent would create it, with its status apart: (object, status)."""
    node, uuid = f"sim-{index:04}", f"GPU-{index:08x}-0000-4000-8000-{card:012x}"
    return ({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU",
             "metadata": {"name": f"{node}.{uuid.lower()}", "labels": {LABEL: "true"}},
             "spec": {"index": card, "uuid": uuid, "memory": gib * GIB, "nodeName": node,
                      "model": "NVIDIA A100-SXM4-80GB", "plugins": ["slots"]}},
            {"status": {"state": "Healthy", "holders": []}})


class Placing:
    """Must be created where 127.0.0.1 is the ring's: in a process that has entered ring.control."""

    def __init__(self, ring, say=lambda _: None):
        self.ring = ring
        self.say = say
        self.folder = ring.state.folder / "placing"
        self.folder.mkdir(exist_ok=True)
        self.kube = self.client()
        self.ports = {}
        self.scheduler_port = "tls"     # of `ports`: the replica of control that kube-scheduler calls

    def access(self, name):
        """A kubeconfig with that certificate of the ring."""
        files = [self.ring.certificates.file(file) for file in ("ca.crt", f"{name}.crt", f"{name}.key")]
        return kubeconfig(self.folder / f"{name}.kubeconfig", control_plane.SERVER, *files)

    def client(self):
        file = self.ring.certificates.file
        return Kube(network.API_PORT, file("ca.crt"), file("admin.crt"), file("admin.key"))

    def each(self, items, work, workers=8):
        """Calls work(client, item) for every item, on several threads."""
        clients = [self.client() for _ in range(workers)]

        def some(worker):
            for item in items[worker::workers]:
                work(clients[worker], item)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            list(pool.map(some, range(workers)))

    def kubectl(self, *arguments, **options):
        config = self.access("admin")
        return run([self.ring.binaries["kubectl"], "--kubeconfig", config, *arguments], **options)

    # --- what is installed -------------------------------------------------------------------------------------------

    def install(self):
        # An earlier scenario may have left the class that maps nvidia.com/gpu: kube-scheduler would look for claims'
        # devices.
        self.kubectl("delete", "--ignore-not-found", "-f", DEPLOY / "device-classes.yaml")
        self.kubectl("apply", "-f", DEPLOY / "crds", "-f", DEPLOY / "control/cluster.yaml",
                     "-f", DEPLOY / "control/control-rbac.yaml")
        wait_for("the GPU kind is served", 20, self.serves_gpus)

    def serves_gpus(self):
        try:
            return self.kube.list("GPU", None) is not None
        except ApiError:
            return False

    def uninstall(self):
        for name in (SCHEDULER, FOLLOWER, CONTROL):
            stop(self.ring.state, name, grace=3)
        self.clear_pods()
        for kind in ("GPU", "Node"):
            self.each([item["metadata"]["name"] for item in self.kube.list(kind, None, labelSelector=LABEL)],
                      lambda kube, name, k=kind: kube.delete(k, name))
        self.kubectl("delete", "--ignore-not-found", "-f", DEPLOY / "control/control-rbac.yaml",
                     "-f", DEPLOY / "control/cluster.yaml", "-f", DEPLOY / "crds", check=False)
        wait_for("the namespace gone", 60, lambda: self.kube.get("Namespace", carve.NAMESPACE) is None)

    @staticmethod
    def objects_of(index, cards):
        """A node's objects, each with the status that is written separately."""
        return [(node_object(index, cards), None), *(gpu_object(index, card) for card in range(cards))]

    @classmethod
    def make_node(cls, kube, index, cards):
        for object_, status in cls.objects_of(index, cards):
            kube.create(object_)
            if status:
                kube.patch(object_["kind"], object_["metadata"]["name"], status, None, "status")

    def make_nodes(self, nodes, cards):
        self.each(range(nodes), lambda kube, index: self.make_node(kube, index, cards))
        self.say(f"{nodes} nodes with {cards} cards each")

    def clear_pods(self):
        def gone(kube, name):
            kube.delete("Pod", name, grace=0)
        while names := [item["metadata"]["name"] for item in self.kube.list("Pod", labelSelector=LABEL)]:
            self.each(names, gone)

    # --- processes ---------------------------------------------------------------------------------------------------

    def spawn(self, name, command):
        return spawn(self.ring.state, name, command, self.ring.control)

    def start_control(self, follower=False):
        """`follower`: also a second replica, which does not lead; ports["follower"] is its TLS port."""
        token = self.kube.request("POST", self.kube.path("ServiceAccount", "carve-control", carve.NAMESPACE, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200}})["status"]["token"]
        config = kubeconfig(self.folder / "control.kubeconfig", control_plane.SERVER,
                            self.ring.certificates.file("ca.crt"), token=token)
        # A control that is started again has the same ports: the scheduler knows them.
        self.ports = self.ports or {name: free_port() for name in ("tls", "plain", "follower", "follower-plain")}
        self.replica(CONTROL, config, "tls", "plain")
        wait_for("control leads and is ready", 60, lambda: {"carve_control_ready 1", "carve_control_leader 1"}
                 <= set(self.metrics().splitlines()))
        if follower:
            self.replica(FOLLOWER, config, "follower", "follower-plain")
            wait_for("a second replica follows", 60, lambda: {"carve_control_ready 1", "carve_control_leader 0"}
                     <= set(self.metrics("follower-plain").splitlines()))
        self.say("control")

    def replica(self, name, config, tls, plain):
        address = f"127.0.0.1:{self.ports[tls]}"
        self.spawn(name, [
            self.ring.build / "bin" / "carve", "control", "--kubeconfig", config, "--namespace", carve.NAMESPACE,
            "--identity", name, "--advertise", address, "--listen", address,
            "--plain-listen", f"127.0.0.1:{self.ports[plain]}"])

    def metrics(self, port="plain"):
        done = run(["/usr/bin/env", "python3", "-c", "import sys, urllib.request as u;"
                    f"print(u.urlopen('http://127.0.0.1:{self.ports[port]}/metrics', timeout=5).read().decode())"],
                   check=False)
        return done.stdout

    def metric(self, line):
        """The value of that metric; None when it is missing."""
        found = re.search("^" + re.escape(line) + r" (\S+)$", self.metrics(), re.MULTILINE)
        return float(found.group(1)) if found else None

    def scheduler_certificates(self):
        """Writes the client certificate that control issued for its scheduler to files: (certificate, key,
        authority)."""
        data = wait_for("the scheduler's certificate", 30,
                        lambda: self.kube.secret("carve-scheduler-tls", carve.NAMESPACE))
        made = []
        for name in ("tls.crt", "tls.key", "ca.crt"):
            made.append(self.folder / f"scheduler-{name}")
            made[-1].write_bytes(data[name])
        return tuple(made)

    def start_scheduler(self, through=None, stock=False, limits=True, default=False, percentage=None,
                        whole_nodes=False):
        """Starts a kube-scheduler with the profile of deploy/control/scheduler. `through`: a plain address in front of
        control. `stock`: no extender, only defaults. `limits`: keep the API client's rate limits as deployed; else
        none. `default`: the configuration that scheduler/default gives the cluster's own scheduler, except for its
        name, which the ring's own scheduler has.
        `percentage`: another percentageOfNodesToScore; 0: kube-scheduler's own, which decreases with the number of
        nodes. `whole_nodes`: it sends Node objects instead of names (nodeCacheCapable: false)."""
        if default:
            config = (DEPLOY / "control/scheduler/default/kube-scheduler-config.yaml").read_text()
            config = config.replace("schedulerName: default-scheduler", "schedulerName: carve-scheduler")
            config = config.replace("clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf}", "clientConnection: {}")
        else:
            manifest = (DEPLOY / "control/scheduler/scheduler.yaml").read_text()
            text = re.search(r"  scheduler\.yaml: \|\n((?:    .*\n|\n)+)", manifest).group(1)
            config = "\n".join(line[4:] for line in text.splitlines())
        config = config.replace("leaderElect: true", "leaderElect: false")
        config = config.replace("clientConnection: {", f'clientConnection: {{kubeconfig: "{self.access("scheduler")}", ')
        if not limits:
            config = re.sub(r"qps: \d+, burst: \d+", "qps: -1, burst: 1", config)
        if stock:
            # Keep only the profile's name.
            config = re.sub(r"(- schedulerName: \S+\n)(?:  .*\n)+", r"\1", config[:config.index("\nextenders:") + 1])
        elif through:
            config = re.sub(r"urlPrefix: \S+", f"urlPrefix: {through}/scheduler", config)
            config = re.sub(r" *enableHTTPS: true\n *tlsConfig:\n(?: +\w+: \S+\n){4}", "", config)
        else:
            for key, file in zip(("certFile", "keyFile", "caFile"), self.scheduler_certificates()):
                config = re.sub(rf"{key}: \S+", f"{key}: {file}", config)
            config = re.sub(r"urlPrefix: \S+", f"urlPrefix: https://127.0.0.1:{self.ports[self.scheduler_port]}/scheduler",
                            config)
        if percentage is not None:
            config = re.sub(r" *percentageOfNodesToScore: .*\n", "", config)
            config = re.sub(r"(- schedulerName: \S+\n)", rf"\1  percentageOfNodesToScore: {percentage}\n", config)
        if whole_nodes:
            assert "nodeCacheCapable: true" in config
            config = config.replace("nodeCacheCapable: true", "nodeCacheCapable: false")
        path = self.folder / "scheduler.yaml"
        path.write_text(config)
        self.spawn(SCHEDULER, [self.ring.binaries["kube-scheduler"], f"--config={path}", "--secure-port=0",
                               "--feature-gates=OpportunisticBatching=false"])
        self.say("scheduler" + (" (stock)" if stock else ""))

    def cpu_of(self, name):
        """CPU seconds that the process has used so far."""
        fields = Path(f"/proc/{self.ring.state.pid(name)}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self, name):
        stop(self.ring.state, name, grace=5)
