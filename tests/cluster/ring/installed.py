"""Carve as a user installs it: the image imported on every node, then only `kubectl apply` of deploy/."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import carve, images, paths
from .kube import wait_for

DEPLOY = paths.REPOSITORY / "deploy"
SETTINGS = f"driver-root = {carve.LIBRARIES}\ndriver-mount = /run/nvidia-sim\n"     # what the simulated driver needs
WORKLOADS = ("carve-agent", "carve-arbiter")


class Installed(carve.Carve):
    """Agent and arbiter of one node, run by their DaemonSets. Tests use it like a Carve."""

    def __init__(self, ring, node):
        super().__init__(ring, node)
        self.kube = ring.kube()

    def pods_of(self, workload, node=None) -> list:
        """The living pods of a DaemonSet on this node."""
        return [pod for pod in self.kube.list("Pod", carve.NAMESPACE)
                if pod["metadata"]["name"].startswith(workload + "-") and "deletionTimestamp" not in pod["metadata"]
                and pod["spec"].get("nodeName") == (node or self.node.name)]

    def ready(self, workload) -> dict | None:
        """The workload's pod when it is Ready and the only one on its node; else None."""
        pods = self.pods_of(workload)
        if len(pods) != 1:
            return None
        good = any(c["type"] == "Ready" and c["status"] == "True" for c in pods[0]["status"].get("conditions", []))
        return pods[0] if good else None

    def wait_serving(self, seconds=90, plugins="dra") -> None:
        for workload in WORKLOADS:
            try:
                wait_for(f"{workload} ready on {self.node.name}", seconds, lambda w=workload: self.ready(w))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.describe(workload)}") from None
        if "dra" in plugins:
            wait_for("ResourceSlices", 30, self.published)
        if "slots" in plugins:
            try:
                wait_for(f"slots on {self.node.name}", 90, lambda: int(self.kube.get("Node", self.node.name)["status"][
                    "allocatable"].get("elasticgpu.io/slot", 0)) > 0)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.describe('carve-agent')}") from None

    def describe(self, workload) -> str:
        """For a person to read: states, events and the end of the log."""
        return self._describe(workload, self.pods_of(workload))

    def describe_all(self, workload) -> str:
        """The same for its pods on all nodes."""
        return self._describe(workload, [pod for pod in self.kube.list("Pod", carve.NAMESPACE)
                                         if pod["metadata"]["name"].startswith(workload + "-")])

    def _describe(self, workload, pods) -> str:
        lines = []
        for pod in pods:
            name = pod["metadata"]["name"]
            lines.append(f"{name}: {json.dumps(pod['status'].get('containerStatuses', pod['status']))}")
            lines += [f"  {t} {r}: {m}" for t, r, m in self.kube.events_of(pod)]
            try:
                lines += self.kube.logs(name, namespace=carve.NAMESPACE).splitlines()[-20:]
            except Exception as error:      # a missing log is reported, too
                lines.append(str(error))
        return "\n".join(lines) or f"no pod of {workload}"


def make_image(build, target, name=None) -> str:
    """Builds the image of a build with deploy/image. Returns its name."""
    done = subprocess.run([sys.executable, DEPLOY / "image", "--build", build, "--output", target, "--level", "1",
                           *(["--name", name] if name else [])], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"deploy/image: {done.stderr}")
    return done.stdout.split()[0]


def marked_build(ring, folder) -> Path:
    """Copies the files of the ring's build that make_image() reads, and adds a section to carve-hook. So libcarve gets
    a folder of its own on the node (LibraryStore hashes all three files), and no process outside this ring uses it."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in ("bin/carve", "preload/libcarve-cuda.so", "preload/libcarve-nvml.so", "preload/carve-hook"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ring.build / file, folder / file)
    mark = folder / "mark"
    mark.write_text(str(folder))
    hook = folder / "preload/carve-hook"
    subprocess.run(["objcopy", "--add-section", f".carve.mark={mark}", hook, hook], check=True)
    return folder


def next_images(ring, folder) -> tuple:
    """Imports the next release's images (tests/next) on every node. Returns (agent's image, arbiter's image)."""
    made = []
    for name, program in (("carve", "carve"), ("carve-arbiter", "carve-arbiter-next")):
        build = folder / f"next-{name}"
        shutil.rmtree(build, ignore_errors=True)
        for file, source in (("bin/carve", f"bin/{program}"), ("preload/carve-hook", "preload/carve-hook"),
                             ("preload/libcarve-cuda.so", "preload/libcarve-cuda-next.so"),
                             ("preload/libcarve-nvml.so", "preload/libcarve-nvml-next.so")):
            (build / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ring.build / source, build / file)
        archive = folder / f"next-{name}.tar"
        made.append(make_image(build, archive, f"elasticgpu.io/{name}:next"))
        shutil.rmtree(build)
        for node in ring.nodes:
            node.import_images([archive])
    return tuple(made)


def install(ring, archive, plugins="dra") -> list:
    """Imports the image on every node and applies deploy/crds/ and deploy/. Returns the Installed of each node,
    serving."""
    for node in ring.nodes:
        node.import_images([archive])
    ring.kubectl("apply", "-f", DEPLOY / "agent-rbac.yaml")
    ring.kube().apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"carve.conf": SETTINGS},
                       "metadata": {"name": "carve-agent", "namespace": carve.NAMESPACE}})
    if plugins != "dra":
        ring.kube().apply({"apiVersion": "v1", "kind": "ConfigMap",
                           "data": {"cluster.conf": f"plugins = {plugins}\ndialects.nvidia = dra\n"},
                           "metadata": {"name": "carve-cluster", "namespace": carve.NAMESPACE}})
    ring.kubectl("apply", "-f", DEPLOY / "crds", "-f", DEPLOY)
    made = [Installed(ring, node) for node in ring.nodes]
    for one in made:
        one.wait_serving(plugins=plugins)
    return made


SCHEDULER_IMAGE = "local.test/kube-scheduler:1"


def scheduler_image(ring) -> None:
    """Imports the stock kube-scheduler as an image, as the registry of a control plane has it."""
    folder = ring.state.folder / "images"
    root, archive = folder / "kube-scheduler", folder / "kube-scheduler.tar"
    if not archive.exists():
        (root / "usr/local/bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        shutil.copy(ring.binaries["kube-scheduler"], root / "usr/local/bin/kube-scheduler")
        images.oci_archive.write(root, SCHEDULER_IMAGE, archive)
        shutil.rmtree(root)
    for node in ring.nodes:
        node.import_images([archive])


def install_control(ring, archive, replicas=2, own_scheduler=True, chart=False, plugins="slots", settings=None) -> list:
    """Installs all of deploy/ with control, by deploy/control/README.md: with a scheduler of its own, or with the
    cluster's scheduler configured (scheduler/default/README.md); or what the chart renders. `settings`: lines of
    cluster.conf that differ from the bundle's. Returns the Installed of each node, with slots served and control and
    scheduler Ready."""
    if chart:
        apply_chart(ring, archive, own_scheduler)
    else:
        apply_control(ring, archive, own_scheduler, {"plugins": plugins, **(settings or {})})
    return wait_control(ring, replicas, own_scheduler)


# The order in which Helm installs the kinds on which others depend; the rest follows before the webhooks.
#   source  helm.sh/helm/v3 pkg/releaseutil/kind_sorter.go, InstallOrder
FIRST = ("Namespace", "ServiceAccount", "Secret", "ConfigMap", "CustomResourceDefinition", "ClusterRole",
         "ClusterRoleBinding", "Role", "RoleBinding", "Service", "DaemonSet", "Deployment")
LAST = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def values(own_scheduler=True) -> list:
    """The chart's settings on a ring, as after --set."""
    own = [f"scheduler.image={SCHEDULER_IMAGE}"] if own_scheduler else ["scheduler.mode=default", "dialects.hami=true"]
    return [*own, f"agent.settings.driver-root={carve.LIBRARIES}", "agent.settings.driver-mount=/run/nvidia-sim"]


def helm(ring, verb, *words) -> str:
    """Runs Helm itself (CARVE_SOAK=1 builds it) on the release `carve`. Returns its output."""
    own = {f"HELM_{what}_HOME": str(ring.state.folder / "helm" / what.lower()) for what in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run([ring.binaries["helm"], verb, "carve", *map(str, words)], text=True, capture_output=True,
                          check=False, env={**os.environ, **own, "KUBECONFIG": str(ring.kubeconfig)})
    if done.returncode != 0:
        raise RuntimeError(f"helm {verb}: {done.stdout}{done.stderr}")
    return done.stdout


def helm_sets(*settings) -> list:
    """The chart and its settings as arguments of helm."""
    return [DEPLOY / "chart", *(word for setting in settings for word in ("--set", setting))]


def rendered(ring, own_scheduler=True) -> list:
    """The objects that `helm template` renders from deploy/chart, by Helm's own packages (modules/helm), in Helm's
    order."""
    done = subprocess.run([ring.binaries["ring-helm"], "template", DEPLOY / "chart", ring.kube().version(),
                           *values(own_scheduler)], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ring-helm: {done.stderr}")

    def rank(one):
        kind = one["kind"]
        return FIRST.index(kind) if kind in FIRST else len(FIRST) + (kind in LAST), kind
    return sorted(json.loads(done.stdout), key=rank)


def apply_chart(ring, archive, own_scheduler=True) -> None:
    """`helm install carve deploy/chart`; where Helm is not built, applies the same objects in the same order. Does not
    wait."""
    for node in ring.nodes:
        node.import_images([archive])
    if own_scheduler:
        scheduler_image(ring)
    if "helm" in ring.binaries:
        helm(ring, "install", *helm_sets(*values(own_scheduler)))
        return
    made = rendered(ring, own_scheduler)
    namespace = [one for one in made if one["kind"] == "Namespace"]
    for part in (namespace, [one for one in made if one not in namespace]):
        ring.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": part}))


def apply_control(ring, archive, own_scheduler=True, settings=None) -> None:
    """Imports the images and applies the manifests, with other values for some lines of cluster.conf. Does not wait."""
    for node in ring.nodes:
        node.import_images([archive])
    text = (DEPLOY / "control/cluster.yaml").read_text()
    own = {} if own_scheduler else {"scheduler.name": "default-scheduler", "dialects.hami": "on"}
    for key, value in {**own, **(settings or {})}.items():
        text, found = re.subn(rf"^    {re.escape(key)} = .*$", f"    {key} = {value}", text, flags=re.MULTILINE)
        if found != 1:
            raise RuntimeError(f"deploy/control/cluster.yaml has {found} lines of {key}")
    ring.kubectl("apply", "-f", "-", input=text)
    ring.kube().apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"carve.conf": SETTINGS},
                       "metadata": {"name": "carve-agent", "namespace": carve.NAMESPACE}})
    files = [path for path in sorted((DEPLOY / "control").glob("*.yaml")) if path.name != "cluster.yaml"]
    ring.kubectl("apply", "-f", DEPLOY / "crds", "-f", DEPLOY, *[word for path in files for word in ("-f", path)])
    if own_scheduler:
        scheduler_image(ring)
        text = (DEPLOY / "control/scheduler/scheduler.yaml").read_text()
        ring.kubectl("apply", "-f", DEPLOY / "control/scheduler/scheduler-rbac.yaml")
        ring.kubectl("apply", "-f", "-", input=text.replace("image: IMAGE", f"image: {SCHEDULER_IMAGE}"))


def rollout(ring, what, check=True):
    """Waits until a workload of Carve ("deployment/NAME") is rolled out. Its time ends a wait that hangs."""
    return ring.kubectl("-n", carve.NAMESPACE, "rollout", "status", what, "--timeout=300s", check=check)


def wait_control(ring, replicas=2, own_scheduler=True) -> list:
    """Waits until all applied workloads serve. Returns the Installed of each node."""
    workloads = ("carve-control", "carve-scheduler") if own_scheduler else ("carve-control",)
    for name in workloads if replicas != 2 else ():
        ring.kubectl("-n", carve.NAMESPACE, "scale", f"deployment/{name}", f"--replicas={replicas}")
    made = [Installed(ring, node) for node in ring.nodes]
    for one in made:
        one.wait_serving(plugins="slots")
    for name in workloads:
        done = rollout(ring, f"deployment/{name}", check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {done.stdout}{done.stderr}\n" + made[0].describe_all(name))
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        wait_for(f"the {kind} knows control's authority", 20, lambda k=kind: all(
            hook["clientConfig"].get("caBundle") for hook in ring.kube().get(k, "carve-admission")["webhooks"]))
    if not own_scheduler:
        configure_default_scheduler(ring)
    return made


# Set where the scenarios of a ring share one installation: installing and uninstalling takes about 45 s.
SHARED = bool(os.environ.get("CARVE_RING_SHARED"))


def _marker(ring):
    return ring.state.folder / "shared-installation"


def shared(ring, plugins) -> list:
    """The installation that the scenarios of a ring share, serving; the first scenario installs it. An installation
    with other settings, or one that a failed scenario left (spoil()), is uninstalled first."""
    marker = _marker(ring)
    if marker.exists() and marker.read_text() == plugins:
        return wait_control(ring)
    marker.unlink(missing_ok=True)
    if ring.kube().get("Namespace", carve.NAMESPACE) is not None:
        uninstall_control(ring)
    archive = ring.state.folder / "images" / "carve.tar"
    make_image(ring.build, archive)
    made = install_control(ring, archive, plugins=plugins)
    marker.write_text(plugins)
    return made


def spoil(ring) -> None:
    """After a failed scenario: the next one reinstalls Carve."""
    _marker(ring).unlink(missing_ok=True)


FILES = "/var/lib/carve-scheduler"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def configure_default_scheduler(ring) -> None:
    """The ring's own kube-scheduler runs on no node. So n1 is labelled as the control plane's, and the files are read
    there."""
    default = DEPLOY / "control/scheduler/default"
    ring.kubectl("label", "--overwrite", "node", "n1", f"{CONTROL_PLANE}=")
    ring.kubectl("apply", "-f", default / "files.yaml")
    seen = ring.node(1).outside(FILES)
    wait_for("the scheduler's files", 90, lambda: all((seen / name).exists() for name in ("tls.crt", "tls.key", "ca.crt")))
    address = ring.kube().get("Service", "carve-control", carve.NAMESPACE)["spec"]["clusterIP"]
    text = (default / "kube-scheduler-config.yaml").read_text()
    extra = dict(re.findall(r'- \{name: (HTTP2_\w+), value: "(\d+)"\}', (default / "README.md").read_text()))
    if len(extra) != 2:
        raise RuntimeError("scheduler/default/README.md must name two HTTP2_ variables")
    ring.restart_scheduler(text.replace("ADDRESS", address).replace(FILES, str(seen)), extra)


def restore_default_scheduler(ring) -> None:
    ring.restart_scheduler()
    ring.kubectl("delete", "--ignore-not-found", "-f", DEPLOY / "control/scheduler/default/files.yaml")
    ring.kubectl("label", "node", "n1", f"{CONTROL_PLANE}-", check=False)


def uninstall_control(ring, chart=False, own_scheduler=True) -> None:
    """Uninstalls everything by the commands of deploy/control/README.md and waits until the namespace is gone. `chart`:
    the last command is `helm uninstall`, which deletes only what the chart rendered (with or without its own
    scheduler)."""
    control = DEPLOY / "control"
    delete = ("delete", "--ignore-not-found")
    if ring.kube().get("Namespace", carve.NAMESPACE) is not None:
        ring.kubectl(*delete, "-f", control / "webhook.yaml", "-f", control / "control.yaml",
                     "-f", control / "scheduler/scheduler.yaml", "-f", DEPLOY / "agent.yaml", "-f", DEPLOY / "arbiter.yaml")
        ring.kubectl("apply", "-f", DEPLOY / "jobs/down.yaml")
        done = rollout(ring, "daemonset/carve-down", check=False)
        if done.returncode != 0:
            raise RuntimeError(f"carve-down: {done.stdout}{done.stderr}\n"
                               + Installed(ring, ring.node(1)).describe_all("carve-down"))
        ring.kubectl(*delete, "-f", DEPLOY / "jobs/down.yaml")
    if chart and "helm" in ring.binaries:
        helm(ring, "uninstall", "--ignore-not-found")
    elif chart:
        gone = {"apiVersion": "v1", "kind": "List", "items": rendered(ring, own_scheduler)[::-1]}
        ring.kubectl(*delete, "-f", "-", input=json.dumps(gone), check=False)
    else:
        ring.kubectl(*delete, "-f", control / "scheduler", "-f", control, "-f", DEPLOY, "-f", DEPLOY / "crds", check=False)
    _wait_no_namespace(ring)


def uninstall(ring) -> None:
    """`kubectl delete -f deploy/ -f deploy/crds/`; waits until the pods are gone. Files on the nodes stay."""
    ring.kubectl("delete", "--ignore-not-found", "-f", DEPLOY, "-f", DEPLOY / "crds", check=False)
    _wait_no_namespace(ring)


def _wait_no_namespace(ring) -> None:
    kube = ring.kube()
    until = time.monotonic() + 60
    while kube.get("Namespace", carve.NAMESPACE) is not None:
        if time.monotonic() > until:
            raise RuntimeError("Carve's namespace is not deleted")
        time.sleep(0.2)
