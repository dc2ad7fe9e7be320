"""More nodes than kube-scheduler looks at: a pod finds the one node that has room, wherever it stands; and pods rest.

A real kube-scheduler, real control, and 250 nodes with a card each that are objects alone. With
percentageOfNodesToScore: 0 kube-scheduler looks at 48 % of so many for each pod, and its own filters let all of them
pass. The cards are filled by pods of priority 0 that are bound to them beforehand.
"""
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import binder, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import in_soak  # noqa: E402

NODES = 250
SOON = 3.0      # s, from the room to the Binding: of 2 s that a pod may wait, and what a busy machine adds
TAINT = {"key": "ring.test/closed", "effect": "NoSchedule"}


def pod_of(name, node=None, priority=None, cards=1):
    """Whole cards. `node`: it has been given one."""
    spec = {"schedulerName": "carve-scheduler", "automountServiceAccountToken": False,
            "nodeSelector": {placing.LABEL: "true"},
            "tolerations": placing.WITHOUT_KUBELET,
            "containers": [{"name": "c", "image": "none",
                            "resources": {"limits": {binder.SLOT: "1", "nvidia.com/gpu": str(cards)}}}]}
    if node:
        spec["nodeName"] = node
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "labels": {placing.LABEL: "true"}}}


class FullCluster(unittest.TestCase):
    longMessage = True
    PERCENTAGE = None       # as deployed

    @classmethod
    def setUpClass(cls):
        if cls is FullCluster:
            raise unittest.SkipTest("what the classes below share")
        cls.ring = Ring.load()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("overlooked"))
        cls.kube = cls.placing.kube
        cls.addClassCleanup(cls.placing.uninstall)
        cls.placing.install()
        cls.placing.make_nodes(NODES, 1)
        cls.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                         "metadata": {"name": "overlooked-high"}})
        cls.addClassCleanup(cls.kube.delete, "PriorityClass", "overlooked-high")
        cls.placing.start_control()
        cls.placing.each(range(NODES), lambda kube, i: kube.create(pod_of(f"full-{i:03}", f"sim-{i:04}")))
        wait_for("every card is taken", 60, lambda: cls.placing.metric('carve_pods{state="holding"}') == NODES, every=0.5)
        cls.placing.start_scheduler(percentage=cls.PERCENTAGE)

    def setUp(self):
        self.made = []      # pods that wait, or got what was freed

    def free(self, index):
        self.kube.delete("Pod", f"full-{index:03}", grace=0)
        self.addCleanup(self.fill, index)

    def fill(self, index):
        while self.made:
            self.kube.delete("Pod", self.made.pop(), grace=0)
        self.kube.create(pod_of(f"full-{index:03}", f"sim-{index:04}"))
        wait_for("its card is taken again", 20, lambda: self.record(f"full-{index:03}"), every=0.1)

    def record(self, name):
        pod = self.kube.get("Pod", name)
        return pod and pod["metadata"].get("annotations", {}).get(binder.RECORD)

    def waits(self, name, **options):
        self.kube.create(pod_of(name, **options))
        self.made.append(name)

    def refused(self, name):
        conditions = self.kube.get("Pod", name)["status"].get("conditions", [])
        return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)

    def node_of(self, name):
        return self.kube.get("Pod", name)["spec"].get("nodeName")

    def bound_after(self, name, since):
        wait_for(f"{name} is bound", 30, lambda: self.node_of(name), every=0.02)
        return time.monotonic() - since

    def named_to(self, name):
        return self.kube.get("Pod", name)["status"].get("nominatedNodeName")

    def node_named_to(self, name):
        """Once there is one: for a second there may be none (Preemptor::name_again)."""
        return wait_for("a node is named to it", 10, lambda: self.named_to(name))

    def victims(self):
        return self.placing.metric("carve_control_preemption_victims_total")

    def makes_room_for(self, name, within):
        """It comes, and somebody goes for it within so many seconds: how many."""
        went, since = self.victims(), time.monotonic()
        self.waits(name, priority="overlooked-high")
        wait_for("somebody goes for it", within, lambda: self.victims() == went + 1, every=0.1)
        return time.monotonic() - since

    def gone(self, node):
        """Its pod ends, whom no kubelet ends."""
        index = int(node[4:])
        self.kube.delete("Pod", f"full-{index:03}", grace=0)
        self.addCleanup(self.fill, index)

    def looked(self):
        """Calls of kube-scheduler's for a node, so far."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.placing.metrics().splitlines()
                   if line.startswith("carve_control_requests_total{") and 'verb="filter"' in line)

    def named(self, what="carve_control_nodes_named_total"):
        return self.placing.metric(what)


class Rests(FullCluster):
    @in_soak
    def test_a_pod_that_fits_nowhere_is_not_tried_again_and_again(self):
        """kube-scheduler looks for victims of its own for a pod of higher priority than others: in vain, since it knows
        of no cards. Where it called that an error, in other words each time, it tried the pod 30 times a second."""
        self.waits("rests", priority="overlooked-high", cards=2)
        wait_for("it was refused", 20, lambda: self.refused("rests"), every=0.05)
        time.sleep(2)       # the name of its condition, and what that had it try once more
        before = placing.status_writes(self.ring, "rests")
        time.sleep(5)
        self.assertLessEqual(placing.status_writes(self.ring, "rests") - before, 2)
        self.assertGreater(before, 0)
        message = self.kube.get("Pod", "rests")["status"]["conditions"][0]["message"]
        self.assertIn("250 too few cards are free", message)
        self.kube.delete("Pod", "rests", grace=0)

    @in_soak
    def test_a_pod_that_is_tried_while_others_go_for_it_has_a_node_named(self):
        """By the name the next leader knows of the room. A try that was under way takes it back; control names it
        again."""
        self.makes_room_for("urgent", within=20)
        node, looked = self.node_named_to("urgent"), self.looked()
        for i in range(3):
            self.kube.patch("Node", "sim-0249", {"metadata": {"annotations": {"ring.test/touch": str(i)}}}, None)
            time.sleep(1)
        wait_for("it was tried meanwhile", 10, lambda: self.looked() > looked)
        self.assertEqual(self.node_named_to("urgent"), node)
        self.gone(node)
        self.bound_after("urgent", time.monotonic())
        self.assertEqual(self.node_of("urgent"), node)


class NodeNominator(FullCluster):
    PERCENTAGE = 0

    @in_soak
    def test_whoever_waits_gets_the_room_soon_wherever_it_is(self):
        """The part that is looked at begins elsewhere each time: with luck the room is in it, otherwise control names
        the node, as the test of those named in vain asserts."""
        before, took = self.named(), []
        for index in (3, 130, 249):
            name = f"waits-{index}"
            self.waits(name)
            wait_for("it was refused", 20, lambda n=name: self.refused(n), every=0.05)
            since = time.monotonic()
            self.free(index)
            took.append(self.bound_after(name, since))
            self.assertEqual(self.node_of(name), f"sim-{index:04}")
            self.doCleanups()
            wait_for("nobody waits", 20, lambda: self.placing.metric('carve_pods{state="waiting"}') == 0, every=0.1)
        print("\nfrom the room to the Binding, s: " + ", ".join(f"{one:.2f}" for one in took) +
              f"; named by control: {self.named() - before:.0f}")
        # A pod without a kubelet is gone at once; what it held is counted for some seconds more
        # (ClusterModel::kLinger).
        self.assertLess(max(took), SOON + 3)

    def test_a_pod_that_comes_finds_the_one_free_node(self):
        self.free(200)
        wait_for("control knows", 20, lambda: self.placing.metric('carve_pods{state="holding"}') == NODES - 1, every=0.1)
        time.sleep(3.5)      # it is counted that much longer (ClusterModel::kLinger)
        took = []
        for i in range(3):
            name = f"comes-{i}"
            since = time.monotonic()
            self.kube.create(pod_of(name))
            took.append(self.bound_after(name, since))
            self.assertEqual(self.node_of(name), "sim-0200")
            self.kube.delete("Pod", name, grace=0)
            time.sleep(3.5)
        print("\nfrom its creation to the Binding, s: " + ", ".join(f"{one:.2f}" for one in took))
        self.assertLess(max(took), SOON)

    def test_nobody_goes_while_a_node_beside_the_part_is_free(self):
        went = self.victims()
        self.free(77)
        time.sleep(3.5)
        for i in range(2):
            name = f"high-{i}"
            self.kube.create(pod_of(name, priority="overlooked-high"))
            self.bound_after(name, time.monotonic())
            self.assertEqual(self.node_of(name), "sim-0077")
            self.kube.delete("Pod", name, grace=0)
            time.sleep(3.5)
        self.assertEqual(self.victims(), went)

    @in_soak
    def test_where_more_than_cards_is_missing_it_is_in_vain_and_then_others_go(self):
        """Free, and closed to the pod by a taint, which control does not look at."""
        for index in (10, 110, 210):
            self.kube.patch("Node", f"sim-{index:04}", {"spec": {"taints": [TAINT]}}, None)
            self.addCleanup(self.kube.patch, "Node", f"sim-{index:04}", {"spec": {"taints": None}}, None)
            self.free(index)
        time.sleep(3.5)
        vain = self.named("carve_control_nodes_named_in_vain_total")
        self.waits("tainted")
        # The ring's own node, if it has cards, is not for these pods either: one more.
        wait_for("all of them were named in vain", 40, lambda:
                 self.named("carve_control_nodes_named_in_vain_total") >= vain + 3 and
                 not self.named_to("tainted"), every=0.2)
        self.assertIsNone(self.node_of("tainted"))
        self.makes_room_for("higher", within=60)
        node = self.node_named_to("higher")
        self.assertNotIn(node, ("sim-0010", "sim-0110", "sim-0210"))
        self.gone(node)
        self.bound_after("higher", time.monotonic())
        self.assertEqual(self.node_of("higher"), node)

    @in_soak
    def test_somebody_goes_for_a_pod_that_is_tried_without_end(self):
        """kube-scheduler's own dry run on nodes that it did not look at ends in an error that names one of them at
        random. It writes that to the pod, is woken by what it wrote, and tries the pod again: a hundred times a
        second."""
        took = self.makes_room_for("urgent", within=60)
        self.gone(self.node_named_to("urgent"))
        self.bound_after("urgent", time.monotonic())
        print(f"\nfrom its creation to the eviction: {took:.2f} s")
        self.assertLess(took, 10)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
