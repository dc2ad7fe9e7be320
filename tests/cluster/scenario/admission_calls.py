"""For which pods the API server calls control's webhooks, counted by control itself.

The validating webhook is called only if the final pod differs from what the mutating webhook left (webhook.yaml). A
later webhook that changes the pod is simulated: the mutating configuration is removed, and the pod is created as it was
stored before, with one change.
"""
import copy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import admission_parts, placing  # noqa: E402
from ring.binder import SLOT  # noqa: E402
from ring.cluster import timer  # noqa: E402
from ring.kube import ApiError, wait_for  # noqa: E402
from ring.testing import RingTest, main  # noqa: E402

ADMITTED = "elasticgpu.io/admitted"
MUTATING = "mutating webhook"
FRACTION = {"elasticgpu.io/gpu-memory": "8192", "elasticgpu.io/gpu-core": "10"}
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def pod(limits, **meta):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "calls", "namespace": "default", **meta},
            "spec": {"automountServiceAccountToken": False, "initContainers": [
                         {"name": "first", "image": "none", "resources": {"limits": {"cpu": "1"}}}],
                     "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}},
                                    {"name": "second", "image": "none"}]}}


class AdmissionCalls(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("admission calls"))
        cls.kube = cls.placing.kube
        cls.addClassCleanup(cls.placing.uninstall)
        cls.placing.install()
        cls.placing.start_control()
        parts = admission_parts.read(cls.placing)
        cls.parts = {name: objects for name, objects in parts.items() if name.endswith(" webhook")}
        for objects in cls.parts.values():
            cls.addClassCleanup(admission_parts.remove, cls.placing, objects)
        admission_parts.install(cls.placing, cls.parts)

    def calls(self):
        found = [self.placing.metric(f'carve_control_request_duration_seconds_count{{verb="{verb}"}}') or 0
                 for verb in ("mutate", "validate")]
        return tuple(int(count) for count in found)

    def create(self, made):
        """(the stored pod or the refusal's text, calls of mutate, calls of validate). A dry run."""
        before = self.calls()
        try:
            stored = self.kube.request("POST", self.kube.path("Pod", None, "default", dryRun="All"), made)
        except ApiError as error:
            stored = str(error)
        return stored, *(now - then for now, then in zip(self.calls(), before))

    def test_a_pod_that_no_other_webhook_changes_is_one_call(self):
        for what, made in {"a fraction": pod(FRACTION), "a card": pod({"nvidia.com/gpu": "2"}),
                           "gpushare": pod({"aliyun.com/gpu-mem": "8"}, labels={"aliyun.com/gpu-count": "2"}),
                           "annotations": pod(FRACTION, annotations={"elasticgpu.io/placement": "spread", "a": "b c"}),
                           "its own words": pod(FRACTION, annotations={ADMITTED: "main:elasticgpu.io/slot=7"})}.items():
            with self.subTest(what):
                stored, mutated, validated = self.create(made)
                self.assertIsInstance(stored, dict, stored)
                self.assertEqual((mutated, validated), (1, 0), stored["metadata"]["annotations"])
                self.assertEqual(stored["spec"]["containers"][0]["resources"]["requests"][SLOT],
                                 stored["spec"]["containers"][0]["resources"]["limits"][SLOT])

    def test_other_pods_are_no_call(self):
        self.assertEqual(self.create(pod({"cpu": "1"}))[1:], (0, 0))

    def test_a_pod_without_words_is_two_calls(self):
        stored, *calls = self.create(pod(FRACTION, annotations={"elasticgpu.io/note": "a b"}))
        self.assertNotIn(ADMITTED, stored["metadata"]["annotations"])
        self.assertEqual(calls, [1, 1])

    def test_every_later_change_that_matters_is_validated(self):
        good = {key: value for key, value in self.create(pod(
            FRACTION, annotations={"elasticgpu.io/placement": "spread"}))[0].items() if key != "status"}
        good["metadata"] = {key: good["metadata"][key] for key in ("name", "namespace", "annotations")}
        admission_parts.remove(self.placing, self.parts[MUTATING])
        self.addCleanup(admission_parts.install, self.placing, self.parts, only=MUTATING)
        wait_for("the mutating webhook is out of force", 30, lambda: self.create(good)[1:] == (0, 0), every=0.5)

        def changed(change):
            made = copy.deepcopy(good)
            change(made, made["spec"]["containers"][0], made["spec"]["containers"][0]["resources"])
            return made

        def put(name, amount):
            return lambda made, main_, resources: [resources[key].__setitem__(name, amount) for key in resources]
        second = {"name": "third", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        refused = {     # what, and whether it is refused
            "slots": (put(SLOT, "2"), True),
            "no slots": (lambda made, main_, resources: [resources[key].pop(SLOT) for key in resources], True),
            "memory": (put("elasticgpu.io/gpu-memory", "9000"), False),
            "no compute": (lambda made, main_, resources: [resources[key].pop("elasticgpu.io/gpu-core")
                                                          for key in resources], False),
            "an unknown name": (put("elasticgpu.io/gpu-cores", "1"), True),
            "a card for another container": (lambda made, main_, _: made["spec"]["containers"].append(second), True),
            "another name of the container": (lambda made, main_, _: main_.__setitem__("name", "other"), False),
            "all cards": (lambda made, main_, _: made["spec"]["containers"][1].__setitem__(
                "env", [{"name": VISIBLE, "value": "all"}]), True),
            "variables from elsewhere": (lambda made, main_, _: made["spec"]["containers"][1].__setitem__(
                "envFrom", [{"configMapRef": {"name": "any"}}]), False),
            "placement": (lambda made, *_: made["metadata"]["annotations"].__setitem__(
                "elasticgpu.io/placement", "nowhere"), True),
            "no placement": (lambda made, *_: made["metadata"]["annotations"].pop("elasticgpu.io/placement"), False),
            "a chosen card": (lambda made, *_: made["metadata"]["annotations"].__setitem__(
                "elasticgpu.io/container-main", "0"), True),
            "an index": (lambda made, *_: made["metadata"]["annotations"].__setitem__("ALIYUN_COM_GPU_MEM_IDX", "0"), True),
            "a count": (lambda made, *_: made["metadata"].__setitem__("labels", {"aliyun.com/gpu-count": "1"}), False),
            "no words": (lambda made, *_: made["metadata"]["annotations"].pop(ADMITTED), False),
        }
        for what, (change, is_refused) in refused.items():
            with self.subTest(what):
                stored, mutated, validated = self.create(changed(change))
                self.assertEqual((mutated, validated), (0, 1), stored)
                self.assertEqual(isinstance(stored, str), is_refused, stored)
        with self.subTest("what does not matter"):
            stored, *calls = self.create(changed(lambda made, main_, resources: (
                resources["limits"].__setitem__("cpu", "2"), made["metadata"].__setitem__("labels", {"a": "b"}))))
            self.assertIsInstance(stored, dict, stored)
            self.assertEqual(calls, [0, 0])


if __name__ == "__main__":
    main()
