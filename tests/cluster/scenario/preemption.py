"""Pods of higher priority take the cards of others: exactly those they need, budgets kept, nobody in vain."""
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import control  # noqa: E402
from control import ControlTest, asking  # noqa: E402
from ring import carve, control_plane  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402


def setUpModule():
    control.setUpModule()


def whole(cards):
    return {"nvidia.com/gpu": cards}


class Preemption(ControlTest):
    def priority(self, value):
        """The name of a class of that priority; 0 needs none."""
        name = f"carve-test-{value}"
        if value and not self.kube.get("PriorityClass", name):
            self.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                         "value": value})
        return {"priorityClassName": name} if value else {}

    def prioritised(self, value, cards, labels=None, **spec):
        made = asking(self.name(f"p{value}"), whole(cards), **self.priority(value), **spec)
        made["metadata"]["labels"] = labels or {}
        return made

    def on(self, node, value, cards, labels=None):
        """The same, for that node only."""
        return self.prioritised(value, cards, labels, nodeSelector={"kubernetes.io/hostname": node})

    def evictions(self):
        """Pods that anybody evicted, or asked whether it might, by the API server's audit log: name -> {who}."""
        found = {}
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            if reference.get("resource") != "pods" or reference.get("subresource") != "eviction":
                continue
            if event["responseStatus"]["code"] // 100 != 2:
                continue
            who = event["user"].get("username", "").removeprefix(f"system:serviceaccount:{carve.NAMESPACE}:")
            found.setdefault(reference["name"], set()).add(who)
        return found

    def gone(self, pods):
        """Those of them that are not there any more, or are being deleted."""
        found = {name: self.kube.get("Pod", name) for name in pods}
        return {name for name, now in found.items() if now is None or now["metadata"].get("deletionTimestamp")}

    def refused(self, made):
        return wait_for("that it was tried", 30, lambda: [m for m in self.messages(made) if "nodes are available" in m])

    def test_exactly_those_go_whose_cards_are_needed_on_one_node(self):
        """Two nodes of four cards, all held by two on each; three cards are asked for."""
        low = self.run_all(*[self.on(node, 0, 2) for node in ("n1", "n1", "n2", "n2")])
        placed = {name: self.kube.get("Pod", name)["spec"]["nodeName"] for name in low}
        high = self.create(self.prioritised(1000, 3))
        name = high["metadata"]["name"]
        self.wait_ready(name)
        where = self.kube.get("Pod", name)["spec"]["nodeName"]
        expected = {one for one in low if placed[one] == where}
        self.assertEqual(self.gone(low), expected)
        self.assertEqual({one: who for one, who in self.evictions().items() if one in low},
                         {one: {"carve-control"} for one in expected})
        self.assert_right([name, *(one for one in low if one not in expected)])
        said = {reason: message for _, reason, message in self.kube.events_of(high)}
        self.assertIn(f"on node {where} to end", said["RoomIsMade"])

    def test_equals_and_the_protected_stay_and_what_cannot_be_helped_costs_nobody(self):
        """On each node one pod of priority 1000 and one below it. A budget protects the lowest of all."""
        top = self.run_all(*[self.on(node, 1000, 2) for node in ("n1", "n2")])
        lowest, protected = self.run_all(self.on("n1", 0, 2), self.on("n2", -10, 2, {"app": "protected"}))
        budget = self.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                              "metadata": {"name": self.name("budget"), "namespace": "default"},
                              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "protected"}}}})
        wait_for("the budget is counted", 30, lambda: self.kube.get(
            "PodDisruptionBudget", budget["metadata"]["name"]).get("status", {}).get("currentHealthy"))
        equal = self.create(self.prioritised(0, 2))                  # nobody is below it who may go
        too_much = self.create(self.prioritised(1000, 4))            # on each node an equal holds two of the four
        for one in (equal, too_much):
            self.refused(one)
        high = self.create(self.prioritised(500, 1))
        self.wait_ready(high["metadata"]["name"])
        self.assertEqual(self.kube.get("Pod", high["metadata"]["name"])["spec"]["nodeName"], "n1")
        self.assertEqual(self.gone([lowest, protected, *top]), {lowest})
        mine = {name for kind, name, _ in self.created if kind == "Pod"}
        self.assertEqual({one: who for one, who in self.evictions().items() if one in mine},
                         {lowest: {"carve-control"}})
        # Two cards became free on n1. The room was kept for whom they went: the equal, which waits for two, got none.
        for one in (equal, too_much):
            self.assertEqual(self.phase(one["metadata"]["name"]), "Pending")
        self.assert_right([high["metadata"]["name"], protected, *top])


if __name__ == "__main__":
    main()
