"""The admission webhook: which pods reach it, what happens while it is down, and how it changes pods.

`Down` needs no control: the webhook configuration exists and no server answers. `Served` needs control: scenario
`control` runs it.
"""
import json
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring.binder import RECORD, SLOT  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

WEBHOOK = HERE.parent.parent / "deploy" / "control" / "webhook.yaml"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
ADMITTED = "elasticgpu.io/admitted"      # what the mutating webhook saw: the validating one compares
UNDERSTOOD = "elasticgpu.io/understood"
ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/carve-system/endpointslices?labelSelector=kubernetes.io/service-name%3D"


def served(kube) -> bool:
    """True when an endpoint of the Service carve-control is ready."""
    slices = kube.request("GET", ENDPOINTS + "carve-control")["items"]
    return any(e.get("conditions", {}).get("ready") for s in slices for e in s.get("endpoints") or [])


class AdmissionTest(RingTest):
    space = "admission"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cls.space}})
        wait_for("the default account", 30, lambda: cls.kube.get("ServiceAccount", "default", cls.space))

    @classmethod
    def tearDownClass(cls):
        cls.kube.delete("Namespace", cls.space)
        wait_for("the namespace gone", 60, lambda: cls.kube.get("Namespace", cls.space) is None)
        super().tearDownClass()

    def of(self, limits=None, env=None, annotations=None, requests=None, labels=None, **spec):
        made = pod(self.name(), annotations=annotations, schedulerName=spec.pop("schedulerName", "nobody"), **spec)
        made["metadata"]["namespace"] = self.space
        made["metadata"]["labels"] = labels or {}
        container = made["spec"]["containers"][0]
        container["resources"] = {key: value for key, value in (("limits", limits), ("requests", requests)) if value}
        container["env"] = env or []
        return made

    def review(self, made, kube=None):
        """The pod as it would be stored, or the text of the API server's refusal."""
        try:
            return (kube or self.kube).request("POST", self.kube.path("Pod", None, made["metadata"]["namespace"],
                                                                      dryRun="All"), made)
        except ApiError as error:
            return f"{error.status} {error}"


class Down(AdmissionTest):
    """GPU pods are refused, other pods are not affected."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if served(cls.kube):
            super().tearDownClass()
            raise unittest.SkipTest("control serves here: its webhook is not down")
        cls.ring.kubectl("apply", "-f", WEBHOOK)
        asks = {"elasticgpu.io/gpu-memory": "4096"}
        try:
            wait_for("the webhook is in force", 30,
                     lambda: "carve.elasticgpu.io" in str(cls.review(cls("of"), cls("of").of(asks))), every=0.5)
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.ring.kubectl("delete", "--ignore-not-found", "-f", WEBHOOK)
        wait_for("the webhook is out of force", 30, lambda: isinstance(
            cls.review(cls("of"), cls("of").of({SLOT: "1"})), dict), every=0.5)
        super().tearDownClass()

    def test_pods_that_need_the_webhook_are_refused(self):
        for what, made in {
                "native": self.of({"elasticgpu.io/gpu-core": "30"}),
                "gpushare": self.of({"aliyun.com/gpu-mem": "3"}),
                "nvidia": self.of({"nvidia.com/gpu": "1"}),
                "requests only": self.of(requests={"aliyun.com/gpu-mem": "3"}),
                "slots": self.of({SLOT: "1"}),
                "the variable": self.of(env=[{"name": VISIBLE, "value": "all"}]),
                "a record": self.of(annotations={RECORD: "{}"}),
                "an index": self.of(annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"})}.items():
            with self.subTest(what):
                self.assertIn("failed calling webhook", str(self.review(made)))
        first = self.of()
        first["spec"]["initContainers"] = [{**first["spec"]["containers"][0], "name": "first",
                                            "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
        self.assertIn("failed calling webhook", str(self.review(first)))

    def test_other_pods_are_not_affected(self):
        for what, made in {"plain": self.of({"cpu": "1"}), "annotated": self.of(annotations={"a": "b"}),
                           "another variable": self.of(env=[{"name": "A", "value": "all"}]),
                           "foreign": self.of({"example.com/gpu": "1"})}.items():
            with self.subTest(what):
                self.assertIsInstance(self.review(made), dict)

    def test_exempt_namespaces_are_not_affected(self):
        self.kube.patch("Namespace", self.space, {"metadata": {"labels": {"elasticgpu.io/admission": "ignore"}}}, None)
        self.addCleanup(self.kube.patch, "Namespace", self.space,
                        {"metadata": {"labels": {"elasticgpu.io/admission": None}}}, None)
        visible = [{"name": VISIBLE, "value": "all"}]
        wait_for("the label is in effect", 10, lambda: isinstance(self.review(self.of(env=visible)), dict), every=0.2)
        system = self.of(env=visible)
        system["metadata"]["namespace"] = "kube-system"
        self.assertIsInstance(self.review(system), dict)

    def test_an_existing_pod_can_be_changed_and_deleted(self):
        """Updates do not go through the webhook: removing a finalizer must work with and without control."""
        made = self.of(env=[{"name": VISIBLE, "value": "void"}])
        self.ring.kubectl("delete", "-f", WEBHOOK)
        wait_for("the webhook gone", 30, lambda: isinstance(self.review(made), dict), every=0.5)
        name = self.kube.create(made)["metadata"]["name"]
        self.ring.kubectl("apply", "-f", WEBHOOK)
        wait_for("the webhook is in force again", 30, lambda: not isinstance(self.review(made), dict), every=0.5)
        self.kube.patch("Pod", name, {"metadata": {"labels": {"a": "b"}}}, self.space)
        self.kube.delete("Pod", name, self.space, grace=0)
        self.assertIsNone(self.kube.get("Pod", name, self.space))


class Served(AdmissionTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not served(cls.kube):
            cls.tearDownClass()
            raise RuntimeError("control does not serve here: scenario control installs it and runs these tests")
        wait_for("the webhook answers", 60, lambda: isinstance(
            cls.review(cls("of"), cls("of").of({"elasticgpu.io/gpu-memory": "4096"})), dict), every=0.5)

    def limits(self, stored):
        return stored["spec"]["containers"][0]["resources"]["limits"]

    def test_each_dialect_gets_its_slots_and_the_understood_annotation(self):
        for limits, labels, slots, understood in (
                ({"elasticgpu.io/gpu-memory": "4096", "elasticgpu.io/gpu-core": "30"}, {}, "1",
                 "main: 4 GiB, compute 30, burst"),
                ({"elasticgpu.io/gpu-memory": "4000"}, {}, "1", "main: 3.9 GiB, besteffort"),     # stored as 4k
                ({"aliyun.com/gpu-mem": "3"}, {}, "1", "main: 3 GiB, besteffort"),
                ({"aliyun.com/gpu-mem": "8"}, {"aliyun.com/gpu-count": "2"}, "2", "main: 2 cards × (4 GiB, besteffort)"),
                ({"nvidia.com/gpu": "2"}, {}, "2", "main: 2 whole cards")):
            with self.subTest(limits=limits):
                stored = self.review(self.of(limits, labels=labels))
                self.assertIsInstance(stored, dict, stored)
                self.assertEqual(self.limits(stored)[SLOT], slots)
                self.assertEqual(stored["spec"]["containers"][0]["resources"]["requests"][SLOT], slots)
                self.assertEqual(stored["metadata"]["annotations"][UNDERSTOOD], understood)
                self.assertEqual(stored["spec"]["schedulerName"], "nobody")

    def test_a_pod_of_the_default_scheduler_is_given_to_carves_scheduler(self):
        stored = self.review(self.of({"nvidia.com/gpu": "1"}, schedulerName="default-scheduler"))
        self.assertEqual(stored["spec"]["schedulerName"], "carve-scheduler")

    def test_invalid_requests_are_refused_with_their_text(self):
        for made, text in (
                (self.of(requests={"aliyun.com/gpu-mem": "3"}), "is set only in requests"),
                (self.of({"aliyun.com/gpu-mem": "4"}, requests={"aliyun.com/gpu-mem": "3"}), "must be equal"),
                (self.of({"aliyun.com/gpu-mem": "5.5"}), "is not a whole number; legal: 1 to 4096 GiB"),
                (self.of({"aliyun.com/gpu-mem": "10G"}), '"10G" is 10000000000 GiB, out of range'),
                (self.of({"aliyun.com/gpu-mem": "9"}, labels={"aliyun.com/gpu-count": "2"}), "cannot be divided"),
                (self.of({"elasticgpu.io/gpu-core": "150"}), "neither a share of one card nor a number of whole cards"),
                (self.of({"elasticgpu.io/gpu-mem": "4"}), "no such resource"),
                (self.of({SLOT: "1"}), "do not request slots"),
                (self.of({"nvidia.com/gpu": "17"}), "legal: 1 to 16 whole cards"),
                (self.of({"elasticgpu.io/gpu": "17"}), "legal: 1 to 16 cards"),
                (self.of({"aliyun.com/gpu-mem": "17"}, labels={"aliyun.com/gpu-count": "17"}), "gpu-count: \"17\""),
                (self.of({"nvidia.com/gpu": "1"}, annotations={"elasticgpu.io/egpuc-<container-name>": "a"}),
                 "is a placeholder; replace it with the name of a container (this pod has main)")):
            with self.subTest(text):
                self.assert_refused(made, text)
        unasked = self.of(annotations={"elasticgpu.io/egpuc-<container-name>": "a"})
        # the API server's own refusal
        self.assertIn("elasticgpu.io/egpuc-<container-name>", str(self.review(unasked)))
        self.assertIn("422 ", str(self.review(unasked)))

    def test_each_resource_name_refuses_the_same_invalid_values(self):
        for name, unit in (("elasticgpu.io/gpu-memory", "MiB"), ("elasticgpu.io/gpu-core", "hundredths of a card"),
                           ("elasticgpu.io/gpu", "cards"), ("aliyun.com/gpu-mem", "GiB"),
                           ("nvidia.com/gpu", "whole cards")):
            for made, text in ((self.of(requests={name: "3"}), "is set only in requests"),
                               (self.of({name: "4"}, requests={name: "3"}), "they must be equal"),
                               (self.of({name: "5.5"}), "is not a whole number; legal: 1 to "),
                               (self.of({name: "10G"}), f'"10G" is 10000000000 {unit}')):
                with self.subTest(name=name, text=text):
                    self.assert_refused(made, f"{name}: ")
                    self.assert_refused(made, text)

    def assert_refused(self, made, text):
        said = str(self.review(made))
        self.assertIn("denied the request: carve: ", said)
        self.assertIn(text, said)

    def claiming(self, limits=None, env=None):
        """A pod with a container that also has a claim, for any device."""
        made = self.of(limits, env=env, resourceClaims=[{"name": "nic", "resourceClaimName": "nobodys"}])
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
        return made

    def test_a_claim_next_to_cards_in_one_container_is_refused(self):
        for limits in ({"elasticgpu.io/gpu-memory": "4096"}, {"aliyun.com/gpu-mem": "3"}, {"nvidia.com/gpu": "1"}):
            with self.subTest(limits=limits):
                self.assert_refused(self.claiming(limits),
                                    f"resources.claims (nic) together with {next(iter(limits))}: ambiguous")
        self.assertIsInstance(self.review(self.claiming({"cpu": "1"})), dict)

    def test_annotations_that_only_carve_writes_are_removed(self):
        stored = self.review(self.of({"nvidia.com/gpu": "1"}, annotations={
            RECORD: "{}", "ALIYUN_COM_GPU_MEM_IDX": "0", "elasticgpu.io/container-main": "0", ADMITTED: "{}",
            "mine": "1"}))
        self.assertIsInstance(stored, dict, stored)
        self.assertEqual(sorted(stored["metadata"]["annotations"]), [ADMITTED, UNDERSTOOD, "mine"])
        self.assertNotEqual(stored["metadata"]["annotations"][ADMITTED], "{}")

    def test_nvidia_visible_devices_gives_no_card(self):
        stored = self.review(self.of(env=[{"name": VISIBLE, "value": "all"}]))
        self.assertIsInstance(stored, dict, stored)
        self.assertEqual(stored["spec"]["containers"][0]["env"], [{"name": VISIBLE, "value": "void"}])
        claims = self.review(self.claiming(env=[{"name": VISIBLE, "value": "all"}]))
        self.assertIsInstance(claims, dict, claims)
        self.assertEqual(claims["spec"]["containers"][0]["env"], [{"name": VISIBLE, "value": "void"}])

    def test_the_validating_webhook_refuses_what_the_mutating_one_did_not_see(self):
        """The mutating webhook was deleted. Each webhook admits what passes its own check; only both together are
        safe."""
        asks, cardless = self.of({"elasticgpu.io/gpu-memory": "4096"}), self.of({"cpu": "1"})
        self.kube.delete("MutatingWebhookConfiguration", "carve-admission")
        try:
            wait_for("the webhook is out of force", 30, lambda: SLOT in str(self.review(asks)), every=0.5)
            self.assert_refused(asks, f'limits: {SLOT} is "", must be "1"')
            self.assert_refused(asks, "it was not called, or another webhook changed the pod after it")
            self.assert_refused(self.of(env=[{"name": VISIBLE, "value": "all"}]), VISIBLE)
            self.assertIsInstance(self.review(cardless), dict)
        finally:
            self.ring.kubectl("apply", "-f", WEBHOOK)
            # Control writes its certificate authority into the configuration.
            wait_for("the webhook is in force again", 60, lambda: isinstance(self.review(asks), dict), every=0.5)
        self.assertEqual(self.limits(self.review(asks))[SLOT], "1")

    def test_a_stored_pod_is_unchanged_when_it_is_applied_again(self):
        made = self.of({"elasticgpu.io/gpu-memory": "4096"})
        name = self.create(made)["metadata"]["name"]
        stored = self.kube.get("Pod", name, self.space)
        again = json.loads(json.dumps(stored))
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
            again["metadata"].pop(key, None)
        again.pop("status")
        again["metadata"]["name"] = self.name()
        copied = self.review(again)
        self.assertIsInstance(copied, dict, copied)
        self.assertEqual(copied["spec"], stored["spec"])
        self.assertEqual(copied["metadata"]["annotations"], stored["metadata"]["annotations"])
        done = self.ring.kubectl("apply", "-f", "-", input=json.dumps(stored))
        self.assertEqual(self.kube.get("Pod", name, self.space)["spec"], stored["spec"], done.stdout)


if __name__ == "__main__":
    main(defaultTest=["Down"])
