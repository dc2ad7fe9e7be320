"""Preemption: pods of higher priority get the cards of others. Only the needed victims are evicted, and budgets are
kept."""
import contextlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import control  # noqa: E402
from control import ControlTest, asking  # noqa: E402
from ring import bare_nodes, carve, control_plane  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import in_soak, main, pod, wait_for  # noqa: E402


def setUpModule():
    control.setUpModule()


def whole(cards):
    return {"nvidia.com/gpu": cards}


def at(node):
    """Part of a pod's spec: on that node only."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def milli(cpu):
    return int(cpu[:-1]) if cpu.endswith("m") else int(1000 * float(cpu))


class Prioritised(ControlTest):
    def priority(self, value):
        """Spec fields for that priority, with its PriorityClass; 0 needs none."""
        name = f"carve-test-{value}"
        if value and not self.kube.get("PriorityClass", name):
            self.create_class(name, value=value)
        return {"priorityClassName": name} if value else {}

    def create_class(self, name, **what):
        """Creates the class and waits until admission, which has it from a watch, accepts a pod that names it."""
        self.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, **what})
        tried = pod(self.name("tried"), priorityClassName=name)

        def known():
            try:
                return self.kube.request("POST", self.kube.path("Pod", dryRun="All"), tried)
            except ApiError as error:
                if error.status == 403 and "no PriorityClass" in str(error):
                    return None
                raise
        wait_for(f"admission accepts {name}", 20, known)

    def prioritised(self, value, cards, labels=None, **spec):
        made = asking(self.name(f"p{value}"), whole(cards), **self.priority(value), **spec)
        made["metadata"]["labels"] = labels or {}
        return made

    def on(self, node, value, cards, labels=None):
        """The same, for that node only."""
        return self.prioritised(value, cards, labels, **at(node))

    def share(self, value, cores, mebibytes=8192, **spec):
        """A pod of that priority with a fraction of one card."""
        return asking(self.name(f"p{value}"), {"elasticgpu.io/gpu-memory": mebibytes, "elasticgpu.io/gpu-core": cores},
                      **self.priority(value), **spec)

    def evictions(self):
        """Evictions (dry runs included) in the API server's audit log: pod -> {user}."""
        found = {}
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            if reference.get("resource") != "pods" or reference.get("subresource") != "eviction":
                continue
            if event["responseStatus"]["code"] // 100 != 2:
                continue
            user = event["user"].get("username", "").removeprefix(f"system:serviceaccount:{carve.NAMESPACE}:")
            found.setdefault(reference["name"], set()).add(user)
        return found

    def gone(self, pods):
        """Those of the pods that are deleted or terminating."""
        found = {name: self.kube.get("Pod", name) for name in pods}
        return {name for name, now in found.items() if now is None or now["metadata"].get("deletionTimestamp")}

    def refused(self, made):
        return wait_for("the event that it was tried", 30,
                        lambda: [m for m in self.messages(made) if "nodes are available" in m])


class Preemption(Prioritised):
    def test_only_the_pods_whose_cards_are_needed_are_evicted_on_one_node(self):
        """Two nodes of four cards, all taken by two pods on each; the new pod needs three cards."""
        low = self.run_all(*[self.on(node, 0, 2) for node in ("n1", "n1", "n2", "n2")])
        placed = {name: self.kube.get("Pod", name)["spec"]["nodeName"] for name in low}
        high = self.create(self.prioritised(1000, 3))
        name = high["metadata"]["name"]
        self.wait_ready(name)
        where = self.kube.get("Pod", name)["spec"]["nodeName"]
        expected = {one for one in low if placed[one] == where}
        self.assertEqual(self.gone(low), expected)
        self.assertEqual({one: users for one, users in self.evictions().items() if one in low},
                         {one: {"carve-control"} for one in expected})
        self.assert_right([name, *(one for one in low if one not in expected)])
        said = {reason: message for _, reason, message in self.kube.events_of(high)}
        self.assertIn(f"on node {where} to end", said["RoomIsMade"])

    def test_pods_of_equal_priority_and_protected_pods_stay_and_hopeless_pods_evict_none(self):
        """On each node one pod of priority 1000 and one below it. A disruption budget protects the lowest of all."""
        top = self.run_all(*[self.on(node, 1000, 2) for node in ("n1", "n2")])
        lowest, protected = self.run_all(self.on("n1", 0, 2), self.on("n2", -10, 2, {"app": "protected"}))
        budget = self.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                              "metadata": {"name": self.name("budget"), "namespace": "default"},
                              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}})
        wait_for("the budget is counted", 30, lambda: self.kube.get(
            "PodDisruptionBudget", budget["metadata"]["name"]).get("status", {}).get("currentHealthy"))
        equal = self.create(self.prioritised(0, 2))                  # no pod below it may be evicted
        # on each node a pod of its priority has two of the four
        too_much = self.create(self.prioritised(1000, 4))
        for one in (equal, too_much):
            self.refused(one)
        high = self.create(self.prioritised(500, 1))
        self.wait_ready(high["metadata"]["name"])
        self.assertEqual(self.kube.get("Pod", high["metadata"]["name"])["spec"]["nodeName"], "n1")
        self.assertEqual(self.gone([lowest, protected, *top]), {lowest})
        mine = {name for kind, name, _ in self.created if kind == "Pod"}
        self.assertEqual({one: users for one, users in self.evictions().items() if one in mine},
                         {lowest: {"carve-control"}})
        # Two cards became free on n1. They were reserved for the preemptor: the pod of equal priority, which waits for
        # two, got none.
        for one in (equal, too_much):
            self.assertEqual(self.phase(one["metadata"]["name"]), "Pending")
        self.assert_right([high["metadata"]["name"], protected, *top])


    def test_a_freed_card_is_reserved_for_the_preempting_pod(self):
        """Another pod of its priority, which never preempts (preemptionPolicy: Never), has waited longer for one card:
        it is first in kube-scheduler's queue when the card is free, and would get it without the reservation."""
        top, = self.run_all(self.on("n1", 1000, 3))
        lowest, = self.run_all(self.on("n1", 0, 1))
        patient = self.name("never")
        self.create_class(patient, value=500, preemptionPolicy="Never")
        first = self.on("n1", 0, 1)
        first["spec"]["priorityClassName"] = patient
        first = self.create(first)
        self.refused(first)
        self.assertEqual(self.gone([lowest]), set())
        high = self.create(self.on("n1", 500, 1))
        name = high["metadata"]["name"]
        # The API server clears nominatedNodeName when the pod is bound: no poll may see it.
        node = wait_for("a nominated node, or a node", 30, every=0.02, condition=lambda: (
            pod := self.kube.get("Pod", name))["status"].get("nominatedNodeName") or pod["spec"].get("nodeName"))
        self.assertEqual(node, "n1")
        self.wait_ready(name)
        self.assertEqual(self.gone([top, lowest]), {lowest})
        self.assertEqual(self.phase(first["metadata"]["name"]), "Pending")
        self.assert_right([name, top])

    def test_of_fractions_the_one_is_evicted_whose_share_is_needed(self):
        """Pods of equal priority have two whole cards; on each of the others two pods have a fraction. Evicting one of
        three of these four would make room; one of the three has the lowest priority."""
        equals = self.run_all(*[self.on("n1", 500, 1) for _ in range(2)])
        shares = [self.run_all(self.share(value, cores, **at("n1")))[0]
                  for value, cores in ((10, 60), (0, 40), (10, 70), (10, 30))]
        cards = [self.cards_of(name)["main"][0][0] for name in shares]
        self.assertEqual([cards[0] == cards[1], cards[2] == cards[3], cards[0] == cards[2]], [True, True, False])
        high = self.create(self.share(500, 30, **at("n1")))["metadata"]["name"]
        self.wait_ready(high)
        self.assertEqual(self.gone([*shares, *equals]), {shares[1]})
        (card, _, cores), = self.cards_of(high)["main"]
        self.assertEqual((card, cores), (cards[0], 30))
        self.assert_right([high, *equals, *(one for one in shares if one != shares[1])])


class WithCpu(Prioritised):
    """CPU, which kube-scheduler sees, is short as well: kube-scheduler proposes victims, and control corrects them."""
    scheduler = "carve-scheduler"       # the user that evicts, by control's answer
    # CPU in 1/1000: what holds_cpu() leaves free, and what the preempting pods request
    LEFT, MORE = 200, 300

    def free_cpu(self, node):
        """The node's free CPU, in 1/1000, from the API server's objects."""
        held = sum(milli(container.get("resources", {}).get("requests", {}).get("cpu", "0"))
                   for one in self.kube.list("Pod", None) if one["spec"].get("nodeName") == node
                   and one["status"].get("phase") not in ("Succeeded", "Failed") for container in one["spec"]["containers"])
        return milli(self.kube.get("Node", node)["status"]["allocatable"]["cpu"]) - held

    def wants(self, value, cards, cpu, node="n1"):
        """A pod of that priority for that node, with cards or without."""
        made = self.on(node, value, cards)
        if not cards:
            made["spec"]["containers"][0]["command"] = ["sleep", "3600"]
            made["spec"]["containers"][0]["resources"]["limits"] = {}
        return self.with_cpu(made, cpu)

    @staticmethod
    def with_cpu(made, cpu):
        made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": f"{cpu}m"}
        return made

    def holds_cpu(self, made):
        """Makes that pod request all of its node's free CPU except LEFT."""
        free = self.free_cpu(made["spec"]["nodeSelector"]["kubernetes.io/hostname"])
        self.assertGreater(free - self.LEFT, self.MORE, "there must be room for MORE after its eviction")
        return self.with_cpu(made, free - self.LEFT)

    def bound(self, made):
        """Creates that pod, for a node without a kubelet; once it is bound, control knows the node's cards. Returns its
        name."""
        name = self.create(made)["metadata"]["name"]
        self.addCleanup(self.kube.delete, "Pod", name, grace=0)
        wait_for(f"{name} is bound", 30, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"))
        return name

    @contextlib.contextmanager
    def proposed(self):
        """Asserts that kube-scheduler calls the preempt verb during the block."""
        before = self.preempt_calls()
        yield
        self.assertGreater(self.preempt_calls(), before)

    def assert_evicted(self, evicted, of):
        """Of these pods exactly `evicted` were evicted, by kube-scheduler alone."""
        self.assertEqual(self.gone(of), evicted)
        users = self.deletions(of)
        self.assertEqual(set(users), evicted)
        for one in evicted:     # its kubelet deletes it as well, once it has ended
            self.assertEqual(users[one] - {node.name for node in self.ring.nodes}, {self.scheduler}, one)

    def assert_at(self, name, node):
        """The pod is on that node, and the node's CPU suffices for all its pods."""
        self.assertEqual(self.kube.get("Pod", name)["spec"]["nodeName"], node)
        self.assertGreaterEqual(self.free_cpu(node), 0)

    def deletions(self, pods):
        """pod -> {user that deleted it or requested its eviction}, from the audit log."""
        found = {}
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            ends = event["verb"] == "delete" and not reference.get("subresource")
            if reference.get("resource") == "pods" and reference.get("name") in pods and (
                    ends or reference.get("subresource") == "eviction"):
                found.setdefault(reference["name"], set()).add(event["user"]["username"].rsplit(":", 1)[-1])
        return found

    def test_the_pod_with_the_cards_and_the_pod_with_the_cpu_are_both_evicted(self):
        free = self.free_cpu("n1")
        self.assertGreater(free, 600)
        cards, = self.run_all(self.wants(0, 4, 20))
        cpu, by = self.run_all(self.wants(0, 0, free - 200), self.wants(0, 0, 50))
        with self.proposed():
            high = self.create(self.wants(1000, 2, free - 300))["metadata"]["name"]
            self.wait_ready(high, 90)
        self.assert_evicted({cards, cpu}, {cards, cpu, by})
        self.assert_right([high])

    def test_a_pod_that_frees_both_is_evicted_alone(self):
        """kube-scheduler would spare the older one, which has the cards, and evict the younger for its CPU."""
        part = int(self.free_cpu("n1") * 0.45)
        both, = self.run_all(self.wants(0, 4, part))
        younger, = self.run_all(self.wants(0, 0, part))
        with self.proposed():
            high = self.create(self.wants(1000, 2, part))["metadata"]["name"]
            self.wait_ready(high, 90)
        self.assert_evicted({both}, {both, younger})
        self.assert_right([high])

    def test_no_pod_is_evicted_for_cpu_when_the_cards_cannot_become_free(self):
        free = self.free_cpu("n1")
        top, = self.run_all(self.wants(1000, 4, 20))
        cpu, = self.run_all(self.wants(0, 0, free - 200))
        before = self.preempt_calls()
        high = self.create(self.wants(1000, 2, free - 300))
        self.refused(high)
        wait_for("kube-scheduler's proposal", 30, lambda: self.preempt_calls() > before)
        self.assert_evicted(set(), {top, cpu})
        self.assertEqual(self.phase(high["metadata"]["name"]), "Pending")

    @in_soak
    def test_kube_schedulers_choice_is_kept_when_it_also_frees_the_share(self):
        """No correction: one of two pods on a card has the CPU, and without it there is room on the card as well. The
        other, which has the lowest priority of all, stays."""
        top, = self.run_all(self.on("n1", 1000, 3))
        stays, = self.run_all(self.with_cpu(self.share(0, 30, **at("n1")), 20))
        goes, = self.run_all(self.holds_cpu(self.share(10, 60, **at("n1"))))
        card, = {self.cards_of(one)["main"][0][0] for one in (stays, goes)}
        with self.proposed():
            high = self.create(self.with_cpu(self.share(500, 50, **at("n1")), self.MORE))["metadata"]["name"]
            self.wait_ready(high, 90)
        self.assert_evicted({goes}, {top, stays, goes})
        self.assertEqual(self.cards_of(high)["main"][0][0], card)
        self.assert_at(high, "n1")
        self.assert_right([high, top, stays])

    @in_soak
    def test_of_two_pods_with_the_cpu_the_one_that_also_has_the_share_is_evicted(self):
        """kube-scheduler would evict the one of lower priority, which has no share: the cards would not suffice."""
        top, = self.run_all(self.on("n1", 1000, 3))
        part = int(self.free_cpu("n1") * 0.45)
        both, = self.run_all(self.with_cpu(self.share(10, 70, **at("n1")), part))
        neighbour, = self.run_all(self.with_cpu(self.share(0, 20, **at("n1")), 20))
        only_cpu, = self.run_all(self.wants(0, 0, part))
        card, = {self.cards_of(one)["main"][0][0] for one in (both, neighbour)}
        with self.proposed():
            high = self.create(self.with_cpu(self.share(500, 60, **at("n1")), part))["metadata"]["name"]
            self.wait_ready(high, 90)
        self.assert_evicted({both}, {top, both, neighbour, only_cpu})
        self.assertEqual(self.cards_of(high)["main"][0][0], card)
        self.assert_at(high, "n1")
        self.assert_right([high, top, neighbour])

    @in_soak
    def test_nodes_with_full_or_too_small_cards_are_removed_from_the_proposal(self):
        """Three nodes without CPU. kube-scheduler would take one of the two on which the victim has the lowest
        priority: on n1 pods of higher priority have the cards, and the cards of the third node are too small for the
        request."""
        small, = bare_nodes.make(self.kube, "n1", 1, mebibytes=16 << 10)
        self.addCleanup(bare_nodes.remove, self.kube, [small])
        on_small = self.bound(self.holds_cpu(self.share(-10, 10, **at(small))))
        above, top = self.run_all(self.wants(1000, 4, 20), self.on("n2", 1000, 3))
        cheap, neighbour = self.run_all(self.holds_cpu(self.wants(-10, 0, 0)),
                                     self.with_cpu(self.share(0, 20, **at("n2")), 20))
        goes, = self.run_all(self.holds_cpu(self.share(0, 70, **at("n2"))))
        with self.proposed():
            high = self.create(self.with_cpu(self.share(500, 60, mebibytes=24 << 10), self.MORE))["metadata"]["name"]
            self.wait_ready(high, 90)
        self.assert_evicted({goes}, {above, top, cheap, neighbour, goes, on_small})
        self.assert_at(high, "n2")
        self.assert_right([high, above, top, neighbour])

    @in_soak
    def test_with_one_node_without_cpu_and_one_without_cards_pods_are_evicted_on_one_only(self):
        """On n1 kube-scheduler makes room, on n2 control would: not both for one pod."""
        cpu, cards = self.run_all(self.holds_cpu(self.wants(0, 0, 0)), self.wants(0, 4, 20, "n2"))
        with self.proposed():
            high = self.create(self.with_cpu(self.share(500, 60), self.MORE))["metadata"]["name"]
            self.wait_ready(high, 90)
        where = self.kube.get("Pod", high)["spec"]["nodeName"]
        self.assertEqual(self.gone([cpu, cards]), {{"n1": cpu, "n2": cards}[where]})
        self.assertEqual(set(self.deletions({cpu, cards})), self.gone([cpu, cards]))
        self.assert_at(high, where)
        self.assert_right([high])

    def preempt_calls(self):
        """How many times the verb was called, by the counters of both replicas."""
        calls = 0
        for one in self.kube.list("Pod", carve.NAMESPACE):
            if one["metadata"]["name"].startswith("carve-control-"):
                read = f"import urllib.request as u; print(u.urlopen('http://{one['status']['podIP']}:8080/metrics').read().decode())"
                metrics = self.ring.node(1).run([sys.executable, "-c", read]).stdout
                calls += sum(int(float(line.rsplit(" ", 1)[1])) for line in metrics.splitlines()
                             if line.startswith('carve_control_requests_total{verb="preempt"'))
        return calls


if __name__ == "__main__":
    main()
