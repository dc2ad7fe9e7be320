"""A card becomes unhealthy under running pods, by DRA and by slots: they go on, new pods avoid it or get the reason,
and the card recovers.

Faults are injected into the simulated driver (carve-simctl); what runs is read from the driver's own account.
"""
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import binder, images  # noqa: E402
from ring.testing import CarveTest, in_soak, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
HOLD = ["ring-look", "allocate", str(GIB), "hold", "3600"]
TAINT = "gpu.elasticgpu.io/unhealthy"
BY_SLOTS = "gpu.elasticgpu.io/used-by-slots"
SECONDS = 10  # within which both kubelet plugins must report the card
HANGING = 30    # the same for a library that hangs: one late answer is not an error (docs/health.md)
KUBELET = 10  # the interval at which the kubelet writes its node's status


class Health(CarveTest):
    plugins = "dra,slots"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.node = cls.ring.node(1)
        cls.cards = [card["uuid"] for card in cls.carve.truth("cards")["cards"]]
        wait_for("slots on the node", 30, lambda: cls.slots("allocatable") > 0)
        cls.total = cls.slots("capacity")
        cls.per_card = cls.total // len(cls.cards)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.repair)
        self.wait_healthy()

    def repair(self):
        self.simctl("hang", "off")
        self.simctl("driver", "back")
        for card in range(2):
            self.simctl("return", card)

    # --- helpers ---------------------------------------------------------------------------------------------------

    def simctl(self, *words):
        self.node.run([self.ring.build / "bin" / "carve-simctl", *map(str, words)])

    @classmethod
    def slots(cls, what):
        return int(cls.kube.get("Node", "n1")["status"][what].get(binder.SLOT, 0))

    def healthy_slots(self):
        """The number of healthy slots that the kubelet has, from its checkpoint."""
        file = self.node.folder / "var-lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        return len(json.loads(file.read_text())["Data"]["RegisteredDevices"].get(binder.SLOT) or [])

    def held(self):
        """Slots of the running pods, from their specs."""
        return sum(int(container.get("resources", {}).get("limits", {}).get(binder.SLOT, 0))
                   for found in self.kube.list("Pod", None) if found["status"].get("phase") == "Running"
                   for container in found["spec"]["containers"])

    def claim_gets_the_card_of_slots(self, waiting, card):
        """The claim of `waiting` is for a healthy card of which pods have slices by slots. It must wait for their end,
        because the scheduler does not count them."""
        self.assertEqual(set(self.devices(BY_SLOTS)), set(self.cards))
        self.assertEqual({uuid for uuid, taints in self.devices(BY_SLOTS).items() if taints}, {self.cards[card]})
        self.assertEqual(self.phase(waiting["metadata"]["name"]), "Pending")
        for one in self.kube.list("Pod"):
            if one["spec"]["schedulerName"] == binder.SCHEDULER:
                self.kube.delete("Pod", one["metadata"]["name"], grace=0)
        self.wait_ready(waiting["metadata"]["name"])
        self.assertEqual([taints for taints in self.devices(BY_SLOTS).values() if taints], [])

    def devices(self, key=TAINT):
        """uuid -> values of the published taints with that key."""
        found = {}
        for item in self.carve.published():
            for device in item["spec"]["devices"]:
                found[device["attributes"]["uuid"]["string"]] = [
                    taint["value"] for taint in device.get("taints", []) if taint["key"] == key]
        return found

    def tainted(self):
        return {uuid for uuid, taints in self.devices().items() if taints}

    def wait_healthy(self, seconds=45):
        wait_for("no card is tainted", seconds, lambda: not self.tainted())
        wait_for("all slots are allocatable", seconds, lambda: self.slots("allocatable") == self.total)
        self.assertEqual(set(self.devices()), set(self.cards))

    def wait_bad(self, cards, seconds=SECONDS):
        """Within one deadline DRA and slots must report exactly these cards as unhealthy, and totals must stay. For
        slots the kubelet's checkpoint counts; the Node's status follows when the kubelet writes it next."""
        begun = time.monotonic()
        wanted = {self.cards[card] for card in cards}
        # A running container's slots are never removed from the list; no other slots of these cards are left.
        left = max(self.total - self.per_card * len(cards), self.held())
        sources = {"taints": lambda: self.tainted() == wanted, "slots": lambda: self.healthy_slots() == left}
        seen = {}

        def all_seen():
            seen.update({what: time.monotonic() - begun for what,
                         holds in sources.items() if what not in seen and holds()})
            return len(seen) == len(sources)
        try:
            wait_for("taints and slots", seconds, all_seen)
        except AssertionError:
            self.fail(f"after {seconds} s only {seen}: tainted {self.tainted()}, {self.healthy_slots()} slots, "
                      f"not {left}")
        self.assertLessEqual(max(seen.values()), seconds, seen)
        try:
            wait_for("slots", KUBELET + 5, lambda: self.slots("allocatable") == left)
        except AssertionError:
            self.fail(f"{self.slots('allocatable')} slots are allocatable, not {left}")
        print(f"\ntaints after {seen['taints']:.1f} s, slots after {seen['slots']:.1f} s, on the Node after "
              f"{time.monotonic() - begun:.1f} s", flush=True)
        self.assertEqual(self.slots("capacity"), self.total)
        self.assertEqual(set(self.devices()), set(self.cards))

    def claim_pod(self, card):
        """A pod with a DRA claim for this card."""
        template = self.name("template")
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": template, "namespace": "default"},
                     "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                         "deviceClassName": "gpu.elasticgpu.io",
                         "capacity": {"requests": {"memory": "4Gi", "cores": "10"}},
                         "selectors": [{"cel": {"expression":
                             f'device.attributes["gpu.elasticgpu.io"].uuid == "{self.cards[card]}"'}}]}}]}}}})
        return self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, claims={"gpu": template}, node="n1"))

    def slot_pod(self, card):
        """A pod with a slot and a record for this card."""
        made = pod(self.name(), schedulerName=binder.SCHEDULER)
        made["spec"]["containers"] = [binder.with_slots(
            {"name": "main", "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": HOLD}, 1)]
        made = self.create(made)
        binder.bind(self.kube, made, "n1", binder.record(
            made["metadata"]["uid"], {"main": [(self.cards[card], 4 * GIB, 10)]}, (), 1))
        return made

    def running(self, card):
        """Starts one pod by DRA and one by slots on this card. Returns name -> container, which must not change."""
        pods = []
        for make in (self.claim_pod, self.slot_pod):    # in this order: a card used by slots is offered to no claim
            pods.append(make(card))
            self.wait_ready(pods[-1]["metadata"]["name"])
        return {one["metadata"]["name"]: self.container(one["metadata"]["name"]) for one in pods}

    def container(self, name):
        return self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"]

    def assert_go_on(self, before):
        for name, container in before.items():
            found = self.kube.get("Pod", name)
            self.assertEqual(found["status"]["phase"], "Running", self.describe(name))
            status = found["status"]["containerStatuses"][0]
            self.assertEqual((status["containerID"], status["restartCount"]), (container, 0), self.describe(name))

    def wait_refused(self, made, *words):
        """Waits for a Warning event on the pod that contains all these words."""
        def warnings():
            return [m for kind, reason, m in self.kube.events_of(made) if kind == "Warning" and reason == "SliceRefused"
                    and all(word in m for word in words)]
        try:
            wait_for("an event on the pod", 45, warnings)
        except AssertionError as error:
            raise AssertionError(f"{error}: {words}\n{self.describe(made['metadata']['name'])}") from None

    # --- cases -----------------------------------------------------------------------------------------------------

    def test_an_xid_makes_one_card_unhealthy(self):
        before = self.running(0)
        held = {process["pid"] for process in self.carve.living()}
        self.simctl("xid", 0, 64)  # a row that could not be remapped: work continues, the card needs a reset
        self.wait_bad([0])
        (value,) = self.devices()[self.cards[0]]
        self.assertIn("xid-64", value)
        self.assertIn("XID 64", next(card for card in self.carve.inspect()["cards"]
                                     if card["uuid"] == self.cards[0])["health_reason"])
        # New pods: the scheduler does not place on this card; a record that names it is refused with the reason.
        waiting, refused, neighbour = self.claim_pod(0), self.slot_pod(0), self.claim_pod(1)
        self.wait_ready(neighbour["metadata"]["name"])
        self.wait_refused(refused, "unhealthy", "XID 64")
        self.assertEqual(self.phase(waiting["metadata"]["name"]), "Pending")
        self.assert_go_on(before)
        self.assertTrue(held <= {process["pid"] for process in self.carve.living()}, "a process was ended")
        states = [one["state"] for one in self.carve.inspect()["slices"]]
        self.assertEqual(sum("card unhealthy" in state for state in states), 2, states)
        self.wait_pod_health(before, "Unhealthy")
        self.simctl("return", 0)
        self.wait_healthy()
        self.wait_pod_health(before, "Healthy")
        self.assert_go_on(before)
        self.claim_gets_the_card_of_slots(waiting, 0)

    def wait_pod_health(self, names, health):
        """Waits until the kubelet's health stream has reached the pods' status (those with DRA claims)."""
        def reported():
            for name in names:
                status = self.kube.get("Pod", name)["status"]["containerStatuses"][0]
                for resource in status.get("allocatedResourcesStatus", []):
                    if resource["name"].startswith("claim:"):
                        return [one["health"] for one in resource["resources"]] == [health]
            return False
        wait_for(f"the pod's status reports {health}", 30, reported)

    def test_a_programs_own_error_affects_no_other_pod(self):
        before = self.running(0)
        guilty = self.carve.living()[0]["pid"]
        self.simctl("xid", 0, 31, "--pid", guilty)
        wait_for("the agent counts the error", SECONDS, lambda: any(
            "31 (1)" in card["remark"] for card in self.carve.inspect()["cards"]))
        pods = [self.kube.get("Pod", name) for name in sorted({name for kind, name, _ in self.created if kind == "Pod"})]
        said = wait_for("the event on the card's pods", SECONDS, lambda: [
            message for found in pods for _, reason, message in self.kube.events_of(found) if reason == "GPUProgramError"])
        self.assertIn("XID 31", said[0])
        self.assertEqual(self.tainted(), set())
        self.assertEqual(self.slots("allocatable"), self.total)
        new = self.slot_pod(0)
        self.wait_ready(new["metadata"]["name"])
        self.assert_go_on(before)

    def test_a_card_that_is_lost_is_used_again_after_its_return(self):
        before = self.running(1)
        self.simctl("lose", 1)
        self.wait_bad([1])
        refused = self.slot_pod(1)
        self.wait_refused(refused, "unhealthy", "XID 79")
        self.assert_go_on(before)  # its contexts are lost; the program may or may not end
        self.simctl("return", 1)
        self.wait_healthy()
        new = self.slot_pod(1)
        self.wait_ready(new["metadata"]["name"])
        self.claim_gets_the_card_of_slots(self.claim_pod(1), 1)

    def admission_failed(self, made):
        """True when the kubelet has refused the pod because of its slots."""
        status = self.kube.get("Pod", made["metadata"]["name"])["status"]
        return (status.get("phase"), status.get("reason")) == ("Failed", "UnexpectedAdmissionError") and \
            binder.SLOT in status["message"]

    @in_soak
    def test_a_hanging_driver_library_makes_all_cards_unhealthy(self):
        before = self.running(0)
        self.simctl("hang", "on")
        self.wait_bad(range(len(self.cards)), HANGING)
        refused = self.slot_pod(1)
        # The kubelet refuses it when no slot is left, else the agent with the reason.
        try:
            wait_for("refused", 45, lambda: self.admission_failed(refused)
                     or [m for kind, _, m in self.kube.events_of(refused) if kind == "Warning" and "hanging" in m])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(refused['metadata']['name'])}") from None
        self.assert_go_on(before)
        self.simctl("hang", "off")
        self.wait_healthy()
        self.assert_go_on(before)
        new = self.slot_pod(1)
        self.wait_ready(new["metadata"]["name"])

    @in_soak
    def test_without_the_driver_cards_are_unhealthy_and_the_agent_starts(self):
        before = self.running(0)
        self.simctl("driver", "gone")
        self.wait_bad(range(len(self.cards)))
        published = {item["metadata"]["name"]: item["spec"]["pool"]["generation"] for item in self.carve.published()}
        self.carve.kill_agent()
        self.carve.start_agent()
        self.wait_bad(range(len(self.cards)))
        self.assert_go_on(before)
        self.assertEqual(len(self.carve.inspect()["slices"]), 2)
        waiting = self.claim_pod(1)
        time.sleep(3)
        self.assertEqual(self.phase(waiting["metadata"]["name"]), "Pending")
        self.assertEqual(self.tainted(), set(self.cards))
        self.assertEqual({item["metadata"]["name"]: item["spec"]["pool"]["generation"]
                          for item in self.carve.published()}, published, "the pool is the same one")
        self.simctl("driver", "back")
        self.wait_healthy()
        self.wait_ready(waiting["metadata"]["name"])
        self.assert_go_on(before)
        for name in before:
            self.assert_limited(name)


if __name__ == "__main__":
    main()
