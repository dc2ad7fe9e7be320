"""One card behind both doors: what slots use is offered to no new claim, or is shared where somebody says so.

The scheduler is the stock one; records are written by the test (ring/binder.py). Which card a claim was given is read from
its allocation, what a node offers from its ResourceSlices.
"""
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import control_plane, images  # noqa: E402
from ring.slot_testing import SlotTest, slot_pod  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

TAINT = "gpu.elasticgpu.io/used-by-slots"
TOLERATION = [{"key": TAINT, "operator": "Exists"}]
HOLD = ["ring-look", "hold", "3600"]
SECONDS = 10    # within which a taint has come or gone: it stays for five after the last slice


class TwoDoors(SlotTest):
    def setUp(self):
        self.addCleanup(self.untainted, 30)     # the last one: when the pods are gone
        super().setUp()

    # --- words -------------------------------------------------------------------------------------------------------

    def devices(self):
        """The node's devices as published."""
        return [device for item in self.carve.published() for device in item["spec"]["devices"]]

    def tainted(self):
        """The indices of the cards that are kept from new claims."""
        return {self.cards.index(device["attributes"]["uuid"]["string"]) for device in self.devices()
                if [taint for taint in device.get("taints", []) if taint["key"] == TAINT]}

    def wait_tainted(self, *cards, seconds=SECONDS):
        try:
            wait_for(f"cards {cards} and no others are tainted", seconds, lambda: self.tainted() == set(cards), 0.05)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.tainted()}") from None

    def untainted(self, seconds=SECONDS):
        self.wait_tainted(seconds=seconds)

    def pools(self):
        """The generation of the pool: it is the same one as long as nothing but taints changes."""
        return {item["metadata"]["name"]: item["spec"]["pool"]["generation"] for item in self.carve.published()}

    def writes(self):
        """How often the node's slices have been changed, since the server counts it."""
        return sum(item["metadata"]["generation"] for item in self.carve.published())

    def request(self, card=None, tolerates=False, memory="4Gi"):
        exactly = {"deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"memory": memory, "cores": "5"}}}
        if card is not None:
            uuid = f'device.attributes["gpu.elasticgpu.io"].uuid == "{self.cards[card]}"'
            exactly["selectors"] = [{"cel": {"expression": uuid}}]
        if tolerates:
            exactly["tolerations"] = TOLERATION
        return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}

    def claim_pod(self, *wanted, **more):
        """A pod with a claim of its own; its name."""
        template = self.name("template")
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": template, "namespace": "default"},
                     "spec": {"spec": self.request(*wanted, **more)}})
        return self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, claims={"gpu": template},
                               node="n1"))["metadata"]["name"]

    def sharing_pod(self, claim):
        """A pod that uses a claim that is there; its name."""
        made = pod(self.name(), image=images.PROGRAMS, command=HOLD, node="n1", claims={"gpu": "none"})
        made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        return self.create(made)["metadata"]["name"]

    def by_slot(self, card, size=4):
        return self.start(slot_pod(self.name()), {"main": [(card, size, 5)]})["metadata"]["name"]

    def card_of(self, name):
        """The index of the card that the claim of a pod was given."""
        claim = self.kube.get("Pod", name)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        device = self.kube.get("ResourceClaim", claim)["status"]["allocation"]["devices"]["results"][0]["device"]
        return next(self.cards.index(one["attributes"]["uuid"]["string"]) for one in self.devices()
                    if one["name"] == device)

    def wait_turned_away(self, name):
        """The scheduler has looked, and found no card for it."""
        made = self.kube.get("Pod", name)
        wait_for("the scheduler says so", 30, lambda: [
            message for _, reason, message in self.kube.events_of(made) if reason == "FailedScheduling"])
        self.assertIsNone(self.kube.get("Pod", name)["spec"].get("nodeName"))

    def container(self, name):
        status = self.kube.get("Pod", name)["status"]["containerStatuses"][0]
        return status["containerID"], status["restartCount"]

    def gone(self, name):
        self.kube.delete("Pod", name, grace=0)
        wait_for(f"{name} is gone", 60, lambda: self.kube.get("Pod", name) is None, 0.05)


class Apart(TwoDoors):
    doors = "dra,slots"

    def test_a_card_that_slots_use_is_offered_to_no_new_claim(self):
        pools = self.pools()
        claim = self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": self.request(0),
                             "metadata": {"name": self.name("claim"), "namespace": "default"}})["metadata"]["name"]
        there = self.sharing_pod(claim)
        self.wait_ready(there)
        self.assertEqual(self.tainted(), set(), "a claim keeps no other claim out")
        before = self.container(there)
        slots = self.by_slot(0)
        self.wait_ready(slots)
        self.wait_tainted(0)
        waiting, elsewhere, tolerant, again = (self.claim_pod(0), self.claim_pod(), self.claim_pod(0, True),
                                               self.sharing_pod(claim))
        for name in (elsewhere, tolerant, again):
            self.wait_ready(name)
        self.assertNotEqual(self.card_of(elsewhere), 0)
        self.assertEqual(self.card_of(tolerant), 0)
        self.wait_turned_away(waiting)
        self.assertEqual(self.container(there), before, "who has the card keeps it")
        self.gone(slots)
        self.untainted()
        self.wait_ready(waiting)
        self.assertEqual(self.container(there), before)
        self.assertEqual(self.pools(), pools)

    def test_what_a_toleration_was_promised_waits_for_its_room(self):
        slots = self.by_slot(0, 100)
        self.wait_ready(slots)
        self.wait_tainted(0)
        second = self.claim_pod(0, True, memory="100Gi")
        made = self.kube.get("Pod", second)
        wait_for("an event with the numbers", 60, lambda: [
            message for kind, _, message in self.kube.events_of(made)
            if kind == "Warning" and self.cards[0] in message and "GiB" in message])
        self.assertEqual(self.phase(second), "Pending")
        self.gone(slots)
        self.wait_ready(second, 120)
        self.assertEqual(self.tainted(), set())

    def test_pods_that_follow_each_other_cost_two_writes(self):
        self.untainted()
        pools, before = self.pools(), self.writes()
        for _ in range(8):
            name = self.by_slot(1, 1)
            wait_for("it runs", 60, lambda n=name: self.phase(n) == "Running", 0.05)
            self.wait_tainted(1, seconds=1)
            self.gone(name)
        self.untainted(20)
        self.assertEqual((self.pools(), self.writes() - before), (pools, 2))

    def test_a_taint_outlives_its_agent(self):
        """Also that of a record that holds nothing yet, of which an agent that begins has not heard."""
        self.wait_ready(self.by_slot(0))
        self.by_slot(1, 500)    # more than the card has: refused again and again
        self.wait_tainted(0, 1)
        time.sleep(1)
        before, seen, end = self.writes(), set(), threading.Event()

        def look():
            while not end.is_set():
                seen.add(frozenset(self.tainted()))
                end.wait(0.02)
        thread = threading.Thread(target=look)
        thread.start()
        try:
            self.carve.kill_agent()
            self.carve.start_agent()
            time.sleep(8)   # longer than a taint stays that nobody needs
        finally:
            end.set()
            thread.join()
        self.assertEqual((seen, self.writes() - before), ({frozenset({0, 1})}, 0))


class Shared(TwoDoors):
    doors = "dra,slots,shared"

    def serve(self, doors):
        self.carve.kill_agent()
        self.carve.doors = doors
        self.carve.start_agent()

    def test_cards_are_shared_where_somebody_says_so_and_kept_apart_by_the_next_agent(self):
        """Both ways: the slices of the one are those of the other but for the taint."""
        slots = self.by_slot(0)
        self.wait_ready(slots)
        claimed = self.claim_pod(0)
        self.wait_ready(claimed)
        self.assertEqual((self.card_of(claimed), self.tainted()), (0, set()))
        pools, before = self.pools(), [self.container(name) for name in (slots, claimed)]
        self.addCleanup(self.serve, self.doors)
        self.serve("dra,slots")
        self.wait_tainted(0)
        self.wait_turned_away(self.claim_pod(0))
        self.serve("dra,slots,shared")
        self.wait_tainted()
        self.assertEqual((self.pools(), [self.container(name) for name in (slots, claimed)]), (pools, before))


class ServerWithoutTaints(TwoDoors):
    """Of the API server the feature is off, as in an old cluster: it drops the field and says nothing."""
    doors = "dra,slots"

    def serve(self, *flags):
        self.ring.stop_api_server()
        self.ring.start_api_server(*flags)
        self.ring.wait_api_server()

    def slice_writes(self):
        """Requests that would have changed ResourceSlices, by the server's own log."""
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        return sum('"resource":"resourceslices"' in line for line in log.read_text(errors="replace").splitlines())

    def test_it_is_asked_once_and_cards_are_shared(self):
        self.addCleanup(self.serve)
        self.serve("--feature-gates=DRADeviceTaints=false")
        before = self.slice_writes()
        slots = self.by_slot(0)
        self.wait_ready(slots, 90)
        time.sleep(5)
        self.assertEqual(self.slice_writes() - before, 1)
        self.assertEqual(self.tainted(), set())
        self.assertIn("DRADeviceTaints", self.node.state.log("n1-agent").read_text(errors="replace"))
        claimed = self.claim_pod(0)
        self.wait_ready(claimed, 90)
        self.assertEqual(self.card_of(claimed), 0)


if __name__ == "__main__":
    main()
