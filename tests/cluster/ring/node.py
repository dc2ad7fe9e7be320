"""One node of the ring: its namespace, containerd, kubelet, the simulated driver, and hooks for tests.

Everything runs in the node's mount namespace (node_namespace.py) with default paths. From outside, the node's /var/lib
is <state>/<node>/var-lib.
"""
import contextlib
import json
import os
import sys
from pathlib import Path

from . import cgroups, cni, control_plane, images, network
from .certs import kubeconfig
from .process import Place, kill, run, spawn, stop, until_process

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
MAX_PODS = 250
# The kubelet's times that the ring shortens, and Kubernetes' defaults, as the kubelet prints them (k8s.io/kubernetes
# pkg/kubelet/apis/config/v1beta1/defaults.go). nodeStatusReportFrequency would follow nodeStatusUpdateFrequency, and a
# kubelet would write an unchanged status every 5 s.
SHORTENED = {"syncFrequency": "10s", "nodeStatusUpdateFrequency": "5s", "nodeStatusReportFrequency": "5m0s"}
DEFAULT_TIMING = {"syncFrequency": "1m0s", "nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m0s"}


class Node:
    def __init__(self, state, binaries, certificates, index: int, network_pid: int):
        self.state = state
        self.binaries = binaries
        self.certificates = certificates
        self.index = index
        self.name = f"n{index}"
        self.address = network.node_address(index)
        self.folder = state.folder / self.name
        self.network_pid = network_pid
        self.tracker = cgroups.Tracker(self.name + "-system")

    # --- the namespace -----------------------------------------------------------------------------------------

    def make_namespace(self) -> None:
        self.folder.mkdir(exist_ok=True)
        cgroup_root = cgroups.make_node_root(self.name)
        cni.configure(self.folder / "var-lib", network.pod_subnet(self.index))
        self._write_kubelet_files(cgroup_root)
        self._write_containerd_config()
        self.tracker.make()
        holder = spawn(self.state, f"{self.name}-namespace",
                       [sys.executable, Path(__file__).with_name("node_namespace.py"), self.folder],
                       Place(self.tracker, network_of=self.network_pid))
        until_process(self.state, f"{self.name}-namespace", f"mounts of node {self.name}", 20,
                      (self.folder / "mounted").exists)
        self.state.content["nodes"][self.name] = {"namespace": holder, "address": self.address, "index": self.index}
        self.state.save()

    @property
    def place(self) -> Place:
        holder = self.state.pid(f"{self.name}-namespace")
        if holder is None:
            raise RuntimeError(f"node {self.name} does not exist")
        return Place(self.tracker, network_of=self.network_pid, mounts_of=holder)

    def run(self, command, **options):
        """Runs a command on the node to its end."""
        return run(command, self.place, **options)

    def outside(self, path: str) -> Path:
        """A path of the node as this process sees it (through the root of the process that holds the namespace)."""
        return Path(f"/proc/{self.state.pid(f'{self.name}-namespace')}/root{path}")

    # --- containerd --------------------------------------------------------------------------------------------

    def _write_containerd_config(self) -> None:
        # Statistics every 10 s instead of every second, and no program for the loopback device: processors are scarce.
        restricted = not _may_raise_oom_score()
        (self.folder / "containerd.toml").write_text(f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = {str(restricted).lower()}
enable_cdi = true
stats_collect_period = "10s"
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{cni.PLUGINS}"]
conf_dir = "/var/lib/cni/net.d"
use_internal_loopback = true
[plugins."io.containerd.cri.v1.images"]
snapshotter = "{self._snapshotter()}"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{images.PAUSE}"
""")

    def _snapshotter(self) -> str:
        """overlayfs, unless the node's folder is itself on an overlay (a ring inside a container)."""
        kind = run(["stat", "-f", "-c", "%T", self.state.folder]).stdout.strip()
        return "native" if kind in ("overlayfs", "aufs") else "overlayfs"

    def start_containerd(self) -> None:
        path = f"{self.binaries['containerd'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        spawn(self.state, f"{self.name}-containerd",
              [self.binaries["containerd"], "--config", self.folder / "containerd.toml", "--log-level", "info"],
              self.place, {"PATH": path})

    def wait_containerd(self) -> None:
        ctr = [self.binaries["ctr"], "-a", CONTAINERD_SOCKET, "version"]
        until_process(self.state, f"{self.name}-containerd", f"containerd of {self.name}", 30,
                      lambda: self.run(ctr, check=False).returncode == 0)

    def stop_containerd(self) -> None:
        stop(self.state, f"{self.name}-containerd")

    def import_images(self, archives) -> None:
        for archive in archives:
            self.run([self.binaries["ctr"], "-a", CONTAINERD_SOCKET, "-n", "k8s.io", "images", "import", archive])

    # --- kubelet -----------------------------------------------------------------------------------------------

    def _write_kubelet_files(self, cgroup_root: str) -> None:
        file = self.certificates.file
        kubeconfig(self.folder / "kubelet.kubeconfig", control_plane.SERVER, file("ca.crt"),
                   file(f"{self.name}.crt"), file(f"{self.name}.key"))
        (self.folder / "manifests").mkdir(exist_ok=True)
        (self.folder / "kubelet.json").write_text(json.dumps({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.address, "healthzBindAddress": self.address,
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": str(file("ca.crt"))}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(file(f"{self.name}.crt")), "tlsPrivateKeyFile": str(file(f"{self.name}.key")),
            "cgroupDriver": "cgroupfs", "cgroupRoot": cgroup_root, "failCgroupV1": False, "failSwapOn": False,
            "enforceNodeAllocatable": ["pods"], "oomScoreAdj": 0, "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "64Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi",
                             "nodefs.inodesFree": "1000"},
            "containerRuntimeEndpoint": "unix://" + CONTAINERD_SOCKET, "staticPodPath": str(self.folder / "manifests"),
            "podLogsDir": "/var/log/pods", "maxPods": MAX_PODS, "resolvConf": "", "clusterDomain": network.CLUSTER_DOMAIN,
            "clusterDNS": [network.DNS_SERVICE],
            "serializeImagePulls": False, **SHORTENED, "imageMinimumGCAge": "24h",
            "imageGCHighThresholdPercent": 100, "shutdownGracePeriod": "0s", "runtimeRequestTimeout": "2m"}, indent=1))

    def start_kubelet(self) -> None:
        path = f"{self.binaries['containerd'].parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        spawn(self.state, f"{self.name}-kubelet", [
            self.binaries["kubelet"], "--config", self.folder / "kubelet.json",
            "--kubeconfig", self.folder / "kubelet.kubeconfig", "--hostname-override", self.name,
            "--node-ip", self.address, "--root-dir", "/var/lib/kubelet", "--v=2"], self.place, {"PATH": path})

    def stop_kubelet(self) -> None:
        stop(self.state, f"{self.name}-kubelet")

    @contextlib.contextmanager
    def kubelet_stopped(self):
        """The kubelet does not run; its containers do. It is started again however the block ends: without it, every
        later scenario on the ring would fail."""
        self.stop_kubelet()
        try:
            yield
        finally:
            self.start_kubelet()

    def forget_device_plugins(self) -> None:
        """Restarts the kubelet without its checkpoint, so that it knows only the device plugins that register again."""
        with self.kubelet_stopped():
            self.outside("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink(missing_ok=True)

    def restart_kubelet(self, default_timing: bool = False) -> None:
        """Restarts the kubelet with Kubernetes' default times, or with the ring's shorter ones. Pods go on."""
        path = self.folder / "kubelet.json"
        settings = {key: value for key, value in json.loads(path.read_text()).items() if key not in SHORTENED}
        path.write_text(json.dumps(settings if default_timing else {**settings, **SHORTENED}, indent=1))
        self.stop_kubelet()
        self.start_kubelet()

    # --- the simulated driver ------------------------------------------------------------------------------------

    def start_simulator(self, build: Path, profile: str) -> None:
        """Starts carve-simd of the build, with cards of this node's own; its libraries are in
        /var/lib/simulated-driver."""
        driver = self.folder / "var-lib" / "simulated-driver"
        driver.mkdir(exist_ok=True)
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            _replace(build / "sim" / "lib" / library, driver / library)
            link = driver / library[:-2]
            if not link.is_symlink():
                link.symlink_to(library)
        self.outside("/run/nvidia-sim").mkdir(exist_ok=True)
        spawn(self.state, f"{self.name}-simd", [build / "bin" / "carve-simd", "--profile", profile,
                                                "--instance", self.name], self.place)
        until_process(self.state, f"{self.name}-simd", f"simulated driver of {self.name}", 20,
                      self.outside("/run/nvidia-sim/socket").exists)

    # --- hooks -------------------------------------------------------------------------------------------------

    def start(self, name: str, command: list, environment=None) -> int:
        """Starts a process of a test or of Carve on the node. Its log is <node>-<name>.log."""
        return spawn(self.state, f"{self.name}-{name}", command, self.place, environment)

    def stop(self, name: str, grace: float = 20) -> None:
        stop(self.state, f"{self.name}-{name}", grace)

    def kill(self, name: str) -> None:
        kill(self.state, f"{self.name}-{name}")

    def pid(self, name: str):
        return self.state.pid(f"{self.name}-{name}")


def _replace(source: Path, target: Path) -> None:
    """Creates a new inode: a library that a process has mapped must not change under it."""
    import shutil
    unfinished = target.with_name(target.name + ".unfinished")
    shutil.copy(os.path.realpath(source), unfinished)
    unfinished.chmod(0o755)
    unfinished.rename(target)


def _may_raise_oom_score() -> bool:
    """Lowering oom_score_adj needs CAP_SYS_RESOURCE (bit 24)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 24 & 1)
    return False
