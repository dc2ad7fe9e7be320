"""One card used by DRA and slots: a card with slices by slots is offered to no new claim, unless sharing is configured.

The scheduler is the stock one; the test writes the records (ring/binder.py). A claim's card is read from its
allocation, a node's offer from its ResourceSlices.
"""
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import control_plane, images  # noqa: E402
from ring.slot_testing import SlotTest, slot_pod  # noqa: E402
from ring.testing import in_soak, main, pod, wait_for  # noqa: E402

TAINT = "gpu.elasticgpu.io/used-by-slots"
FULL = "gpu.elasticgpu.io/full"
TOLERATION = [{"key": TAINT, "operator": "Exists"}]
HOLD = ["ring-look", "hold", "3600"]
SECONDS = 10    # within which a taint is added or removed: it stays for five after the last slice


class DraAndSlots(SlotTest):
    def setUp(self):
        self.addCleanup(self.untainted, 30)     # runs last, after the pods are gone
        super().setUp()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def devices(self):
        """The node's devices as published."""
        return [device for item in self.carve.published() for device in item["spec"]["devices"]]

    def tainted(self):
        """The indexes of the cards that are kept from new claims."""
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
        """The generation of each pool: it changes only when something other than taints changes."""
        return {item["metadata"]["name"]: item["spec"]["pool"]["generation"] for item in self.carve.published()}

    def writes(self):
        """The number of changes of the node's ResourceSlices, from the server's generation counters."""
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
        """Creates a pod with a claim of its own. Returns its name."""
        template = self.name("template")
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": template, "namespace": "default"},
                     "spec": {"spec": self.request(*wanted, **more)}})
        return self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, claims={"gpu": template},
                               node="n1"))["metadata"]["name"]

    def sharing_pod(self, claim):
        """Creates a pod that uses an existing claim. Returns its name."""
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

    def wait_unschedulable(self, name):
        """Waits until the scheduler has tried the pod and found no card."""
        made = self.kube.get("Pod", name)
        wait_for("FailedScheduling", 30, lambda: [
            message for _, reason, message in self.kube.events_of(made) if reason == "FailedScheduling"])
        self.assertIsNone(self.kube.get("Pod", name)["spec"].get("nodeName"))

    def container(self, name):
        status = self.kube.get("Pod", name)["status"]["containerStatuses"][0]
        return status["containerID"], status["restartCount"]

    def gone(self, name):
        self.kube.delete("Pod", name, grace=0)
        wait_for(f"{name} is gone", 60, lambda: self.kube.get("Pod", name) is None, 0.05)


class Apart(DraAndSlots):
    plugins = "dra,slots"

    def test_a_card_that_slots_use_is_offered_to_no_new_claim(self):
        pools = self.pools()
        claim = self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": self.request(0),
                             "metadata": {"name": self.name("claim"), "namespace": "default"}})["metadata"]["name"]
        there = self.sharing_pod(claim)
        self.wait_ready(there)
        self.assertEqual(self.tainted(), set(), "a claim must not exclude other claims")
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
        self.wait_unschedulable(waiting)
        self.assertEqual(self.container(there), before, "an earlier claim must keep the card")
        self.gone(slots)
        self.untainted()
        self.wait_ready(waiting)
        self.assertEqual(self.container(there), before)
        self.assertEqual(self.pools(), pools)

    def test_a_claim_with_a_toleration_waits_for_room_on_the_card(self):
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

    def test_a_card_with_room_for_an_elastic_gpu_is_offered_to_no_new_claim(self):
        """The test plays control, which states node and card in the status."""
        name = self.create({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPU", "metadata": {"name": self.name()},
                            "spec": {"capacity": {"elasticgpu.io/gpu-memory": "4096"}}})["metadata"]["name"]
        time.sleep(2)
        self.assertEqual(self.tainted(), set())
        self.ring.kubectl("patch", "elasticgpu", name, "--subresource=status", "--type=merge", "-p", json.dumps(
            {"status": {"phase": "Bound", "node": "n1", "card": self.cards[1]}}))
        self.wait_tainted(1)
        self.carve.kill_agent()
        self.carve.start_agent()
        time.sleep(3)
        self.assertEqual(self.tainted(), {1})
        self.kube.delete("ElasticGPU", name)
        self.untainted()

    def test_a_claim_gets_an_exclusive_card_as_a_whole_and_a_shared_card_never(self):
        modes = "elasticgpu.io/card-modes"
        self.addCleanup(self.ring.kubectl, "annotate", "node", "n1", f"{modes}-")
        self.ring.kubectl("annotate", "node", "n1", f"{modes}=0=exclusive,1=shared")
        wait_for("the devices state the modes", 20, lambda: [device["attributes"].get("cardMode", {}).get("string")
                                                             for device in self.devices()][:2] == ["exclusive", "shared"])
        whole = self.devices()[0]["capacity"]["memory"]["value"]
        alone, waiting = self.claim_pod(0, memory="4Gi"), self.claim_pod(1, memory=whole)
        self.wait_ready(alone)
        used, = self.ring.kubectl("get", "resourceclaim", "-o", "jsonpath={.items[*].status.allocation.devices.results[0]"
                                  ".consumedCapacity.memory}").stdout.split()
        self.assertEqual(used, whole)
        self.wait_unschedulable(waiting)
        fraction = self.claim_pod(1, memory="4Gi")
        self.wait_ready(fraction)

    @in_soak
    def test_consecutive_pods_cost_two_writes(self):
        self.untainted()
        pools, before = self.pools(), self.writes()
        for _ in range(8):
            name = self.by_slot(1, 1)
            wait_for("the pod runs", 60, lambda n=name: self.phase(n) == "Running", 0.05)
            self.wait_tainted(1, seconds=1)
            self.gone(name)
        self.untainted(20)
        self.assertEqual((self.pools(), self.writes() - before), (pools, 2))

    def test_taints_outlive_their_agent(self):
        """Also the taint for a record without a slice yet, which the next agent does not know at its start."""
        self.wait_ready(self.by_slot(0))
        self.by_slot(1, 500)    # more than the card has: refused at each retry
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
            time.sleep(8)   # longer than an unneeded taint stays
        finally:
            end.set()
            thread.join()
        self.assertEqual((seen, self.writes() - before), ({frozenset({0, 1})}, 0))


class Shared(DraAndSlots):
    plugins = "dra,slots,shared"

    def serve(self, plugins):
        self.carve.kill_agent()
        self.carve.plugins = plugins
        self.carve.start_agent()

    def test_cards_are_shared_when_configured_and_kept_apart_by_the_next_agent(self):
        """In both directions: the ResourceSlices differ only in the taint."""
        slots = self.by_slot(0)
        self.wait_ready(slots)
        claimed = self.claim_pod(0)
        self.wait_ready(claimed)
        self.assertEqual((self.card_of(claimed), self.tainted()), (0, set()))
        pools, before = self.pools(), [self.container(name) for name in (slots, claimed)]
        self.addCleanup(self.serve, self.plugins)
        self.serve("dra,slots")
        self.wait_tainted(0)
        self.wait_unschedulable(self.claim_pod(0))
        self.serve("dra,slots,shared")
        self.wait_tainted()
        self.assertEqual((self.pools(), [self.container(name) for name in (slots, claimed)]), (pools, before))


    def full(self):
        """The indexes of the cards that refused a claim for lack of room."""
        return {self.cards.index(device["attributes"]["uuid"]["string"]) for device in self.devices()
                if [taint for taint in device.get("taints", []) if taint["key"] == FULL]}

    def free_of(self, card):
        """GiB that the card has, rounded down."""
        value, = [device["capacity"]["memory"]["value"] for device in self.devices()
                  if device["attributes"]["uuid"]["string"] == self.cards[card]]
        return int(value[:-2]) >> (0 if value.endswith("Gi") else 10)

    def test_a_claim_that_finds_its_card_full_says_so_and_the_next_one_goes_elsewhere(self):
        slots = self.by_slot(0, self.free_of(0) - 2)
        self.wait_ready(slots)
        waiting = self.claim_pod(0)
        made = self.kube.get("Pod", waiting)
        told = wait_for("an event with the reason", 30, lambda: [
            message for _, reason, message in self.kube.events_of(made) if reason == "SliceRefused"])
        self.assertIn("to start it on another card, delete the pod", told[0])
        wait_for("the card takes no new claim", SECONDS, lambda: self.full() == {0}, 0.1)
        elsewhere = self.claim_pod()
        self.wait_ready(elsewhere)
        self.assertNotEqual(self.card_of(elsewhere), 0)
        self.gone(slots)
        self.wait_ready(waiting, 150)       # the kubelet retries
        wait_for("there is room", SECONDS, lambda: not self.full(), 0.1)

    def test_pods_with_claims_end_after_plugins_has_lost_dra(self):
        """The kubelet cannot end a pod while its DRA driver is not registered."""
        ends, stays = self.claim_pod(0), self.claim_pod(1)
        for name in (ends, stays):
            self.wait_ready(name)
        self.addCleanup(self.serve, self.plugins)
        for turn, name in enumerate((ends, stays)):     # the second turn is a restart of the agent
            self.serve("slots")
            wait_for("nothing is offered to claims", 30, lambda: not self.carve.published(), 0.2)
            begun = time.monotonic()
            self.kube.delete("Pod", name, grace=1)
            wait_for(f"{name} has ended", 60, lambda name=name: self.kube.get("Pod", name) is None, 0.1)
            print(f"\nturn {turn}: it ended {time.monotonic() - begun:.1f} s after it was deleted", flush=True)
        registry = self.node.outside("/var/lib/kubelet/plugins_registry")
        wait_for("the driver has gone", 30, lambda: not list(registry.glob("gpu.elasticgpu.io-*")), 0.2)


@in_soak
class ServerWithoutTaints(DraAndSlots):
    """The API server's feature is off, as in an old cluster: it drops the field silently."""
    plugins = "dra,slots"

    def serve(self, *flags):
        self.ring.stop_api_server()
        self.ring.start_api_server(*flags)
        self.ring.wait_api_server()

    def slice_writes(self):
        """Write requests for ResourceSlices in the server's audit log."""
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        return sum('"resource":"resourceslices"' in line for line in log.read_text(errors="replace").splitlines())

    def test_without_device_taints_one_write_is_tried_and_cards_are_shared(self):
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
