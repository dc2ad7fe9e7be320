#!/usr/bin/env python3
"""The cost of pods that wait: how often kube-scheduler tries them while nothing changes.

Nodes exist only as objects with one card each; some memory or compute of each card is taken, part of the nodes have a
taint, and the pods fit nowhere. Needs a running ring without nodes (tests/cluster/up --nodes 0 --build …) and
CARVE_RING. Prints, for each percentageOfNodesToScore: calls for a pod's nodes, writes to pods' status by
kube-scheduler, and its CPU, all per second of wall time. (The ring's node controller finds the nodes without a
kubelet and taints them. Each of those writes makes kube-scheduler retry all waiting pods, regardless of the
percentage.)
"""
import argparse
import random
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/cluster"))
from ring import binder, placing  # noqa: E402
from ring.cluster import Ring  # noqa: E402
from ring.kube import wait_for  # noqa: E402

CALLS = 'carve_control_request_duration_seconds_count{verb="filter"}'
CLASS = "waiting-bench-high"


def pod(name, memory, core, node=None, priority=None):
    spec = {"schedulerName": "carve-scheduler", "automountServiceAccountToken": False,
            "nodeSelector": {placing.LABEL: "true"}, "tolerations": placing.WITHOUT_KUBELET,
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {
                binder.SLOT: "1", "elasticgpu.io/gpu-memory": str(memory), "elasticgpu.io/gpu-core": str(core)}}}],
            **({"nodeName": node} if node else {}), **({"priorityClassName": priority} if priority else {})}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "namespace": "default", "labels": {placing.LABEL: "true"}}}


class Waiting:
    def __init__(self, options):
        self.options = options
        self.ring = Ring.load()
        self.ring.control.enter()
        self.placing = placing.Placing(self.ring)
        self.kube = self.placing.kube

    def prepare(self):
        dice = random.Random(self.options.seed)
        nodes = range(self.options.nodes)
        self.placing.install()
        self.placing.make_nodes(self.options.nodes, 1)
        self.kube.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                          "metadata": {"name": CLASS}})
        self.placing.start_control()
        taken = [(dice.choice((20000, 50000, 60000)), dice.choice((60, 70, 90))) for _ in nodes]
        self.placing.each(nodes, lambda kube, i: kube.create(pod(f"full-{i:04}", *taken[i], node=f"sim-{i:04}")))
        wait_for("every card has a slice", 120,
                 lambda: self.placing.metric('carve_pods{state="holding"}') == len(nodes), every=0.5)
        for i in dice.sample(nodes, len(nodes) // 6):
            self.kube.patch("Node", f"sim-{i:04}", {"spec": {"taints": [{"key": "closed", "effect": "NoSchedule"}]}}, None)

    def look(self):
        """(calls, writes, CPU s, now)"""
        return (self.placing.metric(CALLS) or 0, placing.status_writes(self.ring), self.placing.cpu_of(placing.SCHEDULER),
                time.monotonic())

    def measure(self, percentage, priority):
        self.placing.start_scheduler(percentage=percentage)
        self.placing.each(range(self.options.pods), lambda kube, i: kube.create(
            pod(f"waits-{i:04}", 70000, 60, priority=priority)))
        time.sleep(8)       # every pod has been tried
        before = self.look()
        time.sleep(self.options.seconds)
        calls, writes, cpu, passed = (now - was for now, was in zip(self.look(), before))
        print(f"{percentage:3} %, {self.options.pods} pods {'of high priority ' if priority else ''}wait: "
              f"{calls / passed:.1f} calls/s, {writes / passed:.1f} writes/s, kube-scheduler {100 * cpu / passed:.0f} % of a CPU",
              flush=True)
        self.placing.stop(placing.SCHEDULER)
        self.placing.each(range(self.options.pods), lambda kube, i: kube.delete("Pod", f"waits-{i:04}", grace=0))

    def run(self):
        try:
            self.prepare()
            for percentage in self.options.percentages:
                for priority in (None, CLASS):
                    self.measure(percentage, priority)
        finally:
            self.kube.delete("PriorityClass", CLASS)
            self.placing.uninstall()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--percentages", type=int, nargs="+", default=[100, 0])
    parser.add_argument("--seed", type=int, default=3)
    Waiting(parser.parse_args()).run()


if __name__ == "__main__":
    main()
