"""deploy/chart renders the plain bundle, changed only by values."""
import copy
import hashlib
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import binaries, paths  # noqa: E402

DEPLOY = paths.REPOSITORY / "deploy"
KUBERNETES = "v1.36.3"
NEEDED = ("scheduler.image=IMAGE",)     # the only value without a default; users fill it in in the bundle, too


def ring_helm(*words):
    """The program's output as JSON; AssertionError with its error text when it fails."""
    done = subprocess.run([binaries.find()["ring-helm"], *map(str, words)], text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip())
    return json.loads(done.stdout)


def by_name(objects) -> dict:
    """(kind, namespace, name) -> object; of two with the same name the later one, as after `kubectl apply`."""
    return {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
            for one in objects if "name" in one.get("metadata", {})}


def plain(*folders) -> dict:
    """The objects that result when these folders and files of deploy/ are applied in this order."""
    found = {}
    for folder in folders:
        path = DEPLOY / folder
        for file in [path] if path.is_file() else sorted(path.glob("*.yaml")):
            found.update(by_name(ring_helm("objects", file)))
    return found


def chart(*values) -> dict:
    rendered = ring_helm("template", DEPLOY / "chart", KUBERNETES, *values)
    found = by_name(rendered)
    assert len(found) == len(rendered), "an object is rendered twice"
    for (kind, space, name), scheduler in found.items():      # the rest of the test sees it as in the bundle
        if (kind, name) != ("Deployment", "carve-scheduler"):
            continue
        meta = scheduler["spec"]["template"]["metadata"]
        text = found["ConfigMap", space, name]["data"]["scheduler.yaml"]
        checksum = meta["annotations"].pop("elasticgpu.io/configuration")
        assert checksum == hashlib.sha256(text.encode()).hexdigest(), "kube-scheduler must restart only for another text"
        if not meta["annotations"]:
            del meta["annotations"]
    return found


# As deploy/control/README.md says.
BUNDLE = ("control/cluster.yaml", "crds", ".", "control", "control/scheduler")


class Chart(unittest.TestCase):
    maxDiff = 4000

    def assert_only(self, values, change):
        """Asserts that with these values the chart is the default one after `change(objects)`."""
        expected = copy.deepcopy(chart(*NEEDED))
        change(expected)
        self.assertEqual(chart(*NEEDED, *values), expected)

    def refused(self, *values):
        with self.assertRaises(AssertionError) as error:
            chart(*values)
        return str(error.exception)

    def test_with_default_values_the_chart_is_the_plain_bundle(self):
        expected, made = plain(*BUNDLE), chart(*NEEDED)
        self.assertGreater(len(expected), 30)
        self.assertEqual(sorted(made), sorted(expected))
        for key, one in expected.items():
            self.assertEqual(made[key], one, key)

    def test_scheduler_mode_default_renders_the_files_for_the_default_scheduler(self):
        expected = plain("control/cluster.yaml", "crds", ".", "control", "control/scheduler/default")
        settings = expected["ConfigMap", "carve-system", "carve-cluster"]["data"]
        settings["cluster.conf"] = settings["cluster.conf"].replace("scheduler.name = carve-scheduler",
                                                                    "scheduler.name = default-scheduler")
        self.assertEqual(chart("scheduler.mode=default"), expected)
        self.assertIn(("DaemonSet", "carve-system", "carve-scheduler-files"), expected)
        self.assertNotIn(("Deployment", "carve-system", "carve-scheduler"), expected)

    def test_both_schedulers_get_the_same_configuration(self):
        """Except for the address and the files: the default one is a static pod on the host. And it may have other
        extenders, so it calls twice (filter, prioritize)."""
        own = plain("control/scheduler/scheduler.yaml")["ConfigMap", "carve-system", "carve-scheduler"]["data"]
        default, = ring_helm("objects", DEPLOY / "control/scheduler/default/kube-scheduler-config.yaml")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(own["scheduler.yaml"])
            file.flush()
            own, = ring_helm("objects", file.name)
        (one,), (other,) = own["extenders"], default["extenders"]
        self.assertEqual(one.pop("filterVerb"), "choose")
        self.assertEqual([other.pop(key) for key in ("filterVerb", "prioritizeVerb", "weight")],
                         ["filter", "prioritize", 1000])
        for extender in (one, other):
            extender.pop("urlPrefix")
            self.assertEqual(extender["tlsConfig"].pop("serverName"), "carve-control", "otherwise it uses HTTP/1.1")
            extender["tlsConfig"] = {key: Path(path).name for key, path in extender["tlsConfig"].items()}
        self.assertEqual(one, other)
        self.assertEqual(one["managedResources"], [{"name": "elasticgpu.io/slot"}])
        ignored = [profile["pluginConfig"] for config in (own, default) for profile in config["profiles"]]
        self.assertIn("nvidia.com/gpu", ignored[0][0]["args"]["ignoredResources"])
        self.assertEqual(ignored, [ignored[0]] * 2)
        for key in ("podInitialBackoffSeconds", "podMaxBackoffSeconds"):
            self.assertEqual(own[key], default[key])

    def test_without_control_the_chart_is_deploy_alone(self):
        self.assertEqual(chart("control.enabled=false"), plain("crds", "."))

    def test_values_change_lines_of_cluster_conf(self):
        for value, old, new in (
                ("doors=dra\\,slots", "plugins = slots", "plugins = dra,slots"),  # the earlier name
                ("plugins=dra\\,slots", "plugins = slots", "plugins = dra,slots"),
                ("plugins=dra\\,slots\\,shared", "plugins = slots", "plugins = dra,slots,shared"),
                ("dialects.gpushareUnit=MiB", "dialects.gpushare-unit = GiB", "dialects.gpushare-unit = MiB"),
                ("dialects.hami=true", "dialects.hami = off", "dialects.hami = on"),
                ("dialects.cgpuPolicy=4", "dialects.cgpu-policy = 3", "dialects.cgpu-policy = 4"),
                ("dialects.cgpuPolicy=even-4", "dialects.cgpu-policy = 3", "dialects.cgpu-policy = even-4"),
                ("dialects.qgpuPolicy=fixed-share", "dialects.qgpu-policy = best-effort", "dialects.qgpu-policy = fixed-share"),
                ("dialects.volcanoFactor=10", "dialects.volcano-factor = 1", "dialects.volcano-factor = 10"),
                ("dialects.deepomaticContainers=4", "dialects.deepomatic-containers = 0", "dialects.deepomatic-containers = 4"),
                ("dialects.rancherContainers=5", "dialects.rancher-containers = 0", "dialects.rancher-containers = 5"),
                ("dialects.gpushareHttp=true", "dialects.gpushare-http = off", "dialects.gpushare-http = on"),
                ("placement.policy=spread", "placement.policy = binpack", "placement.policy = spread"),
                ("admission.visibleDevices=refuse", "admission.visible-devices = void",
                 "admission.visible-devices = refuse")):
            with self.subTest(value):
                def change(objects, old=old, new=new):
                    settings = objects["ConfigMap", "carve-system", "carve-cluster"]["data"]
                    self.assertIn(old + "\n", settings["cluster.conf"])
                    settings["cluster.conf"] = settings["cluster.conf"].replace(old + "\n", new + "\n")
                self.assert_only([value], change)

    def test_values_change_replicas_and_images(self):
        def change(objects):
            objects["Deployment", "carve-system", "carve-control"]["spec"]["replicas"] = 3
            objects["Deployment", "carve-system", "carve-scheduler"]["spec"]["replicas"] = 1
            for (kind, _, name), one in objects.items():
                if kind in ("Deployment", "DaemonSet"):
                    container, = one["spec"]["template"]["spec"]["containers"]
                    container["imagePullPolicy"] = "Never"
                    container["image"] = "IMAGE" if name == "carve-scheduler" else "local.test:5000/carve:7"
                    one["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "a"}, {"name": "b"}]
        self.assert_only(["control.replicas=3", "scheduler.replicas=1", "image=local.test:5000/carve:7",
                          "imagePullPolicy=Never", "imagePullSecrets={a,b}"], change)

    def test_a_value_sets_the_percentage_of_nodes_to_score(self):
        def change(objects):
            data = objects["ConfigMap", "carve-system", "carve-scheduler"]["data"]
            data["scheduler.yaml"] = data["scheduler.yaml"].replace("percentageOfNodesToScore: 100",
                                                                    "percentageOfNodesToScore: 0")
        self.assert_only(["scheduler.percentageOfNodesToScore=0"], change)

    def test_pods_of_carves_image_select_nodes_that_can_run_it(self):
        """The image is for amd64 only; clusters have other nodes, too."""
        ran = 0
        for objects in (chart(*NEEDED), chart("scheduler.mode=default")):
            for (kind, _, name), one in objects.items():
                pod = one.get("spec", {}).get("template", {}).get("spec", {})
                if not any(container["image"].startswith("elasticgpu.io/carve:") for container in pod.get("containers", [])):
                    continue
                with self.subTest(f"{kind} {name}"):
                    self.assertEqual(pod["nodeSelector"].get("kubernetes.io/arch"), "amd64")
                    self.assertEqual(pod["nodeSelector"].get("kubernetes.io/os"), "linux")
                ran += 1
        self.assertEqual(ran, 3 + 4, "agent, arbiter, control; and the scheduler's files")

    def test_containers_have_only_the_rights_that_they_need(self):
        """Root: containers that use the host's own files, sockets and pages. Privileged: the agent, which opens device
        nodes."""
        root, privileged, seen = set(), set(), 0
        for objects in (chart(*NEEDED), chart("scheduler.mode=default")):
            for (kind, _, name), one in objects.items():
                pod = one.get("spec", {}).get("template", {}).get("spec", {})
                for container in pod.get("containers", []):
                    with self.subTest(f"{kind} {name}"):
                        own = {**pod.get("securityContext", {}), **container["securityContext"]}
                        self.assertTrue(own["readOnlyRootFilesystem"])
                        self.assertFalse(pod.get("hostNetwork", False))
                        if own.get("privileged"):
                            privileged.add(name)
                        else:       # these fields have no effect in a privileged container
                            self.assertFalse(own["allowPrivilegeEscalation"])
                            self.assertEqual(own["seccompProfile"], {"type": "RuntimeDefault"})
                            self.assertEqual(own["capabilities"]["drop"], ["ALL"])
                        if own["runAsUser"] == 0:
                            root.add(name)
                        else:
                            self.assertTrue(own["runAsNonRoot"])
                    seen += 1
        self.assertEqual((privileged, root), ({"carve-agent"}, {"carve-agent", "carve-arbiter", "carve-scheduler-files"}))
        self.assertEqual(seen, 4 + 4, "agent, arbiter, control, scheduler; and the scheduler's files instead of it")

    def test_one_replica_has_no_disruption_budget_that_would_block_a_drain(self):
        def change(objects):
            objects["Deployment", "carve-system", "carve-control"]["spec"]["replicas"] = 1
            del objects["PodDisruptionBudget", "carve-system", "carve-control"]
        self.assert_only(["control.replicas=1"], change)

    def test_another_namespace_is_used_everywhere(self):
        made = chart(*NEEDED, "namespace.name=gpus")
        self.assertNotIn("carve-system", json.dumps(list(made.values())))
        self.assertIn("system:serviceaccount:gpus:carve-agent", json.dumps(list(made.values())))
        control = made["Deployment", "gpus", "carve-control"]["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("--namespace=gpus", control["args"])
        self.assertIn(("Namespace", "", "gpus"), made)
        self.assertNotIn(("Namespace", "", "gpus"), chart(*NEEDED, "namespace.name=gpus", "namespace.create=false"))

    def test_no_object_replaces_another_in_kube_system(self):
        """Some objects are in kube-system regardless of the chart's namespace."""
        made, usual = chart(*NEEDED, "namespace.name=kube-system", "namespace.create=false"), chart(*NEEDED)
        self.assertEqual(len(made), len(usual) - 1, "all except the Namespace")
        def rules(objects):
            return sorted(json.dumps(rule) for (kind, *_), one in objects.items() if kind == "Role" for rule in one["rules"])
        self.assertEqual(rules(made), rules(usual))

    def test_nvidia_com_gpu_is_served_by_slots_by_a_device_class_or_not_at_all(self):
        key = ("DeviceClass", "", "whole.gpu.elasticgpu.io")
        for value, mapped in (("slots", None), ("dra", "nvidia.com/gpu"), ("off", None)):
            with self.subTest(value):
                made = chart(*NEEDED, "plugins=dra\\,slots", f"dialects.nvidia={value}")
                self.assertEqual(made[key]["spec"].get("extendedResourceName"), mapped)
                hooks = [made[f"{kind}WebhookConfiguration", "", "carve-admission"] for kind in ("Mutating", "Validating")]
                profile = made["ConfigMap", "carve-system", "carve-scheduler"]["data"]["scheduler.yaml"]
                for text in (json.dumps(hooks[0]), json.dumps(hooks[1]), profile):
                    self.assertEqual("nvidia.com/gpu" in text, value == "slots")
                    self.assertIn("aliyun.com/gpu-mem", text)
                self.assertIn(f"dialects.nvidia = {value}\n",
                              made["ConfigMap", "carve-system", "carve-cluster"]["data"]["cluster.conf"])

    def test_without_control_nvidia_com_gpu_is_served_by_a_device_class_or_not_at_all(self):
        made, key = chart("control.enabled=false", "dialects.nvidia=off"), ("DeviceClass", "", "whole.gpu.elasticgpu.io")
        self.assertEqual(chart("control.enabled=false")[key]["spec"].pop("extendedResourceName"), "nvidia.com/gpu")
        self.assertNotIn("extendedResourceName", made[key]["spec"])

    def test_values_set_node_selectors_and_the_agents_settings(self):
        def change(objects):
            for name in ("carve-agent", "carve-arbiter"):
                pod = objects["DaemonSet", "carve-system", name]["spec"]["template"]["spec"]
                pod["nodeSelector"]["elasticgpu.io/serve"] = "yes"
            objects["ConfigMap", "carve-system", "carve-agent"] = {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "carve-agent", "namespace": "carve-system"},
                "data": {"carve.conf": "driver-root = /run/nvidia/driver\n"}}
        self.assert_only(["agent.nodeSelector.elasticgpu\\.io/serve=yes",
                          "agent.settings.driver-root=/run/nvidia/driver"], change)

    def test_invalid_values_are_refused_with_a_reason(self):
        for value, words in (("control.replicas=0", "minimum: got 0, want 1"), ("control.replicas=two", "want integer"),
                             ("plugins=window", "must be one of 'slots', 'dra', 'dra,slots', 'dra,slots,shared'"),
                             ("dialects.nvidia=maybe", "must be one of 'slots', 'dra', 'off'"),
                             ("dialects.gpushareUnit=GB", "must be one of 'GiB', 'MiB'"),
                             ("dialects.gpushareHttp=maybe", "want boolean"),
                             ("dialects.cgpuPolicy=6", "maximum: got 6, want 5"),
                             ("dialects.cgpuPolicy=even-0", "does not match pattern"),
                             ("dialects.qgpuPolicy=most", "does not match pattern"),
                             ("placement.policy=random", "must be one of"), ("replicas=2", "'replicas' not allowed"),
                             ("control.replica=2", "'replica' not allowed"), ("scheduler.mode=both", "must be one of"),
                             ("scheduler.percentageOfNodesToScore=101", "maximum: got 101, want 100"),
                             ("admission.visibleDevices=leave", "must be one of 'void', 'refuse'"),
                             ("namespace.name=Carve_System", "does not match pattern"),
                             ("image=two words", "does not match pattern")):
            with self.subTest(value):
                self.assertIn(words, self.refused(*NEEDED, value))
        self.assertIn("scheduler.image is required with scheduler.mode = own", self.refused())
        for values in (("dialects.nvidia=dra",), ("plugins=dra",), ("dialects.nvidia=dra", "plugins=slots")):
            with self.subTest(values):
                self.assertIn("is not among plugins", self.refused(*NEEDED, *values))
        self.assertEqual(len(chart(*NEEDED, "dialects.nvidia=dra", "plugins=dra")), len(chart(*NEEDED)))
        self.assertEqual(len(chart(*NEEDED, "dialects.nvidia=off", "plugins=dra")), len(chart(*NEEDED)))
        self.assertIn("without control", self.refused("control.enabled=false", "plugins=dra\\,slots"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
