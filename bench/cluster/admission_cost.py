#!/usr/bin/env python3
"""What each webhook and each policy of Carve's admission costs the API server and control, per request.

Needs a running ring without nodes (tests/cluster/up --nodes 0 --build …) and CARVE_RING. The requests are dry runs,
which pass the whole admission and write nothing:

    create   a pod that requests a fraction, as a user creates it
    bind     control's Binding of a pod, with a record
    status   a change of a pod's status, as a kubelet makes it for each pod at least four times
    event    an event as kube-scheduler creates it for each pod
    core     an event as a kubelet creates it, several for each pod

Each part is installed alone; `-` is an API server without any, `all` has them all. Each round measures all parts, in a
random order, and a figure is the median over the rounds: milliseconds of CPU of the API server above `-` (`-` itself:
absolute), then those of control. A collection of the API server's garbage costs as much as a hundred requests, so few
requests give coarse figures. With --than FOLDER (the folder deploy/ of another version) both versions are measured
in the same rounds, and the rows show both.
"""
import argparse
import os
import random
import statistics
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/cluster"))
from ring import admission_parts, binder, burst, carve, network, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.kube import Kube  # noqa: E402

EPOCH = 4_000_000_000       # above every Lease's


def record(pod):
    """About as long as a real one; agents do not see it, because the requests are dry runs."""
    return (f'{{"v":1,"epoch":{EPOCH},"owner":{{"kind":"pod","uid":"{pod["metadata"]["uid"]}"}},"slices":[{{"part":"main",'
            '"card":"GPU-00000000-0000-4000-8000-000000000000","memory":8589934592,"cores":10,"share":"burst"}]}')


class Requests:
    """The requests of the table. Each method sends one."""

    def __init__(self, where):
        self.kube, self.control = where.kube, where.control_client()
        made = burst.pod("admission-cost", burst.ASKS["fraction"])
        self.pod = self.kube.create(made)
        self.fresh = burst.pod("admission-cost-new", {"elasticgpu.io/gpu-memory": "8192", "elasticgpu.io/gpu-core": "10"})
        self.fresh["spec"].pop("schedulerName")
        self.number = 0

    def create(self):
        self.kube.request("POST", Kube.path("Pod", None, "default", dryRun="All"), self.fresh)

    def bind(self):
        meta = self.pod["metadata"]
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "sim-0000"},
                "metadata": {"name": meta["name"], "namespace": "default", "uid": meta["uid"],
                             "annotations": {binder.RECORD: record(self.pod)}}}
        self.control.request("POST", Kube.path("Pod", meta["name"], "default", "binding", dryRun="All"), body)

    def status(self):
        self.number += 1
        now = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": f"Try{self.number}"}]}}
        self.kube.request("PATCH", Kube.path("Pod", self.pod["metadata"]["name"], "default", "status", dryRun="All"), now,
                          "application/strategic-merge-patch+json")

    def event(self):
        self.number += 1
        meta = self.pod["metadata"]
        made = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "action": "Binding", "reason": "Scheduled",
                "type": "Normal", "note": "assigned", "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "carve-scheduler", "reportingInstance": "carve-scheduler-x",
                "metadata": {"name": f"{meta['name']}.{self.number:x}", "namespace": "default"},
                "regarding": {"kind": "Pod", "namespace": "default", "name": meta["name"], "uid": meta["uid"]}}
        self.kube.request("POST", "/apis/events.k8s.io/v1/namespaces/default/events?dryRun=All", made)

    def core(self):
        self.number += 1
        meta = self.pod["metadata"]
        made = {"apiVersion": "v1", "kind": "Event", "reason": "Pulled", "type": "Normal", "message": "x",
                "source": {"component": "kubelet", "host": "sim-0000"},
                "metadata": {"name": f"{meta['name']}.{self.number:x}", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "namespace": "default", "name": meta["name"], "uid": meta["uid"]}}
        self.kube.request("POST", Kube.path("Event", None, "default", dryRun="All"), made)


class Bench(placing.Placing):
    def control_client(self):
        token = self.kube.request("POST", self.kube.path("ServiceAccount", "carve-control", carve.NAMESPACE, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200}})["status"]["token"]
        return Kube(network.API_PORT, self.ring.certificates.file("ca.crt"), token=token)

    def spent(self):
        """CPU seconds of the API server and of control so far."""
        return [sum(seconds for _, seconds in burst.Threads(self.ring.state.pid(name)).before.values())
                for name in ("apiserver", placing.CONTROL)]


def measure(bench, send, count):
    """(API server, control): milliseconds of CPU per request."""
    for _ in range(count // 10):
        send()
    before = bench.spent()
    for _ in range(count):
        send()
    return [1e3 * (after - start) / count for start, after in zip(before, bench.spent())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500, help="of each kind, in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="create,bind,status,event,core")
    parser.add_argument("--parts", help="only these, separated by commas (with - and all)")
    parser.add_argument("--than", type=Path, metavar="FOLDER", help="deploy/ of another version, measured as well")
    options = parser.parse_args()
    ring = Ring.load()
    ring.control.enter()
    bench = Bench(ring, timer("admission"))
    bench.install()
    burst.make_ready(bench, 1, 1)
    bench.start_control()
    admission_parts.make_service(bench)
    requests = Requests(bench)
    kinds = options.kinds.split(",")
    wanted = {"-": []}
    for version, deploy in (("than", options.than), ("now", placing.DEPLOY)):
        if deploy is None:
            continue
        parts = admission_parts.read(bench, deploy.resolve())
        every = [item for objects in parts.values() for item in objects]
        # The validating webhook refuses a pod that the mutating one did not see.
        parts = {"both webhooks" if name == "validating webhook" else name:
                 (parts["mutating webhook"] if name == "validating webhook" else []) + objects
                 for name, objects in parts.items()}
        parts["all"] = every
        wanted |= {f"{name} ({version})" if options.than else name: objects for name, objects in parts.items()}
    if options.parts:
        wanted = {name: objects for name, objects in wanted.items()
                  if name.split(" (")[0] in ["-", "all", *options.parts.split(",")]}
    found = {name: {kind: [] for kind in kinds} for name in wanted}
    for number in range(options.rounds):
        for name, objects in random.sample(list(wanted.items()), len(wanted)):
            admission_parts.put(bench, objects)
            time.sleep(admission_parts.IN_FORCE_S)
            for kind in kinds:
                found[name][kind].append(measure(bench, getattr(requests, kind), options.requests))
            admission_parts.remove(bench, objects)
        bench.say(f"round {number + 1}")
    show(found, kinds, options)


def show(found, kinds, options):
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.rounds} rounds of {options.requests} requests; "
          "milliseconds of CPU per request: API server, control")
    print(f"| {'installed':34} | " + " | ".join(f"{kind:>12}" for kind in kinds) + " |")
    print("| --- |" + " --- |" * len(kinds))
    for name, figures in found.items():
        cells = []
        for kind in kinds:
            # Each round against the same round without any part: the machine changes from round to round.
            base = [[0, 0]] * options.rounds if name == "-" else found["-"][kind]
            both = [statistics.median(one[at] - zero[at] for one, zero in zip(figures[kind], base)) for at in (0, 1)]
            cells.append(f"{both[0]:6.2f} {both[1]:5.2f}")
        print(f"| {name:34} | " + " | ".join(f"{cell:>12}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
