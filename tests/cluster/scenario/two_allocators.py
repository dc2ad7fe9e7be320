"""Control and the stock scheduler allocate the same cards, each from its own sums: neither gives what the other
gave."""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import control  # noqa: E402
import exposition  # noqa: E402
from control import HOLD, ControlTest, asking  # noqa: E402
from ring import carve, images  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

TAINT = "gpu.elasticgpu.io/used-by-slots"


def setUpModule():
    control.setUpModule(plugins="dra,slots")


class TwoAllocators(ControlTest):
    def claim_pod(self, cores, card=None):
        """Creates a pod for n1 with a claim on this card, or on any. Returns its name."""
        exactly = {"deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"memory": "4Gi", "cores": str(cores)}}}
        if card is not None:
            uuid = f'device.attributes["gpu.elasticgpu.io"].uuid == "{card}"'
            exactly["selectors"] = [{"cel": {"expression": uuid}}]
        template = self.name("template")
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": template, "namespace": "default"},
                     "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}})
        return self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, claims={"gpu": template},
                               node="n1"))["metadata"]["name"]

    def native(self, cores):
        """Creates a pod for n1 that control places. Returns its name."""
        made = asking(self.name(), {"elasticgpu.io/gpu-memory": 4096, "elasticgpu.io/gpu-core": cores},
                      nodeSelector={"kubernetes.io/hostname": "n1"})
        return self.create(made)["metadata"]["name"]

    def devices(self):
        return [device for item in self.carves[0].published() for device in item["spec"]["devices"]]

    def tainted(self):
        return {device["attributes"]["uuid"]["string"] for device in self.devices()
                if [taint for taint in device.get("taints", []) if taint["key"] == TAINT]}

    def card_of(self, name):
        """The card that the claim of a pod was given."""
        claim = self.kube.get("Pod", name)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        device = self.kube.get("ResourceClaim", claim)["status"]["allocation"]["devices"]["results"][0]["device"]
        return next(one["attributes"]["uuid"]["string"] for one in self.devices() if one["name"] == device)

    def named_claims(self):
        """Cards of n1 that have a claim as holder in their GPU object."""
        return {gpu["spec"]["uuid"] for gpu in self.kube.list("GPU", None) if gpu["spec"]["nodeName"] == "n1"
                and [one for one in gpu.get("status", {}).get("holders", []) if one.get("owner", {}).get("kind") == "claim"]}

    def claims_in_metrics(self):
        """(pod, claim) of the slices in the metrics of n1's agent."""
        agent = next(one["metadata"]["name"] for one in self.kube.list("Pod", carve.NAMESPACE)
                     if one["metadata"]["name"].startswith("carve-agent-") and one["spec"]["nodeName"] == "n1")
        path = f"/api/v1/namespaces/{carve.NAMESPACE}/pods/{agent}/proxy/metrics"
        _, samples, _ = exposition.read(self.ring.kubectl("get", "--raw", path).stdout)
        return {(dict(labels)["pod"], dict(labels)["resourceclaim_name"]) for name, labels, _ in samples
                if name == "carve_slice_memory_limit_bytes"}

    def wait_unschedulable(self, name):
        made = self.kube.get("Pod", name)
        wait_for("FailedScheduling", 30, lambda: [
            message for _, reason, message in self.kube.events_of(made) if reason == "FailedScheduling"])
        self.assertIsNone(self.kube.get("Pod", name)["spec"].get("nodeName"))

    def test_neither_scheduler_gives_what_the_other_gave(self):
        cards = [card["uuid"] for card in self.cards_on("n1")]
        held = {card: self.claim_pod(60, card) for card in cards}
        for name in held.values():
            self.wait_ready(name, 90)
        wait_for("the GPU objects name the claims", 10, lambda: self.named_claims() == set(cards))
        claims = {(name, self.kube.get("Pod", name)["status"]["resourceClaimStatuses"][0]["resourceClaimName"])
                  for name in held.values()}
        wait_for("the metrics name the pods and their claims", 10, lambda: self.claims_in_metrics() == claims)
        large, small = self.native(50), self.native(40)
        self.wait_ready(small)
        self.wait_unschedulable(large)
        (((card, _, _),),) = self.cards_of(small).values()
        wait_for("only that card is tainted", 10, lambda: self.tainted() == {card})
        here, anywhere = self.claim_pod(30, card), self.claim_pod(30)
        self.wait_ready(anywhere)
        self.assertNotEqual(self.card_of(anywhere), card)
        self.wait_unschedulable(here)     # by the scheduler's own sum 40 are left
        other = next(one for one in cards if one not in (card, self.card_of(anywhere)))
        self.kube.delete("Pod", held[other], grace=0)
        self.wait_ready(large, 90)
        self.assertEqual([one for ((one, _, _),) in self.cards_of(large).values()], [other])
        wait_for("both cards of control are tainted", 10, lambda: self.tainted() == {card, other})
        self.kube.delete("Pod", small, grace=0)
        self.wait_ready(here, 90)


if __name__ == "__main__":
    main()
