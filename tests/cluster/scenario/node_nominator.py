"""More nodes than kube-scheduler looks at: a pod gets the one node with room, wherever that node is in the list, and a
pod that fits nowhere is not retried constantly.

A real kube-scheduler, real control, and 250 nodes with one card each that exist only as objects. With
percentageOfNodesToScore: 0 kube-scheduler looks at 48 % of that many nodes for each pod; its own filters let all of
them pass. The cards are filled by pods of priority 0 that are bound to them beforehand.
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
from ring.testing import in_soak, main  # noqa: E402

NODES = 250
SOON = 3.0      # seconds from the room to the Binding: the 2 s that a pod may wait, and what a busy machine adds
TAINT = {"key": "ring.test/closed", "effect": "NoSchedule"}


def pod_of(name, node=None, priority=None, cards=1):
    """A pod for whole cards. `node`: its node, when it has one already."""
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
            raise unittest.SkipTest("base class of the classes below")
        cls.ring = Ring.load()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("node_nominator"))
        cls.kube = cls.placing.kube
        cls.addClassCleanup(cls.placing.uninstall)
        cls.placing.install()
        cls.placing.make_nodes(NODES, 1)
        cls.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                         "metadata": {"name": "nominator-high"}})
        cls.addClassCleanup(cls.kube.delete, "PriorityClass", "nominator-high")
        cls.placing.start_control()
        cls.placing.each(range(NODES), lambda kube, i: kube.create(pod_of(f"full-{i:03}", f"sim-{i:04}")))
        wait_for("every card is taken", 60, lambda: cls.placing.metric('carve_pods{state="holding"}') == NODES, every=0.5)
        cls.placing.start_scheduler(percentage=cls.PERCENTAGE)

    def setUp(self):
        self.made = []      # pods that wait, or got the freed card

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

    def nominated_node(self, name):
        return self.kube.get("Pod", name)["status"].get("nominatedNodeName")

    def wait_nominated(self, name):
        """Waits for nominatedNodeName: for a second there may be none (Preemptor::name_again)."""
        return wait_for("nominatedNodeName", 10, lambda: self.nominated_node(name))

    def victims(self):
        return self.placing.metric("carve_control_preemption_victims_total")

    def makes_room_for(self, name, within):
        """Creates a pod of high priority and waits for one eviction. Returns how many seconds that took."""
        evicted, since = self.victims(), time.monotonic()
        self.waits(name, priority="nominator-high")
        wait_for("an eviction for it", within, lambda: self.victims() == evicted + 1, every=0.1)
        return time.monotonic() - since

    def gone(self, node):
        """Ends the node's pod, because there is no kubelet to do it."""
        index = int(node[4:])
        self.kube.delete("Pod", f"full-{index:03}", grace=0)
        self.addCleanup(self.fill, index)

    def filter_calls(self):
        """kube-scheduler's filter calls so far."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.placing.metrics().splitlines()
                   if line.startswith("carve_control_requests_total{") and 'verb="filter"' in line)

    def nominations(self, what="carve_control_nodes_named_total"):
        return self.placing.metric(what)


class Rests(FullCluster):
    @in_soak
    def test_a_pod_that_fits_nowhere_is_not_retried_constantly(self):
        """For a pod of higher priority kube-scheduler looks for victims itself, unsuccessfully, because it knows no
        cards. When that counted as an error (with another text each time) it retried the pod 30 times a second."""
        self.waits("rests", priority="nominator-high", cards=2)
        wait_for("the pod is unschedulable", 20, lambda: self.refused("rests"), every=0.05)
        time.sleep(2)       # for the condition's reason and the retry that it causes
        before = placing.status_writes(self.ring, "rests")
        time.sleep(5)
        self.assertLessEqual(placing.status_writes(self.ring, "rests") - before, 2)
        self.assertGreater(before, 0)
        message = self.kube.get("Pod", "rests")["status"]["conditions"][0]["message"]
        self.assertIn("250 too few cards are free", message)
        self.kube.delete("Pod", "rests", grace=0)

    @in_soak
    def test_a_pod_retried_while_its_victims_terminate_keeps_its_nominated_node(self):
        """By this name the next leader knows of the reserved room. A retry in progress clears it; control sets it
        again."""
        self.makes_room_for("urgent", within=20)
        node, calls = self.wait_nominated("urgent"), self.filter_calls()
        for i in range(3):
            self.kube.patch("Node", "sim-0249", {"metadata": {"annotations": {"ring.test/touch": str(i)}}}, None)
            time.sleep(1)
        wait_for("a retry", 10, lambda: self.filter_calls() > calls)
        self.assertEqual(self.wait_nominated("urgent"), node)
        self.gone(node)
        self.bound_after("urgent", time.monotonic())
        self.assertEqual(self.node_of("urgent"), node)


class NodeNominator(FullCluster):
    PERCENTAGE = 0

    @in_soak
    def test_a_waiting_pod_gets_freed_room_soon_on_any_node(self):
        """kube-scheduler starts at another node each time: either the room is in its part, or control nominates the
        node, as the test of unsuccessful nominations asserts."""
        before, took = self.nominations(), []
        for index in (3, 130, 249):
            name = f"waits-{index}"
            self.waits(name)
            wait_for("the pod is unschedulable", 20, lambda n=name: self.refused(n), every=0.05)
            since = time.monotonic()
            self.free(index)
            took.append(self.bound_after(name, since))
            self.assertEqual(self.node_of(name), f"sim-{index:04}")
            self.doCleanups()
            wait_for("no pod waits", 20, lambda: self.placing.metric('carve_pods{state="waiting"}') == 0, every=0.1)
        print("\nfrom the room to the Binding, s: " + ", ".join(f"{one:.2f}" for one in took) +
              f"; nominated by control: {self.nominations() - before:.0f}")
        # A pod without a kubelet is deleted immediately; its card counts as taken for some more seconds
        # (ClusterModel::kLinger).
        self.assertLess(max(took), SOON + 3)

    def test_a_new_pod_finds_the_one_free_node(self):
        self.free(200)
        wait_for("control counts the free card", 20,
                 lambda: self.placing.metric('carve_pods{state="holding"}') == NODES - 1, every=0.1)
        time.sleep(3.5)      # it counts as taken that much longer (ClusterModel::kLinger)
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

    def test_no_pod_is_evicted_while_a_node_outside_the_part_is_free(self):
        evicted = self.victims()
        self.free(77)
        time.sleep(3.5)
        for i in range(2):
            name = f"high-{i}"
            self.kube.create(pod_of(name, priority="nominator-high"))
            self.bound_after(name, time.monotonic())
            self.assertEqual(self.node_of(name), "sim-0077")
            self.kube.delete("Pod", name, grace=0)
            time.sleep(3.5)
        self.assertEqual(self.victims(), evicted)

    @in_soak
    def test_when_more_than_cards_is_missing_nominations_fail_and_then_pods_are_evicted(self):
        """The nodes are free, but a taint excludes the pod; control ignores taints."""
        for index in (10, 110, 210):
            self.kube.patch("Node", f"sim-{index:04}", {"spec": {"taints": [TAINT]}}, None)
            self.addCleanup(self.kube.patch, "Node", f"sim-{index:04}", {"spec": {"taints": None}}, None)
            self.free(index)
        time.sleep(3.5)
        vain = self.nominations("carve_control_nodes_named_in_vain_total")
        self.waits("tainted")
        # The ring's own node, if it has cards, does not accept these pods either: one more.
        wait_for("all of them were nominated unsuccessfully", 40, lambda:
                 self.nominations("carve_control_nodes_named_in_vain_total") >= vain + 3 and
                 not self.nominated_node("tainted"), every=0.2)
        self.assertIsNone(self.node_of("tainted"))
        self.makes_room_for("higher", within=60)
        node = self.wait_nominated("higher")
        self.assertNotIn(node, ("sim-0010", "sim-0110", "sim-0210"))
        self.gone(node)
        self.bound_after("higher", time.monotonic())
        self.assertEqual(self.node_of("higher"), node)

    @in_soak
    def test_a_pod_that_kube_scheduler_retries_constantly_still_gets_room(self):
        """kube-scheduler's dry run on nodes that it did not look at ends in an error that names one of them at random.
        It writes that to the pod, is woken by its own write, and retries the pod: a hundred times a second."""
        took = self.makes_room_for("urgent", within=60)
        self.gone(self.wait_nominated("urgent"))
        self.bound_after("urgent", time.monotonic())
        print(f"\nfrom its creation to the eviction: {took:.2f} s")
        self.assertLess(took, 10)


if __name__ == "__main__":
    main()
