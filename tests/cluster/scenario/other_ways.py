"""Pods that are not created plainly from a manifest in one of the dialects: from a file on the node, bound by another
scheduler, with a container added later, copied from a page of the documentation, with nvidia.com/gpu served by another
system. Each has what its record says, or no card. Also the metrics, checked against Prometheus' conventions.
"""
import contextlib
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
import control  # noqa: E402
import exposition  # noqa: E402
from control import GIB, HOLD, NATIVE, asking, setUpModule  # noqa: E402, F401
from ring import binder, carve, images, installed, paths  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import in_soak, main, pod, wait_for  # noqa: E402

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
NOBODY = "nobodys-scheduler"


class OtherWays(control.ControlTest):
    def assert_no_card(self, name, container="main", variable=None):
        """The container runs and sees no card, and no file of Carve or the driver is mounted in it. variable: the value
        of its NVIDIA_VISIBLE_DEVICES."""
        seen = self.look(name, container)
        self.assertEqual((seen["cuda"], seen["nvml"], seen["mapped"]), (None, None, []))
        self.assertEqual(self.mounted(name, container), [])
        self.assertEqual(self.environment(name, container).get(VISIBLE), variable)

    def mounted(self, name, container):
        """Mounts and devices of Carve and the driver in the container, from the kernel's list of mounts and from
        /dev."""
        process = self.process_in(name, container)
        lines = Path(f"/proc/{process}/mountinfo").read_text().splitlines()
        places = [line.split()[4] for line in lines] + [str(one) for one in Path(f"/proc/{process}/root/dev").iterdir()]
        return [place for place in places if re.search("carve|nvidia|cuda", place)]

    def record_text(self, name):
        return self.kube.get("Pod", name)["metadata"].get("annotations", {}).get(binder.RECORD)

    def started(self, name):
        """The containers that run or have run."""
        return [one["name"] for one in self.kube.get("Pod", name)["status"].get("containerStatuses", [])
                if one["restartCount"] or "waiting" not in one["state"]]

    def warnings(self, name):
        return [message for kind, _, message in self.kube.events_of(self.kube.get("Pod", name)) if kind == "Warning"]

    def control_has_looked(self, node):
        """Waits until control has seen all pods of that node: it has placed a later one."""
        self.run_all(asking(self.name(), NATIVE, nodeName=node))

    def dry(self, made):
        """The pod as it would be stored."""
        return self.kube.request("POST", self.kube.path("Pod", dryRun="All"), made)


class StaticPods(OtherWays):
    """The kubelet runs the file, regardless of what happens to its mirror pod in the API."""

    def static(self, limits):
        """Writes a file into the manifests folder of n1. Returns the name of its mirror pod once it exists."""
        made = asking(self.name("static"), limits)
        name = made["metadata"]["name"] + "-n1"
        file = self.ring.node(1).folder / "manifests" / f"{name}.json"
        file.write_text(json.dumps(made))
        self.addCleanup(lambda: wait_for("static pod gone", 90, lambda: self.kube.get("Pod", name) is None))
        self.addCleanup(file.unlink)
        wait_for("the mirror pod", 60, lambda: self.kube.get("Pod", name))
        return name

    def test_a_static_pod_with_slots_is_placed_on_its_node_and_gets_its_slice(self):
        name = self.static({**NATIVE, binder.SLOT: 1})
        self.wait_ready(name, 120)
        self.assertEqual([(size, cores) for _, size, cores in self.cards_of(name)["main"]], [(4 * GIB, 30)])
        self.assertIn(self.cards_of(name)["main"][0][0], [card["uuid"] for card in self.cards_on("n1")])
        self.assert_right([name])
        self.assertEqual(self.writes_about(name), {("carve-control", "patch", "pods"): 1})

    def test_a_static_pod_without_slots_runs_without_a_card(self):
        """The kubelet does not call Carve for it, so Carve must not count cards for it either."""
        for limits in (NATIVE, {"nvidia.com/gpu": 1}):
            with self.subTest(limits=limits):
                name = self.static(limits)
                self.wait_ready(name, 120)
                self.assert_no_card(name)
                self.control_has_looked("n1")
                self.assertIsNone(self.record_text(name))
                self.assertEqual(self.writes_about(name), {})

    @in_soak
    def test_a_static_pod_with_slots_and_no_request_never_starts(self):
        name = self.static({binder.SLOT: 1})
        said = wait_for("the agent's warning", 120, lambda: [one for one in self.warnings(name) if "record" in one])
        self.assertIn("has no record", said[0])
        self.assertEqual((self.started(name), self.record_text(name)), ([], None))


class BoundByOthers(OtherWays):
    def bound(self, node):
        """Creates a pod of a scheduler that does not exist and binds it as that scheduler would. Returns its name."""
        made = self.create(asking(self.name(), NATIVE, schedulerName=NOBODY))
        self.assertEqual(made["spec"]["schedulerName"], NOBODY)
        binder.bind(self.kube, made, node, None)
        return made["metadata"]["name"]

    def test_a_pod_bound_by_another_scheduler_is_placed_on_its_node_by_one_patch(self):
        name = self.bound("n2")
        self.wait_ready(name)
        self.assertEqual([(size, cores) for _, size, cores in self.cards_of(name)["main"]], [(4 * GIB, 30)])
        self.assertIn(self.cards_of(name)["main"][0][0], [card["uuid"] for card in self.cards_on("n2")])
        self.assert_right([name])
        self.assertEqual(self.writes_about(name), {("carve-control", "patch", "pods"): 1})

    def test_a_pod_bound_to_a_full_node_starts_when_there_is_room(self):
        whole, = self.run_all(asking(self.name(), {"nvidia.com/gpu": len(self.cards_on("n2"))},
                                     nodeSelector={"kubernetes.io/hostname": "n2"}))
        name = self.bound("n2")
        said = wait_for("control's warning", 30, lambda: [
            one for one in self.warnings(name) if "was chosen without Carve" in one])
        self.assertIn("node n2 was chosen without Carve and cannot provide the cards", said[0])
        self.assertIn("held exclusively", said[0])
        # By then the kubelet has tried to start it, and the agent refused.
        wait_for("the agent's warning", 120, lambda: [one for one in self.warnings(name) if "has no record" in one])
        self.assertEqual((self.started(name), self.record_text(name)), ([], None))
        self.kube.delete("Pod", whole, grace=0)
        self.wait_ready(name, 180)
        self.assert_right([name])


class NoText(OtherWays):
    def test_the_api_server_refuses_a_number_where_a_string_is_needed(self):
        """Such a manifest is no Pod, and Carve is not called. In quotes it is one, and Carve reads it."""
        for limits in (NATIVE, {"aliyun.com/gpu-mem": 4}):
            for where in ("labels", "annotations"):
                with self.subTest(limits=limits, where=where):
                    made = asking(self.name(), limits)
                    made["metadata"][where] = {"aliyun.com/gpu-count": 2}
                    with self.assertRaises(ApiError) as refused:
                        self.create(made)
                    self.assertEqual(refused.exception.status, 400)
                    self.assertRegex(str(refused.exception), f"cannot unmarshal number .*[.]{where} of type string")
        made = asking(self.name(), {"aliyun.com/gpu-mem": 4})
        made["metadata"]["labels"] = {"aliyun.com/gpu-count": "two"}
        with self.assertRaisesRegex(ApiError, 'denied the request: carve: .*gpu-count: "two"'):
            self.create(made)


class AddedLater(OtherWays):
    """Ephemeral containers: what `kubectl debug` adds to a running pod."""
    CONTENT = "application/strategic-merge-patch+json"

    def add(self, name, container, **more):
        """Adds the container and returns it as it was stored."""
        added = {"name": container, "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": HOLD, **more}
        stored = self.kube.patch("Pod", name, {"spec": {"ephemeralContainers": [added]}}, sub="ephemeralcontainers",
                                 content=self.CONTENT)
        return next(one for one in stored["spec"]["ephemeralContainers"] if one["name"] == container)

    def runs(self, name, container):
        wait_for(f"{container} runs", 60, lambda: "running" in (self.status_of(name, container) or {}).get("state", {}))

    def test_an_ephemeral_container_gets_no_card_and_changes_nothing_for_the_pod(self):
        name, = self.run_all(asking(self.name(), NATIVE))
        before = self.record_text(name), self.status_of(name, "main")["containerID"], self.look(name)
        # otherwise the check of the other containers proves nothing
        self.assertNotEqual(self.mounted(name, "main"), [])
        texts = self.create({"apiVersion": "v1", "kind": "ConfigMap", "data": {VISIBLE: "all"},
                             "metadata": {"name": self.name("texts"), "namespace": "default"}})["metadata"]["name"]
        # Admission closes the variable, with which NVIDIA's runtime would show every card of the node: where the
        # container sets it itself, and where it may be set through envFrom.
        for container, more, variable in (
                ("plain", {}, None), ("neighbour", {"targetContainerName": "main"}, None),
                ("greedy", {"env": [{"name": VISIBLE, "value": "all"}]}, "void"),
                ("quiet", {"envFrom": [{"configMapRef": {"name": texts}}]}, "void")):
            with self.subTest(container):
                stored = self.add(name, container, **more)
                self.assertEqual(stored.get("env"), variable and [{"name": VISIBLE, "value": variable}])
                self.runs(name, container)
                self.assert_no_card(name, container, variable)
        self.assertEqual((self.record_text(name), self.status_of(name, "main")["containerID"], self.look(name)), before)
        self.assert_right([name])
        self.assertEqual(self.writes_about(name), {("carve-control", "create", "pods/binding"): 1})

    def test_in_a_pod_without_cards_the_variable_is_closed_too(self):
        name, = self.run_all(pod(self.name()))
        stored = self.add(name, "greedy", env=[{"name": VISIBLE, "value": "all"}])
        self.assertEqual(stored["env"], [{"name": VISIBLE, "value": "void"}])
        self.runs(name, "greedy")
        self.assert_no_card(name, "greedy", "void")
        self.assertNotIn("env", self.add(name, "plain"))            # Carve does not change it
        self.runs(name, "plain")
        self.assert_no_card(name, "plain")

    def test_an_ephemeral_container_cannot_request_cards(self):
        name, = self.run_all(asking(self.name(), NATIVE))
        before = self.record_text(name)
        for key, value in (*NATIVE.items(), ("nvidia.com/gpu", 1), (binder.SLOT, 1)):
            with self.subTest(key), self.assertRaisesRegex(ApiError, "422 .*resources: Forbidden"):
                self.add(name, "asking", resources={"limits": {key: str(value)}})
        self.assertEqual(self.record_text(name), before)


class Page(OtherWays):
    def test_the_pod_of_the_documentation_runs_as_written(self):
        """The command block of docs/kubernetes.md. Only the image is replaced, as the page asks its reader to do."""
        text = (paths.REPOSITORY / "docs/kubernetes.md").read_text()
        command, = re.findall(r"(?ms)^\$ (cat <<POD \| kubectl apply -f -\n.*?^POD$)", text)
        self.assertEqual(command.count("image: your/cuda-image:tag\n"), 1)
        with tempfile.TemporaryDirectory(prefix="carve-page-") as folder:
            Path(folder, "kubectl").symlink_to(self.ring.binaries["kubectl"])
            done = subprocess.run(["bash", "-ec", command.replace("your/cuda-image:tag", images.PROGRAMS)], text=True,
                                  capture_output=True, check=False, env={
                                      **os.environ, "KUBECONFIG": str(self.ring.kubeconfig),
                                      "PATH": f"{folder}:{os.environ['PATH']}"})
        self.created.append(("Pod", "by-name", "default"))
        self.assertEqual((done.returncode, done.stdout), (0, "pod/by-name created\n"), done.stderr)
        self.wait_ready("by-name")
        self.assertEqual([(size, cores) for _, size, cores in self.cards_of("by-name")["main"]], [(4096 << 20, 30)])
        looked = json.loads(self.ring.kubectl("exec", "by-name", "--", "ring-look").stdout)
        self.assert_no_findings(check.check([self.kube.get("Pod", "by-name")], [], [],
                                                        {("default", "by-name", "main"): looked},
                                            by="records", physical=self.capacity))
        sample, = re.findall(r"(?m)^\$ kubectl exec fraction -- (carve-sample-alloc [^#\n]*?) *(?:#.*)?$", text)
        result = json.loads(self.ring.kubectl("exec", "by-name", "--", *sample.split()).stdout.splitlines()[-1])
        self.assertEqual((result["out_of_memory"], result["total"]), (True, 4096 << 20))
        wait_for("the page's view", 20, lambda: "default/by-name" in self.view("inspect"))


class Settings(OtherWays):
    """Changes carve-cluster while the cluster runs: control and agents start again by themselves."""
    WORKLOADS = {"carve-control": "control serves", "carve-agent": "agent serves"}     # and what they log at each start

    def setUp(self):
        self.addCleanup(self.back)      # runs last, after the pods are gone
        super().setUp()
        self.standing = self.kube.get("ConfigMap", "carve-cluster", carve.NAMESPACE)["data"]["cluster.conf"]

    def back(self):
        self.settle()
        self.ring.kubectl("apply", "-f", installed.DEPLOY / "control/webhook.yaml",
                          "-f", installed.DEPLOY / "control/device-classes.yaml")
        wait_for("all nodes have the resource again", 60, lambda: all(self.shown()), 0.5)
        stored = self.dry(self.visible())
        self.assertEqual(stored["spec"]["containers"][0]["env"], [{"name": VISIBLE, "value": "void"}])

    def lives(self):
        """Pod of control or of an agent -> its container's id, for pods that are Ready."""
        return {one["metadata"]["name"]: one["status"]["containerStatuses"][0]["containerID"]
                for one in self.kube.list("Pod", carve.NAMESPACE) for name in self.WORKLOADS
                if one["metadata"]["name"].startswith(name + "-") and one["status"].get("containerStatuses")
                and one["status"]["containerStatuses"][0]["ready"]}

    def starts(self):
        """Pod of control or of an agent -> how often its process has started."""
        return {name: self.ring.kubectl("-n", carve.NAMESPACE, "logs", name).stdout.count(serves)
                for name in self.lives() for workload, serves in self.WORKLOADS.items() if name.startswith(workload + "-")}

    def settle(self, **changes):
        """Sets these keys (_ stands for . and -), all others to their first values, and waits until all processes have
        started again, inside their containers."""
        text = self.standing
        for key, value in changes.items():
            line = re.compile(rf"(?m)^{key.replace('_', '[.-]')} = .*$")
            name, = [one.partition(" = ")[0] for one in line.findall(text)]
            text = line.sub(f"{name} = {value}", text)
        before, starts, begun = self.lives(), self.starts(), time.monotonic()
        self.kube.patch("ConfigMap", "carve-cluster", {"data": {"cluster.conf": text}}, carve.NAMESPACE)
        wait_for("control and agents have started again", 240, lambda: (now := self.starts()).keys() == starts.keys() and
                 all(now[name] > starts[name] for name in now), 0.5)
        self.assertEqual(self.lives(), before, "no container restarts")
        for one in self.carves:
            one.wait_serving(plugins=changes.get("plugins", "slots"))
        print(f"\nall have started again {time.monotonic() - begun:.0f} s after the change", flush=True)

    def shown(self):
        """The number of nvidia.com/gpu that each node has."""
        return [int(self.kube.get("Node", node.name)["status"]["allocatable"].get("nvidia.com/gpu", 0))
                for node in self.ring.nodes]

    def assert_left_alone(self, made):
        """The API server must store the pod as it does without Carve."""
        aside = copy.deepcopy(made)
        aside["metadata"]["namespace"] = "kube-system"        # which Carve's webhook ignores
        path = self.kube.path("Pod", None, "kube-system", dryRun="All")
        plain, stored = self.kube.request("POST", path, aside), self.dry(made)
        self.assertEqual(stored["metadata"].get("annotations"), None)
        self.assertEqual(stored["spec"]["schedulerName"], "default-scheduler")
        for one in (plain, stored):
            one["spec"].pop("volumes")                          # the token's volume has a generated name
            for container in one["spec"]["containers"]:
                container.pop("volumeMounts")
        self.assertEqual(stored["spec"], plain["spec"])

    def visible(self, value="all", limits=None):
        made = asking(self.name(), limits or {})
        made["spec"]["containers"][0]["env"] = [{"name": VISIBLE, "value": value}]
        return made

    def test_the_variable_is_refused_and_nvidia_com_gpu_is_left_to_another_system(self):
        """Both settings in one change, because each change restarts everything."""
        self.settle(admission_visible_devices="refuse", dialects_nvidia="off")
        with self.subTest("the variable"):
            with self.assertRaises(ApiError) as refused:
                self.create(self.visible())
            self.assertIn(f'denied the request: carve: container main: {VISIBLE} = "all" without a request for a card',
                          str(refused.exception))
            self.assertIn("set it to void or none", str(refused.exception))
            self.assertEqual(self.dry(self.visible("void"))["spec"]["containers"][0]["env"][0]["value"], "void")
            plain, = self.run_all(pod(self.name()))
            with self.assertRaisesRegex(ApiError, f"denied the request: carve: container late: {VISIBLE} "):
                self.kube.patch("Pod", plain, {"spec": {"ephemeralContainers": [{
                    "name": "late", "image": images.BUSYBOX, "env": [{"name": VISIBLE, "value": "all"}]}]}},
                    sub="ephemeralcontainers", content=AddedLater.CONTENT)
        with self.subTest("a fraction"):
            self.assert_right(self.run_all(asking(self.name(), NATIVE)))
        with self.subTest("admission"):
            self.assert_left_alone(asking(self.name(), {"nvidia.com/gpu": 1}))
            self.assert_left_alone(self.visible(limits={"nvidia.com/gpu": 1}))      # NVIDIA's plugin sets the variable
        with self.subTest("the nodes"):
            # No plugin serves it, so no node may have any: a pod that was sent there would run without a card.
            with contextlib.suppress(AssertionError):
                wait_for("no node has the resource", 20, lambda: not any(self.shown()), 0.5)
            made = self.create(asking(self.name(), {"nvidia.com/gpu": 1}))
            name = made["metadata"]["name"]
            wait_for("the cluster's own scheduler has tried the pod", 30, lambda: [
                reason for _, reason, _ in self.kube.events_of(made) if reason in ("FailedScheduling", "Scheduled")])
            self.assertIsNone(self.record_text(name))
            self.assertEqual(self.writes_about(name), {})
            self.assertIn("Insufficient nvidia.com/gpu", " ".join(self.messages(made)), self.shown())

    def test_dra_serves_whole_cards_and_control_fractions_on_one_node(self):
        # As webhook.yaml and device-classes.yaml say for this setting. The class first: the agents remove their totals
        # when they see it.
        hooks = re.sub(r",\s*'nvidia.com/gpu'", "", (installed.DEPLOY / "control/webhook.yaml").read_text())
        self.assertNotIn("'nvidia.com/gpu'", hooks)
        self.ring.kubectl("apply", "-f", "-", input=hooks)
        self.ring.kubectl("apply", "-f", installed.DEPLOY / "device-classes.yaml")
        wait_for("no node has the resource", 60, lambda: not any(self.shown()), 0.5)
        self.settle(plugins="dra,slots", dialects_nvidia="dra")
        here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        self.assert_left_alone(asking(self.name(), {"nvidia.com/gpu": 1}, **here))
        whole, = self.run_all(asking(self.name(), {"nvidia.com/gpu": 1}, **here))
        self.assertIsNone(self.record_text(whole))
        fractions = self.run_all(*[asking(self.name(), NATIVE, **here) for _ in range(2)])
        self.assert_right(fractions)
        found, seen = self.kube.get("Pod", whole), self.look(whole)
        self.assertEqual(found["spec"]["schedulerName"], "default-scheduler")
        self.assert_no_findings(check.check([found], self.kube.list("ResourceClaim"),
                                                        self.kube.list("ResourceSlice", None),
                                            {("default", whole, "main"): seen}, physical=self.capacity))
        card, = seen["cuda"]["cards"]
        self.assertNotIn(card["uuid"], [uuid for name in fractions for uuid, _, _ in self.cards_of(name)["main"]])


class Metrics(OtherWays):
    def test_metrics_of_control_and_agents_follow_prometheus_conventions(self):
        """Of both replicas (the leader and the other) and both nodes, while pods have cards and one waits."""
        held = self.run_all(*[asking(self.name(), NATIVE, nodeSelector={"kubernetes.io/hostname": node.name})
                              for node in self.ring.nodes])
        waiting = self.create(asking(self.name(), {"nvidia.com/gpu": 16}))
        wait_for("the event that says why it waits", 30,
                 lambda: [m for m in self.messages(waiting) if "nodes are available" in m])
        with self.assertRaises(ApiError):
            self.create(asking(self.name(), {"elasticgpu.io/gpu-core": 130}))
        texts = self.scrapes()
        self.assertEqual(len(texts), 4)
        for name, text in texts.items():
            with self.subTest(name):
                families, samples, _ = exposition.read(text)
                print(f"\n{name}: {len(families)} families, {len(samples)} series", flush=True)
                wanted = ({"carve_control_requests_total", "carve_control_request_duration_seconds"}
                          if name.startswith("carve-control") else {"carve_slice_memory_limit_bytes"})
                self.assertLessEqual(wanted, {exposition.family_of(one, families) for one, _, _ in samples})
                self.assert_no_findings(exposition.check(text))
        limits = [sample for name, text in texts.items() for sample in exposition.read(text)[1]
                  if sample[0] == "carve_slice_memory_limit_bytes"]
        self.assertEqual(sorted((dict(labels)["pod"], value) for _, labels, value in limits),
                         sorted((name, 4.0 * GIB) for name in held))

    def scrapes(self):
        """Name of the pod -> its metrics text."""
        found = {}
        for one in self.kube.list("Pod", carve.NAMESPACE):
            name = one["metadata"]["name"]
            port = ":8080" if name.startswith("carve-control-") else ""
            if port or name.startswith("carve-agent-"):
                path = f"/api/v1/namespaces/{carve.NAMESPACE}/pods/{name}{port}/proxy/metrics"
                found[name] = self.kube.request("GET", path, raw=True)
        return found


if __name__ == "__main__":
    main()
