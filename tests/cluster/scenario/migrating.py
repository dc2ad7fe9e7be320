"""The steps of docs/migrating-from-*.md, there and back, with the commands of the pages: one of two nodes moves from
another device plugin to Carve while the other stays, and returns. The plugin here only serves the same resource name:
it is neither gpushare's nor NVIDIA's nor HAMi's. The test plays the other effects of HAMi on pods and nodes (Hami).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import binder, carve, images, installed, paths  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, wait_for  # noqa: E402

GIB = 1 << 30
NODE, STAYS, SPACE = "n2", "n1", "team"
COUNT = 7                                           # devices of the plugin; no node has as many cards
PLUGIN = "local.test/ring-plugin:1"
MOVED = [{"key": "elasticgpu.io/moved", "operator": "Exists"}]
# The commands of the pages that need the host's init system; the test replaces them.
OF_THE_HOST = ("systemctl stop kubelet; rm /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint; "
               "systemctl start kubelet")


def blocks(page, heading) -> list:
    """The commands of each fenced block below a heading: [[line]]. Comments on separate lines are left out."""
    text = (paths.REPOSITORY / "docs" / page).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [[line.strip() for line in block.strip().splitlines() if line.strip() and not line.strip().startswith("#")]
            for block in re.findall(r"(?ms)^ *```\n(.*?)^ *```$", text)]


class Move(RingTest):
    page = resource = None
    elsewhere = {}          # labels that keep the plugin's DaemonSet off a node
    labels = {}             # labels of its nodes
    amount = 1              # that a pod requests; two of them run on one node: at most COUNT / 2
    onto = {"nodeName": NODE}       # how a pod of the other system is directed to that node

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="carve-move-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shutil.copytree(installed.DEPLOY, self.folder / "deploy")
        (self.folder / "bin").mkdir()
        for name, program in (("kubectl", self.ring.binaries["kubectl"]), ("carve", self.ring.build / "bin/carve")):
            (self.folder / "bin" / name).symlink_to(program)
        self.environment = {**os.environ, "KUBECONFIG": str(self.ring.kubeconfig),
                            "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        archive = self.ring.state.folder / "images" / "carve.tar"
        installed.make_image(self.ring.build, archive)
        for node in self.ring.nodes:
            node.import_images([archive])
        self.addCleanup(self.take_away)
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        self.another_plugin()

    def take_away(self):
        for name in ("before", "moved", "after"):
            self.kube.delete("Deployment", name, SPACE)
        wait_for("their pods are gone", 60, lambda: not self.kube.list("Pod", SPACE), every=0.5)
        installed.uninstall_control(self.ring)
        self.kube.delete("DaemonSet", "plugin")
        wait_for("the other plugin is gone", 60, lambda: not self.kube.list("Pod"), every=0.5)
        for node in self.ring.nodes:
            node.forget_device_plugins()       # or the kubelet keeps the name for five minutes
        for node in (NODE, STAYS):
            words = [key + "-" for key in ("elasticgpu.io/serve", *self.labels, *self.elsewhere)]
            self.ring.kubectl("label", "node", node, *words, check=False)
            self.ring.kubectl("taint", "node", node, "elasticgpu.io/moved-", check=False)
            self.ring.kubectl("uncordon", node, check=False)

    def tearDown(self):
        outcome = self._outcome.result
        if outcome.failures or outcome.errors:
            one = installed.Installed(self.ring, self.ring.node(2))
            print("\n".join(one.describe_all(name) for name in ("carve-agent", "carve-control", "carve-down")), flush=True)
            print(self.ring.kubectl("get", "pods", "-A", "-o", "wide").stdout, flush=True)

    # --- another plugin
    # ------------------------------------------------------------------------------------------------

    def another_plugin(self):
        """Runs as a DaemonSet on both nodes."""
        root, archive = self.folder / "plugin", self.folder / "plugin.tar"
        root.mkdir()
        shutil.copy(self.ring.binaries["ring-plugin"], root / "ring-plugin")
        images.oci_archive.write(root, PLUGIN, archive, ["/ring-plugin"])
        for node in self.ring.nodes:
            node.import_images([archive])
            node.outside("/run/cdi/ring.json").write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "ring.test/thing",
                "devices": [{"name": "one", "containerEdits": {"env": ["RING_THING=one"]}}]}))
            self.addCleanup(node.outside("/run/cdi/ring.json").unlink)
            if self.labels:
                self.ring.kubectl("label", "node", node.name, *(f"{key}={value}" for key, value in self.labels.items()))
        wanted = [{"key": key, "operator": "NotIn", "values": [value]} for key, value in self.elsewhere.items()] + [
            {"key": key, "operator": "In", "values": [value]} for key, value in self.labels.items()]
        folder = "/var/lib/kubelet/device-plugins"
        self.create({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "plugin", "namespace": "default"},
                     "spec": {"selector": {"matchLabels": {"app": "plugin"}}, "template": {
                         "metadata": {"labels": {"app": "plugin"}}, "spec": {
                             "terminationGracePeriodSeconds": 1, "tolerations": [{"operator": "Exists"}],
                             **({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                                 "nodeSelectorTerms": [{"matchExpressions": wanted}]}}}} if wanted else {}),
                             "containers": [{"name": "main", "image": PLUGIN, "imagePullPolicy": "Never",
                                             "args": [self.resource, str(COUNT), "ring.test/thing=one"],
                                             "volumeMounts": [{"name": "sockets", "mountPath": folder}]}],
                             "volumes": [{"name": "sockets", "hostPath": {"path": folder}}]}}}})
        for node in (NODE, STAYS):
            wait_for(f"the plugin's devices on {node}", 60, lambda n=node: self.shows(n, self.resource) == COUNT)

    def shows(self, node, name):
        return int(self.kube.get("Node", node)["status"]["allocatable"].get(name, 0))

    # --- pods
    # ----------------------------------------------------------------------------------------------------------

    def limits(self, name):
        """What a pod requests: by the name that both systems know."""
        del name
        return {self.resource: str(self.amount)}

    def deployment(self, name, replicas=1, **spec):
        self.kube.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": SPACE},
                          "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
                              "metadata": {"labels": {"app": name}}, "spec": {
                                  "terminationGracePeriodSeconds": 1, **spec, "containers": [{
                                      "name": "main", "image": images.PROGRAMS, "imagePullPolicy": "Never",
                                      "command": ["sh", "-c", "echo RING_THING=$RING_THING; exec ring-look hold 3600"],
                                      "resources": {"limits": self.limits(name)}}]}}}})
        return self.running(name, replicas)

    def running(self, name, replicas):
        """Waits until the deployment's pods are Ready and returns them; terminating pods are not counted."""
        def ready():
            pods = [pod for pod in self.kube.list("Pod", SPACE) if pod["metadata"]["labels"]["app"] == name
                    and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] != "Failed"]
            good = [pod for pod in pods for c in pod["status"].get("conditions", [])
                    if (c["type"], c["status"]) == ("Ready", "True")]
            return good if len(good) == len(pods) == replicas else None
        try:
            return wait_for(f"{replicas} pods of {name}", 120, ready, every=0.5)
        except AssertionError as error:
            pods = self.kube.list("Pod", SPACE)
            raise AssertionError(f"{error}\n" + "\n".join(
                f"{pod['metadata']['name']}: {json.dumps(pod['status'])} {self.kube.events_of(pod)}" for pod in pods)) from None

    def log_of(self, pod) -> list:
        return wait_for("two lines of its log", 20, lambda: (lambda lines: lines if len(lines) > 1 else None)(
            self.kube.logs(pod["metadata"]["name"], namespace=SPACE).strip().splitlines()))

    # --- the pages
    # -----------------------------------------------------------------------------------------------------

    def run_block(self, lines, until):
        """Runs the lines one after the other, as a person does. Before a line with "# until" it waits for `until`."""
        for line in lines:
            line = line.replace("NODE", NODE).replace("NAMESPACE", SPACE)
            if line == OF_THE_HOST:
                self.ring.node(2).forget_device_plugins()
                continue
            self.assertNotIn("systemctl", line)
            if "# until" in line:
                wait_for(line, 120, until, every=0.5)
            done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=self.environment, text=True,
                                  capture_output=True, check=False, timeout=200)
            self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
            print(f"  {line.partition('  ')[0]}", flush=True)

    def images_are_set(self):
        """Sets the images before the first apply, as the page says, and what the simulated driver needs."""
        scheduler = self.folder / "deploy/control/scheduler/scheduler.yaml"
        scheduler.write_text(scheduler.read_text().replace("image: IMAGE", f"image: {installed.SCHEDULER_IMAGE}"))
        installed.scheduler_image(self.ring)
        self.ring.kubectl("create", "namespace", carve.NAMESPACE)
        self.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"carve.conf": installed.SETTINGS},
                         "metadata": {"name": "carve-agent", "namespace": carve.NAMESPACE}})

    def of_carve(self, node) -> list:
        return [pod["metadata"]["name"] for pod in self.kube.list("Pod", carve.NAMESPACE)
                if pod["spec"].get("nodeName") == node and pod["metadata"]["name"].startswith(("carve-agent", "carve-arb"))]

    def there_and_back(self):
        install, move, come = blocks(self.page, "Moving to Carve")
        back, = blocks(self.page, "Moving back")[-1:]
        self.images_are_set()
        where = {pod["spec"]["nodeName"] for pod in self.deployment("before", 2)}
        self.assertEqual(where, {NODE, STAYS})
        self.run_block(install, None)
        for name in ("carve-control", "carve-scheduler"):
            installed.rollout(self.ring, f"deployment/{name}")
        self.assertEqual([self.of_carve(node) for node in (NODE, STAYS)], [[], []], "Carve must be on no node yet")
        self.running("before", 2)

        self.run_block(move, lambda: self.shows(NODE, binder.SLOT) > 0 and self.shows(NODE, self.resource) == self.total())
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.running("before", 2)}, {STAYS})
        self.assertEqual((self.shows(STAYS, self.resource), self.of_carve(STAYS)), (COUNT, []))
        self.run_block(come, None)
        pod, = self.deployment("moved", tolerations=MOVED)
        self.assertEqual(pod["spec"]["nodeName"], NODE)
        self.assertIn(binder.RECORD, pod["metadata"]["annotations"])
        thing, look = self.log_of(pod)[-2:]
        self.assertEqual(thing, "RING_THING=", "the other plugin's device must be absent")
        self.assert_given(json.loads(look))
        self.running("before", 2)

        self.kube.patch("Deployment", "moved", {"spec": {"replicas": 0}}, SPACE)
        self.run_block(back, lambda: self.shows(NODE, self.resource) == COUNT)
        self.assertEqual(self.of_carve(NODE), [])
        self.assertEqual([gpu["metadata"]["name"] for gpu in self.kube.list("GPU", None)], [],
                         "Carve must have no card any more")
        # An agent's leftover GPU object must not make the pod Carve's.
        self.create({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": f"{NODE}.left"},
                     "spec": {"index": 0, "uuid": "GPU-left", "memory": 16 * GIB, "nodeName": NODE, "plugins": ["slots"]}})
        pod, = self.deployment("after", **self.onto)
        time.sleep(1)       # three polls of control
        pod = self.kube.get("Pod", pod["metadata"]["name"], SPACE)
        self.assertNotIn(binder.RECORD, pod["metadata"].get("annotations", {}))
        self.assertEqual(self.log_of(pod)[-2], "RING_THING=one")
        self.assertEqual(list(self.ring.node(2).outside("/var/lib").glob("carve*")), [])
        self.running("before", 2)

    def total(self):
        """The node's total in this resource name, computed from Carve's cards."""
        raise NotImplementedError

    def assert_given(self, look):
        raise NotImplementedError


class ThereAndBack:
    """The test of a page, for the classes that have one. The classes above them have none of their own."""
    def test_there_and_back(self):
        self.there_and_back()


class FromGpushare(ThereAndBack, Move):
    page, resource = "migrating-from-gpushare.md", "aliyun.com/gpu-mem"
    labels = {"gpushare": "true"}
    amount = 3

    def total(self):
        gpus = [gpu for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == NODE]
        return sum(gpu["spec"]["memory"] // GIB for gpu in gpus) or -1

    def assert_given(self, look):
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [3 * GIB])


class FromNvidia(ThereAndBack, Move):
    page, resource = "migrating-from-nvidia-device-plugin.md", "nvidia.com/gpu"
    elsewhere = {"nvidia.com/gpu.deploy.device-plugin": "false"}

    def total(self):
        return len([gpu for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == NODE]) or -1

    def assert_given(self, look):
        card, = look["cuda"]["cards"]
        self.assertGreater(card["memory"], 70 * GIB)


class FromOthers(Move):
    """docs/migrating-from-other-systems.md. Each subclass is a row of its table."""
    page = "migrating-from-other-systems.md"
    unit = GIB              # of the total that the node shows; 0: `parts` per card
    parts = 0
    setting = None          # (before, after) in cluster.yaml
    asked = {}              # what the moved pod requests
    given = 0               # bytes that it must see

    def limits(self, name):
        return self.asked if name == "moved" and self.asked else super().limits(name)

    def images_are_set(self):
        super().images_are_set()
        if self.setting:
            file = self.folder / "deploy/control/cluster.yaml"
            self.assertIn(self.setting[0], file.read_text())
            file.write_text(file.read_text().replace(*self.setting))

    def run_block(self, lines, until):
        # The plugin of this test is not in kube-system.
        super().run_block([line.replace("-n kube-system patch", "-n default patch").replace("DAEMONSET", "plugin")
                           for line in lines], until)

    def take_away(self):
        super().take_away()
        for node in (NODE, STAYS):
            self.ring.kubectl("label", "node", node, "elasticgpu.io/moved-", check=False)

    def total(self):
        gpus = [gpu for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == NODE]
        return (self.parts * len(gpus) if self.parts else sum(gpu["spec"]["memory"] // self.unit for gpu in gpus)) or -1

    def assert_given(self, look):
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [self.given])


class FromCgpu(ThereAndBack, FromOthers):
    resource, amount, given = "aliyun.com/gpu-mem", 3, 3 * GIB
    asked = {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-core.percentage": "10"}
    setting = "dialects.cgpu-policy = 3", "dialects.cgpu-policy = 1"


class FromQgpu(ThereAndBack, FromOthers):
    resource, amount, given = "tke.cloud.tencent.com/qgpu-memory", 3, 4 * GIB
    asked = {"tke.cloud.tencent.com/qgpu-memory": "4", "tke.cloud.tencent.com/qgpu-core": "20"}
    setting = "dialects.qgpu-policy = best-effort", "dialects.qgpu-policy = fs"


class FromVcuda(ThereAndBack, FromOthers):
    resource, amount, given, unit = "tencent.com/vcuda-memory", 3, 3 * GIB, 256 << 20
    asked = {"tencent.com/vcuda-memory": "12", "tencent.com/vcuda-core": "10"}


class FromRancher(ThereAndBack, FromOthers):
    resource, amount, given = "rancher.io/gpu-mem", 3, 3 * GIB


class FromDeepomatic(ThereAndBack, FromOthers):
    resource, amount, parts = "deepomatic.com/shared-gpu", 1, 4
    setting = "dialects.deepomatic-containers = 0", "dialects.deepomatic-containers = 4"

    def assert_given(self, look):
        memory, = {gpu["spec"]["memory"] for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == NODE}
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [memory // 4])


class FromVolcano(ThereAndBack, FromOthers):
    resource, amount, given = "volcano.sh/gpu-memory", 3, 3 * GIB
    setting = "dialects.volcano-factor = 1", "dialects.volcano-factor = 1024"


class FromElastic(ThereAndBack, FromOthers):
    resource, amount, given, unit = "elasticgpu.io/gpu-memory", 3, 3 * GIB, 1 << 20
    asked = {"elasticgpu.io/gpu-memory": "3072", "elasticgpu.io/gpu-core": "10"}


class Hami(threading.Thread):
    """The effects of HAMi on nodes and pods apart from its plugin, as far as a migration meets them: its plugin
    annotates a node, its webhook gives pods with its resource to its own scheduler, and that scheduler binds them and
    records their cards. Here the webhook is a policy with the same selectors, and a poll every 0.2 s does the rest."""
    NAME, REGISTER = "hami-scheduler", "hami.io/node-nvidia-register"
    UNLESS = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}
    ASKS = "object.spec.containers.exists(c, 'nvidia.com/gpu' in c.?resources.?limits.orValue({}))"
    SETS = f"Object{{spec: Object.spec{{schedulerName: '{NAME}'}}}}"

    def __init__(self, kube):
        super().__init__(daemon=True)
        self.kube, self.end, self.failed = kube, threading.Event(), None

    def webhook(self) -> list:
        version = "admissionregistration.k8s.io/v1"
        return [{"apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "hami-webhook"}, "spec": {
                    "failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": {
                        "namespaceSelector": self.UNLESS, "objectSelector": self.UNLESS, "resourceRules": [{
                            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
                    "matchConditions": [{"name": "asks", "expression": self.ASKS + " && object.spec.?schedulerName.orValue('') "
                                                                                 "in ['', 'default-scheduler']"}],
                    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": self.SETS}}]}},
                {"apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "hami-webhook"},
                 "spec": {"policyName": "hami-webhook"}}]

    def run(self):
        while not self.end.wait(0.2):
            try:
                nodes = {node["metadata"]["name"]: node for node in self.kube.list("Node", None)}
                self.register(nodes)
                for pod in self.kube.list("Pod", SPACE):
                    if pod["spec"].get("schedulerName") == self.NAME and not pod["spec"].get("nodeName"):
                        self.bind(pod, nodes)
            except ApiError as error:
                if error.status not in (404, 409):      # the object was deleted or changed in the meantime
                    self.failed = error
                    return

    def register(self, nodes):
        """What its plugin does where it runs: annotates the node."""
        here = {pod["spec"].get("nodeName") for pod in self.kube.list("Pod") if pod["metadata"].get("labels", {}).get(
            "app") == "plugin" and pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]}
        for name in here & set(nodes):
            if self.REGISTER not in nodes[name]["metadata"].get("annotations", {}):
                annotations = {self.REGISTER: json.dumps([{"id": "GPU-0", "count": COUNT, "devmem": 16384,
                                                           "devcore": 100}]),
                               "hami.io/node-handshake": "Requesting_2026-01-01 00:00:00"}
                self.kube.patch("Node", name, {"metadata": {"annotations": annotations}})

    def bind(self, pod, nodes):
        """Binds to a registered node that accepts new pods and matches the selector; of several the one with fewest
        pods."""
        wanted, taints = pod["spec"].get("nodeSelector", {}), lambda node: node["spec"].get("taints", [])
        fit = [name for name, node in nodes.items() if self.REGISTER in node["metadata"].get("annotations", {})
               and not node["spec"].get("unschedulable") and not any(one["effect"] == "NoSchedule" for one in taints(node))
               and wanted.items() <= node["metadata"]["labels"].items()]
        if not fit:
            return
        crowd = [one["spec"].get("nodeName") for one in self.kube.list("Pod", SPACE)]
        node, meta = min(fit, key=crowd.count), pod["metadata"]
        self.kube.request("POST", self.kube.path("Pod", meta["name"], SPACE, "binding"), {
            "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            "metadata": {"name": meta["name"], "namespace": SPACE, "annotations": {
                "hami.io/vgpu-node": node, "hami.io/bind-phase": "allocating",
                "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,3000,30:;"}}})


class FromHami(ThereAndBack, Move):
    page, resource = "migrating-from-hami.md", "nvidia.com/gpu"
    labels = {"gpu": "on"}
    onto = {"nodeSelector": {"kubernetes.io/hostname": NODE}}       # its webhook refuses a pod with nodeName
    THEIRS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}

    def limits(self, name):
        return self.THEIRS      # unchanged

    def another_plugin(self):
        super().another_plugin()
        self.hami = Hami(self.kube)
        for one in self.hami.webhook():
            self.create(one)
        wait_for("HAMi's webhook is in force", 30, lambda: self.admitted(self.THEIRS) == Hami.NAME, every=0.5)
        self.hami.start()
        self.addCleanup(self.forget_hami)

    def forget_hami(self):
        self.hami.end.set()
        self.hami.join()
        for node in (NODE, STAYS):
            self.ring.kubectl("annotate", "node", node, f"{Hami.REGISTER}-", "hami.io/node-handshake-", check=False)
        self.assertIsNone(self.hami.failed)

    def admitted(self, limits):
        """The scheduler's name of a pod with these limits, as it would be stored."""
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": SPACE}, "spec": {"containers": [
            {"name": "main", "image": images.PROGRAMS, "resources": {"limits": limits}}]}}
        return self.kube.request("POST", self.kube.path("Pod", None, SPACE, dryRun="All"), made)["spec"]["schedulerName"]

    def total(self):
        return 64 * len([gpu for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == NODE]) or -1

    def assert_given(self, look):
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [3000 << 20])
        self.assertEqual(self.admitted({"nvidia.com/gpu": "1"}), "carve-scheduler",
                         "HAMi's webhook must not change the pod")
        self.assertEqual(self.admitted(self.THEIRS), "carve-scheduler")


if __name__ == "__main__":
    main()
