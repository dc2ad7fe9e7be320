#!/usr/bin/env python3
"""Pods placed per second by Carve and by the stock kube-scheduler, in turns on one control plane.

Nodes are objects alone, and nothing else writes to them: the controller-manager and the ring's own scheduler are
stopped first. Pods are created live by 16 workers; no client has a rate limit of its own. Systems, each with a fresh
scheduler process per turn:

    stock     kube-scheduler alone; a pod asks for one nvidia.com/gpu, an extended resource of the Node
    carve     the same pods through kube-scheduler's extender and `carve control`, which binds
    fraction  through Carve, pods that ask for 8 GiB and 10 % of a card

When a pod was created and bound is taken from the API server's audit log (microseconds), CPU from /proc/PID/stat (this
bench's own clients are a process like the others; control runs, and watches, in the stock scheduler's turns too), what
control refused from its metrics. A turn begins when the one before has nothing left to write. At the end of each turn
of Carve every card is added up from the pods' records: a card that is over ends the run with 1. Systems are compared
within one run only. A conflict is a pod that control sent to a node and, at its bind, refused there. With --check the
run ends with 1 where a system of ours is slower than 0.9 x stock, or control takes more CPU per pod than it may: 0.5
ms up to 100 nodes, 1 ms above (medians over the turns).
"""
import argparse
import json
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests/cluster"))
from ring import binder, control_plane, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.process import stop  # noqa: E402

# Of Carve's as admission leaves them: with a slot. Admission itself is not part of this.
ASKS = {"stock": {"nvidia.com/gpu": "1"}, "carve": {"nvidia.com/gpu": "1", binder.SLOT: "1"},
        "fraction": {"elasticgpu.io/gpu-memory": "8192", "elasticgpu.io/gpu-core": "10", binder.SLOT: "1"}}
WORKERS, PROCESSES = 16, 4
LEAST = 0.9                             # of the stock scheduler's pods/s
MOST_CPU = ((100, 0.5), (None, 1.0))    # up to so many nodes, control's CPU per pod in ms
CARD = 80 << 30


def in_processes(items, work):
    """work(kube, item) of every item by 16 workers in 4 processes: one Python process cannot ask fast enough."""
    def some(part):
        bench.each(part, work, WORKERS // PROCESSES)
    fork = multiprocessing.get_context("fork")
    made = [fork.Process(target=some, args=(items[i::PROCESSES],)) for i in range(PROCESSES)]
    for one in made:
        one.start()
    for one in made:
        one.join()
        if one.exitcode != 0:
            raise SystemExit("bench: a worker failed")


def pod(turn, index, system):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{system}-{turn}-{index:05}", "namespace": "default",
                         "labels": {placing.LABEL: "true"}},
            "spec": {"schedulerName": "carve-scheduler", "automountServiceAccountToken": False,
                     "nodeSelector": {placing.LABEL: "true"},
                     "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "main", "image": "none", "resources": {"limits": ASKS[system]}}]}}


class Audit:
    """The API server's audit log from here on."""

    def __init__(self, ring):
        self.path = ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        self.at = self.path.stat().st_size
        self.created, self.bound, self.writes, self.rest = {}, {}, 0, ""

    def read(self):
        with open(self.path, encoding="utf-8") as log:
            log.seek(self.at)
            text = self.rest + log.read()
            self.at = log.tell()
        lines = text.split("\n")
        self.rest = lines.pop()
        for line in lines:
            event = json.loads(line)
            about = event.get("objectRef") or {}
            if event["stage"] != "ResponseComplete" or event["responseStatus"].get("code", 500) >= 300:
                continue
            self.writes += 1
            if event["verb"] != "create" or about.get("resource") != "pods":
                continue
            time_ = datetime.fromisoformat(event["stageTimestamp"].replace("Z", "+00:00")).timestamp()
            {"": self.created, "binding": self.bound}.get(about.get("subresource", ""), {})[about.get("name")] = time_


class Cpu:
    """Seconds of CPU from here on, by process: (user, system)."""

    def __init__(self, pids):
        self.pids = pids
        self.before = self.now()

    def now(self):
        return {"clients": self.of_clients(), **{name: self.of(pid) for name, pid in self.pids.items()}}

    @staticmethod
    def of(pid):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return tuple(int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13])

    @staticmethod
    def of_clients():
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime for one in both), sum(one.ru_stime for one in both)

    def used(self):
        return {name: tuple(now - before for now, before in zip(both, self.before[name]))
                for name, both in self.now().items()}


def wait_for_quiet(limit=90, most=5):
    """Nobody writes more than Leases any more: control tells of pods by events behind their Bindings, some twenty a
    second, and these are not the next turn's work."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        audit = Audit(bench.ring)
        time.sleep(1)
        audit.read()
        if audit.writes <= most:
            return
    raise SystemExit(f"bench: more than {most} writes a second still after {limit} s")


def resident_mib(pid):
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                    if line.startswith("VmHWM"))) / 1024


def over(pods):
    """The cards that were given away more than once over, by the records alone."""
    memory, compute = defaultdict(int), defaultdict(int)
    for one in pods:
        for part in json.loads(one["metadata"]["annotations"][binder.RECORD])["parts"]:
            for card in part["cards"]:
                memory[card["uuid"]] += card["bytes"]
                compute[card["uuid"]] += card["compute"]
    return [uuid for uuid in memory if memory[uuid] > CARD or compute[uuid] > 100]


def one_turn(turn, system, pods, percentage=None):
    """Places `pods` pods; the figures."""
    through_carve = system != "stock"
    wait_for_quiet()
    bench.start_scheduler(stock=not through_carve, limits=False, percentage=percentage)
    names = {"scheduler": placing.SCHEDULER, "control": placing.CONTROL, "apiserver": "apiserver", "etcd": "etcd"}
    pids = {name: bench.ring.state.pid(process) for name, process in names.items()}
    time.sleep(5)       # its caches fill
    outcomes = [f'carve_control_bindings_total{{outcome="{outcome}"}}' for outcome in ("refused", "failed", "unknown")]
    accepted = 'carve_control_connections_total{port="https",what="accepted"}'
    before = {line: bench.metric(line) for line in (*outcomes, accepted)} if through_carve else {}
    audit = Audit(bench.ring)
    cpu = Cpu(pids)
    in_processes([pod(turn, index, system) for index in range(pods)], lambda kube, made: kube.create(made))
    until = time.monotonic() + 600
    while len(audit.bound) < pods:
        audit.read()
        if time.monotonic() > until:
            raise SystemExit(f"bench: {system}: {len(audit.bound)} of {pods} pods are bound after ten minutes")
        time.sleep(0.2)
    used = cpu.used()
    waits = sorted(audit.bound[name] - audit.created[name] for name in audit.bound)
    took = max(audit.bound.values()) - min(audit.created.values())
    creating = max(audit.created.values()) - min(audit.created.values())
    found = {"system": system, "turn": turn, "pods": pods, "pods_per_s": pods / took, "created_per_s": pods / creating,
             "p50_s": statistics.median(waits), "p99_s": waits[int(0.99 * (len(waits) - 1))],
             "writes_per_pod": audit.writes / pods,
             **{f"{name}_cpu_ms_per_pod": 1e3 * sum(both) / pods for name, both in used.items()},
             "all_cpu_ms_per_pod": 1e3 * sum(sum(both) for both in used.values()) / pods,
             **{f"{name}_system_ms_per_pod": 1e3 * both[1] / pods for name, both in used.items()}}
    if through_carve:
        found["control_peak_mib"] = resident_mib(pids["control"])
        since = {line.split('"')[1]: bench.metric(line) - before[line] for line in outcomes}
        found.update({"conflicts": since.pop("refused"), **since})
        found["connections_per_pod"] = (bench.metric(accepted) - before[accepted]) / pods
        too_full = over(bench.kube.list("Pod", labelSelector=placing.LABEL))
        if too_full:
            raise SystemExit(f"bench: {len(too_full)} cards were given away more than once over: {too_full[:3]}")
    bench.stop(placing.SCHEDULER)
    names = [item["metadata"]["name"] for item in bench.kube.list("Pod", labelSelector=placing.LABEL)]
    in_processes(names, lambda kube, name: kube.delete("Pod", name, grace=0))
    return found


def shown(found):
    rest = {key: value for key, value in found.items() if key not in ("system", "turn", "pods")}
    return f"{found['system']:9}" + "  ".join(f"{key} {value:.3g}" for key, value in rest.items())


def missed(figures, nodes) -> list:
    """Of all turns, what is beyond a budget, in words."""
    def median(system, key):
        values = [one[key] for one in figures if one["system"] == system]
        return statistics.median(values) if values else None
    most = next(cpu for upto, cpu in MOST_CPU if upto is None or nodes <= upto)
    found = []
    stock = median("stock", "pods_per_s")
    for system in ("carve", "fraction"):
        rate, used = median(system, "pods_per_s"), median(system, "control_cpu_ms_per_pod")
        if stock and rate and rate < LEAST * stock:
            found.append(f"{system}: {rate / stock:.2f} x the stock scheduler's pods/s, at least {LEAST} is asked for")
        if used is not None and used > most:
            found.append(f"{system}: control took {used:.2f} ms of CPU per pod, at most {most} is asked for "
                         f"at {nodes} nodes")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=1, help="each system this often, in turns")
    parser.add_argument("--systems", default="stock,carve,fraction")
    parser.add_argument("--percentage", type=int, help="percentageOfNodesToScore of all systems; 0: kube-scheduler's own "
                        "(fewer the more nodes there are). Without: Carve's as deployed, the stock scheduler's own")
    parser.add_argument("--json", type=Path, help="one line per turn, for docs/measurements")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a budget is missed")
    options = parser.parse_args()
    cards = options.nodes * options.cards
    if options.pods > cards and {"stock", "carve"} & set(options.systems.split(",")):
        parser.error(f"--pods {options.pods}: each asks for a whole card, and there are {cards}")
    for name in ("scheduler", "controller-manager"):
        stop(bench.ring.state, name, grace=5)
    in_processes(range(options.nodes), lambda kube, index: bench.make_node(kube, index, options.cards))
    bench.say(f"{options.nodes} nodes with {options.cards} cards")
    bench.start_control()
    print(f"{options.nodes} nodes x {options.cards} cards, {options.pods} pods a turn, {os.cpu_count()} cores",
          flush=True)
    all_ = []
    for turn in range(options.turns):
        for system in options.systems.split(","):
            all_.append(one_turn(turn, system, options.pods, options.percentage))
            print(shown(all_[-1]), flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(one) + "\n" for one in all_))
    stock = [one["pods_per_s"] for one in all_ if one["system"] == "stock"]
    for system in ("carve", "fraction"):
        ours = [one["pods_per_s"] for one in all_ if one["system"] == system]
        if stock and ours:
            print(f"{system}: {statistics.median(ours) / statistics.median(stock):.2f} x the stock scheduler's pods/s")
    beyond = missed(all_, options.nodes)
    print("\n".join(beyond), flush=True)
    if options.check and beyond:
        sys.exit(1)


if __name__ == "__main__":
    ring_ = Ring.load()
    ring_.control.enter()
    bench = placing.Placing(ring_, timer("bench"))
    bench.install()
    main()
