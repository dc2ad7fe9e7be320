"""Elastic GPU's objects on a cluster: claims in all spellings, their pods, what is kept for them, and how they end."""
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import control  # noqa: E402
from ring import installed, paths  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402

GIB = 1 << 30
MANIFESTS = paths.REPOSITORY / "tests/fixtures/elastic"


def setUpModule():
    control.setUpModule()


class ElasticClaims(control.ControlTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.nothing_left)

    def nothing_left(self):
        for kind in ("pods", "elasticgpuclaims", "elasticgpus", "elasticgpuclasses"):
            self.ring.kubectl("delete", kind, "--all", "--grace-period=1", "--timeout=300s")

    def apply(self, text):
        return self.ring.kubectl("apply", "-f", "-", input=text)

    def get(self, kind, name):
        return self.kube.get(kind, name)

    def phase_of(self, kind, name):
        found = self.get(kind, name)
        return found and found.get("status", {}).get("phase")

    def wait_for_phase(self, kind, name, phase):
        wait_for(f"{kind} {name} is {phase}", 30, lambda: self.phase_of(kind, name) == phase)

    def make_class(self, name="c1", provisioner="elasticgpu.io/vcuda", **more):
        self.apply(json.dumps({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": name},
                               "provisioner": provisioner, **more}))

    def make_claim(self, name, mib=4096, cores=10, class_name="c1"):
        self.make_claim_for(name, {"gpu-memory": str(mib), "gpu-core": str(cores)}, class_name)

    def make_claim_for(self, name, amounts, class_name="c1"):
        requests = {f"elasticgpu.io/{resource}": amount for resource, amount in amounts.items()}
        self.apply(json.dumps({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim", "metadata": {"name": name},
                               "spec": {"elasticGPUClassName": class_name, "resources": {"requests": requests}}}))

    def user_of(self, claim, **spec):
        made = control.asking(self.name(), {}, **spec)
        made["metadata"]["annotations"] = {"egpuc.elasticgpu.io/main": claim}
        return self.create(made)["metadata"]["name"]

    def waits_because(self, name, words):
        wait_for(f"{name} waits: {words}", 30, lambda: any(
            event["reason"] == "FailedScheduling" and words in event["message"] and
            event["involvedObject"]["name"] == name for event in self.kube.list("Event")))

    def check_pod(self, name, claim, container="main", gib=4, cores=10):
        """The pod runs on the claim's card with the claim's size, seen from inside."""
        self.wait_ready(name)
        status = self.get("ElasticGPUClaim", claim)["status"]
        self.assertEqual(status["phase"], "Bound", status)
        self.assertEqual(self.cards_of(name)[container], [(status["card"], gib * GIB, cores)])
        self.assertEqual(self.kube.get("Pod", name)["spec"]["nodeName"], status["node"])
        seen = self.look(name, container)
        self.assertEqual([card["memory"] for card in seen["cuda"]["cards"]], [gib * GIB])

    def test_the_manifests_of_the_field_run_unchanged(self):
        for file, container in (("article.yaml", "test"), ("readme.yaml", "test-cuda"), ("code.yaml", "main")):
            with self.subTest(file):
                text = (MANIFESTS / file).read_text()
                self.apply(text)
                pod, claim = [line.partition(": ")[2].split() for line in text.splitlines() if line.startswith("# uses: ")][0]
                self.check_pod(pod, claim, container)
                self.ring.kubectl("delete", "-f", MANIFESTS / file, "--grace-period=1", "--timeout=300s")

    def test_a_claim_outlives_its_pod_and_keeps_its_room(self):
        self.make_class()
        self.make_claim("k1", 8 * 1024, 60)
        self.wait_for_phase("ElasticGPUClaim", "k1", "Bound")
        before = self.get("ElasticGPUClaim", "k1")["status"]
        columns = self.ring.kubectl("get", "elasticgpuclaims").stdout
        self.assertIn("Bound", columns)
        self.assertIn("8 GiB", columns)
        self.assertIn("fixed", columns)
        first = self.user_of("k1")
        self.check_pod(first, "k1", gib=8, cores=60)
        second = self.user_of("k1")
        self.waits_because(second, "class c1 permits 1")
        # The room stays the claim's: 60 of 100 are taken on its card, with and without a pod.
        self.kube.delete("Pod", first, grace=1)
        self.check_pod(second, "k1", gib=8, cores=60)
        self.kube.delete("Pod", second, grace=1)
        wait_for("its pods are gone", 60, lambda: not self.kube.list("Pod"))
        on_card = {"elasticgpu.io/gpu-memory": 1024, "elasticgpu.io/gpu-core": 60}
        others = [self.create(control.asking(self.name(), on_card))["metadata"]["name"] for _ in range(7)]
        for name in others:
            self.wait_ready(name, 90)
            self.assertNotEqual(self.cards_of(name)["main"][0][0], before["card"])
        last = self.create(control.asking(self.name(), on_card))["metadata"]["name"]
        self.waits_because(last, "largest free compute 40 < 60")
        self.assertEqual(self.get("ElasticGPUClaim", "k1")["status"], before)

    def test_a_claim_of_several_cards_keeps_all_of_them(self):
        self.make_class()
        self.make_class("whole", "elasticgpu.io/physical")
        self.make_claim_for("parts", {"gpu": "2", "gpu-memory": "4096", "gpu-core": "60"})
        self.make_claim_for("cards", {"gpu": "2"}, "whole")
        kept = {}
        for name in ("parts", "cards"):
            self.wait_for_phase("ElasticGPUClaim", name, "Bound")
            status = self.get("ElasticGPUClaim", name)["status"]
            kept[name] = set(status["card"].split(","))
            self.assertEqual(len(kept[name]), 2, status)
        self.assertIn("2 × 4 GiB", self.ring.kubectl("get", "elasticgpuclaims").stdout)
        self.assertFalse(kept["parts"] & kept["cards"], "whole cards are exclusive")
        # 8 cards: six with room for 60 hundredths are left, of which one pod after the other takes one.
        on_card = {"elasticgpu.io/gpu-memory": 1024, "elasticgpu.io/gpu-core": 60}
        others = [self.create(control.asking(self.name(), on_card))["metadata"]["name"] for _ in range(4)]
        for name in others:
            self.wait_ready(name, 90)
            self.assertNotIn(self.cards_of(name)["main"][0][0], kept["parts"] | kept["cards"])
        last = self.create(control.asking(self.name(), on_card))["metadata"]["name"]
        self.waits_because(last, "largest free compute 40 < 60")
        for name in ("parts", "cards"):
            user = self.user_of(name)
            self.wait_ready(user)
            self.assertEqual({card for card, _, _ in self.cards_of(user)["main"]}, kept[name])
            sizes = [card["memory"] for card in self.look(user, "main")["cuda"]["cards"]]
            self.assertEqual(len(sizes), 2)
            self.assertEqual(set(sizes) == {4 * GIB}, name == "parts", sizes)

    def test_a_deleted_claim_is_reclaimed_as_its_class_says(self):
        for policy in ("Delete", "Retain"):
            self.make_class(policy.lower(), reclaimPolicy=policy)
            self.make_claim(policy.lower(), class_name=policy.lower())
        user = self.user_of("delete")
        self.check_pod(user, "delete")
        names = {}
        for name in ("delete", "retain"):
            self.wait_for_phase("ElasticGPUClaim", name, "Bound")
            names[name] = self.get("ElasticGPUClaim", name)["spec"]["elasticGPUName"]
            self.ring.kubectl("delete", "elasticgpuclaim", name, "--wait=false")
        self.wait_for_phase("ElasticGPU", names["retain"], "Released")
        self.assertEqual(self.phase_of("ElasticGPUClaim", "delete"), "Bound", "a pod uses it")
        self.kube.delete("Pod", user, grace=1)
        wait_for("the claim is gone", 60, lambda: self.get("ElasticGPUClaim", "delete") is None)
        wait_for("its ElasticGPU is gone", 30, lambda: self.get("ElasticGPU", names["delete"]) is None)
        self.ring.kubectl("patch", "elasticgpu", names["retain"], "--type=merge", "-p", '{"spec":{"claimRef":null}}')
        self.wait_for_phase("ElasticGPU", names["retain"], "Available")

    def test_a_claim_is_lost_with_its_elastic_gpu_and_an_absent_claim_is_named(self):
        self.make_class()
        self.make_claim("k2")
        self.wait_for_phase("ElasticGPUClaim", "k2", "Bound")
        self.ring.kubectl("delete", "elasticgpu", self.get("ElasticGPUClaim", "k2")["spec"]["elasticGPUName"])
        self.wait_for_phase("ElasticGPUClaim", "k2", "Lost")
        early = self.user_of("k3")
        self.waits_because(early, "there is no ElasticGPUClaim of this name")
        self.make_claim("k3")                           # created after its pod
        self.check_pod(early, "k3")

    def test_a_claim_that_waits_is_bound_with_its_first_pod(self):
        self.make_class(bindingMode="WaitForFirstConsumer")
        self.make_claim("k4")
        self.wait_for_phase("ElasticGPUClaim", "k4", "Pending")
        name = self.user_of("k4", nodeSelector={"kubernetes.io/hostname": "n2"})
        self.wait_ready(name)
        self.wait_for_phase("ElasticGPUClaim", "k4", "Bound")
        self.check_pod(name, "k4")
        self.assertEqual(self.get("ElasticGPUClaim", "k4")["status"]["node"], "n2")

    def admits_pods(self):
        pod = control.asking("probe", {"elasticgpu.io/gpu-memory": 1024})
        return self.ring.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod), check=False).returncode == 0

    def test_claims_survive_control(self):
        self.make_class()
        self.make_claim("k5")
        self.wait_for_phase("ElasticGPUClaim", "k5", "Bound")
        before = self.get("ElasticGPUClaim", "k5")
        self.ring.kubectl("-n", "carve-system", "delete", "pods", "-l", "app.kubernetes.io/component=control", "--grace-period=1")
        wait_for("the webhook answers", 60, lambda: self.admits_pods())
        name = self.user_of("k5")
        self.wait_ready(name, 120)
        self.check_pod(name, "k5")
        self.assertEqual(self.get("ElasticGPUClaim", "k5")["spec"], before["spec"])

    def test_claims_survive_the_replacement_of_every_part_of_carve(self):
        """As an upgrade does: one claim is in use meanwhile, the other only keeps its room."""
        self.make_class()
        for claim in ("k6", "k7"):
            self.make_claim(claim)
            self.wait_for_phase("ElasticGPUClaim", claim, "Bound")
        used = self.user_of("k6")
        self.check_pod(used, "k6")
        kept = {claim: self.get("ElasticGPUClaim", claim)["status"] for claim in ("k6", "k7")}
        container = self.kube.get("Pod", used)["status"]["containerStatuses"][0]
        for what in ("daemonset/carve-agent", "deployment/carve-control", "deployment/carve-scheduler"):
            self.ring.kubectl("-n", "carve-system", "rollout", "restart", what)
            installed.rollout(self.ring, what)
        self.ring.kubectl("-n", "carve-system", "delete", "pods", "-l", "app.kubernetes.io/component=arbiter")
        wait_for("the next arbiters", 60, lambda: self.kube.get("DaemonSet", "carve-arbiter", "carve-system")["status"].get(
            "numberReady") == len(self.carves))
        self.check_pod(used, "k6")
        after = self.kube.get("Pod", used)["status"]["containerStatuses"][0]
        self.assertEqual((after["containerID"], after["restartCount"]), (container["containerID"], 0))
        self.assertEqual({claim: self.get("ElasticGPUClaim", claim)["status"] for claim in kept}, kept)
        name = self.user_of("k7")
        self.wait_ready(name, 120)
        self.check_pod(name, "k7")


if __name__ == "__main__":
    main()
