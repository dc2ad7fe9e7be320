"""A card breaks under running pods, by both doors: they go on, new ones avoid it or are told why not, and it heals.

What breaks is injected into the simulated driver (carve-simctl); what runs is read from its own account.
"""
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import binder, images  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
HOLD = ["ring-look", "allocate", str(GIB), "hold", "3600"]
TAINT = "gpu.elasticgpu.io/unhealthy"
BY_SLOTS = "gpu.elasticgpu.io/used-by-slots"
SECONDS = 10  # within which everybody has to know
KUBELET = 10  # so often it writes its node's status


class Health(CarveTest):
    doors = "dra,slots"

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
        self.addCleanup(self.mend)
        self.wait_well()

    def mend(self):
        self.simctl("hang", "off")
        self.simctl("driver", "back")
        for card in range(2):
            self.simctl("return", card)

    # --- words -----------------------------------------------------------------------------------------------------

    def simctl(self, *words):
        self.node.run([self.ring.build / "bin" / "carve-simctl", *map(str, words)])

    @classmethod
    def slots(cls, what):
        return int(cls.kube.get("Node", "n1")["status"][what].get(binder.SLOT, 0))

    def healthy_slots(self):
        """So many slots the kubelet has been told are well, by its own file."""
        file = self.node.folder / "var-lib/kubelet/device-plugins/kubelet_internal_checkpoint"
        return len(json.loads(file.read_text())["Data"]["RegisteredDevices"].get(binder.SLOT) or [])

    def held(self):
        """Slots of the pods that run, by their specs."""
        return sum(int(container.get("resources", {}).get("limits", {}).get(binder.SLOT, 0))
                   for found in self.kube.list("Pod", None) if found["status"].get("phase") == "Running"
                   for container in found["spec"]["containers"])

    def claim_gets_the_card_of_slots(self, waiting, card):
        """The claim of `waiting` is for a well card of which pods hold something by slots: it has to wait for their end,
        since the scheduler does not count them."""
        self.assertEqual(set(self.devices(BY_SLOTS)), set(self.cards))
        self.assertEqual({uuid for uuid, taints in self.devices(BY_SLOTS).items() if taints}, {self.cards[card]})
        self.assertEqual(self.phase(waiting["metadata"]["name"]), "Pending")
        for one in self.kube.list("Pod"):
            if one["spec"]["schedulerName"] == binder.SCHEDULER:
                self.kube.delete("Pod", one["metadata"]["name"], grace=0)
        self.wait_ready(waiting["metadata"]["name"])
        self.assertEqual([taints for taints in self.devices(BY_SLOTS).values() if taints], [])

    def devices(self, key=TAINT):
        """uuid -> values of its taints of that key, as published."""
        found = {}
        for item in self.carve.published():
            for device in item["spec"]["devices"]:
                found[device["attributes"]["uuid"]["string"]] = [
                    taint["value"] for taint in device.get("taints", []) if taint["key"] == key]
        return found

    def tainted(self):
        return {uuid for uuid, taints in self.devices().items() if taints}

    def wait_well(self, seconds=45):
        wait_for("no card is tainted", seconds, lambda: not self.tainted())
        wait_for("all slots are allocatable", seconds, lambda: self.slots("allocatable") == self.total)
        self.assertEqual(set(self.devices()), set(self.cards))

    def wait_bad(self, cards):
        """Both doors say so of exactly these cards within one deadline, and totals stay. That the slots' door has said so
        is what the kubelet notes of it; the Node's status follows when the kubelet writes that next."""
        begun = time.monotonic()
        wanted = {self.cards[card] for card in cards}
        # What a running container holds is never taken out of the list; nothing else is left.
        left = max(self.total - self.per_card * len(cards), self.held())
        doors = {"taints": lambda: self.tainted() == wanted, "slots": lambda: self.healthy_slots() == left}
        said = {}

        def all_said():
            said.update({door: time.monotonic() - begun for door, holds in doors.items() if door not in said and holds()})
            return len(said) == len(doors)
        try:
            wait_for("both doors", SECONDS, all_said)
        except AssertionError:
            self.fail(f"after {SECONDS} s only {said}: tainted {self.tainted()}, {self.healthy_slots()} slots, not {left}")
        self.assertLessEqual(max(said.values()), SECONDS, said)
        try:
            wait_for("slots", KUBELET + 5, lambda: self.slots("allocatable") == left)
        except AssertionError:
            self.fail(f"{self.slots('allocatable')} slots are allocatable, not {left}")
        print(f"\ntaints after {said['taints']:.1f} s, slots after {said['slots']:.1f} s, on the Node after "
              f"{time.monotonic() - begun:.1f} s", flush=True)
        self.assertEqual(self.slots("capacity"), self.total)
        self.assertEqual(set(self.devices()), set(self.cards))

    def claim_pod(self, card):
        """A pod by the DRA door that wants this very card."""
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
        """A pod by the slot door whose record names this card."""
        made = pod(self.name(), schedulerName=binder.SCHEDULER)
        made["spec"]["containers"] = [binder.with_slots(
            {"name": "main", "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": HOLD}, 1)]
        made = self.create(made)
        binder.bind(self.kube, made, "n1", binder.record(
            made["metadata"]["uid"], {"main": [(self.cards[card], 4 * GIB, 10)]}, (), 1))
        return made

    def running(self, card):
        """One pod by each door on this card; what must not change of them."""
        pods = []
        for make in (self.claim_pod, self.slot_pod):    # not the other way round: what slots use is offered to no claim
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
        """A Warning event on the pod that names the cause."""
        def told():
            return [m for kind, reason, m in self.kube.events_of(made) if kind == "Warning" and reason == "SliceRefused"
                    and all(word in m for word in words)]
        try:
            wait_for("an event on the pod", 45, told)
        except AssertionError as error:
            raise AssertionError(f"{error}: {words}\n{self.describe(made['metadata']['name'])}") from None

    # --- cases -----------------------------------------------------------------------------------------------------

    def test_an_xid_on_one_card(self):
        before = self.running(0)
        held = {process["pid"] for process in self.carve.living()}
        self.simctl("xid", 0, 64)  # a row that could not be remapped: work goes on, the card wants a reset
        self.wait_bad([0])
        (value,) = self.devices()[self.cards[0]]
        self.assertIn("xid-64", value)
        self.assertIn("XID 64", next(card for card in self.carve.inspect()["cards"]
                                     if card["uuid"] == self.cards[0])["health_reason"])
        # New ones: the scheduler does not place on it; what was placed by a record is refused by name.
        waiting, refused, beside = self.claim_pod(0), self.slot_pod(0), self.claim_pod(1)
        self.wait_ready(beside["metadata"]["name"])
        self.wait_refused(refused, "unhealthy", "XID 64")
        self.assertEqual(self.phase(waiting["metadata"]["name"]), "Pending")
        self.assert_go_on(before)
        self.assertTrue(held <= {process["pid"] for process in self.carve.living()}, "a process was ended")
        states = [one["state"] for one in self.carve.inspect()["slices"]]
        self.assertEqual(sum("card unhealthy" in state for state in states), 2, states)
        self.wait_pod_told(before, "Unhealthy")
        self.simctl("return", 0)
        self.wait_well()
        self.wait_pod_told(before, "Healthy")
        self.assert_go_on(before)
        self.claim_gets_the_card_of_slots(waiting, 0)

    def wait_pod_told(self, names, health):
        """The kubelet's health stream reached the pods' status (those of the DRA door)."""
        def told():
            for name in names:
                status = self.kube.get("Pod", name)["status"]["containerStatuses"][0]
                for resource in status.get("allocatedResourcesStatus", []):
                    if resource["name"].startswith("claim:"):
                        return [one["health"] for one in resource["resources"]] == [health]
            return False
        wait_for(f"the pod's status says {health}", 30, told)

    def test_a_programs_own_error_harms_nobody_else(self):
        before = self.running(0)
        guilty = self.carve.living()[0]["pid"]
        self.simctl("xid", 0, 31, "--pid", guilty)
        wait_for("the agent counts it", SECONDS, lambda: any(
            "31 (1)" in card["remark"] for card in self.carve.inspect()["cards"]))
        pods = [self.kube.get("Pod", name) for name in sorted({name for kind, name, _ in self.created if kind == "Pod"})]
        said = wait_for("the pods on the card are told", SECONDS, lambda: [
            message for found in pods for _, reason, message in self.kube.events_of(found) if reason == "GPUProgramError"])
        self.assertIn("XID 31", said[0])
        self.assertEqual(self.tainted(), set())
        self.assertEqual(self.slots("allocatable"), self.total)
        new = self.slot_pod(0)
        self.wait_ready(new["metadata"]["name"])
        self.assert_go_on(before)

    def test_a_card_is_lost_and_back(self):
        before = self.running(1)
        self.simctl("lose", 1)
        self.wait_bad([1])
        refused = self.slot_pod(1)
        self.wait_refused(refused, "unhealthy", "XID 79")
        self.assert_go_on(before)  # its contexts died; whether it ends is its own affair
        self.simctl("return", 1)
        self.wait_well()
        new = self.slot_pod(1)
        self.wait_ready(new["metadata"]["name"])
        self.claim_gets_the_card_of_slots(self.claim_pod(1), 1)

    def admission_failed(self, made):
        """The kubelet has refused the pod for its slots, and for nothing else."""
        status = self.kube.get("Pod", made["metadata"]["name"])["status"]
        return (status.get("phase"), status.get("reason")) == ("Failed", "UnexpectedAdmissionError") and \
            binder.SLOT in status["message"]

    def test_the_library_hangs(self):
        before = self.running(0)
        self.simctl("hang", "on")
        self.wait_bad(range(len(self.cards)))
        refused = self.slot_pod(1)
        # By the kubelet where no slot is left, else by name.
        try:
            wait_for("refused", 45, lambda: self.admission_failed(refused)
                     or [m for kind, _, m in self.kube.events_of(refused) if kind == "Warning" and "hanging" in m])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(refused['metadata']['name'])}") from None
        self.assert_go_on(before)
        self.simctl("hang", "off")
        self.wait_well()
        self.assert_go_on(before)
        new = self.slot_pod(1)
        self.wait_ready(new["metadata"]["name"])

    def test_the_driver_is_gone_and_the_agent_starts_without_it(self):
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
        self.wait_well()
        self.wait_ready(waiting["metadata"]["name"])
        self.assert_go_on(before)
        for name in before:
            self.assert_limited(name)


if __name__ == "__main__":
    main()
