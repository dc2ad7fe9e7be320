"""Many concurrent pods on nodes that exist only as objects (placing.py): which client bound each, how soon, at what
CPU.

When a pod was created and bound, and by which user, comes from the API server's audit log (microseconds), CPU from
/proc. The clients that create the pods are processes like the others. No client has a rate limit of its own.
"""
import json
import multiprocessing
import os
import resource
import statistics
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from . import binder, control_plane, placing
from .process import stop, until

# Carve's requests as admission leaves them: with a slot. as_created() has them as a user writes them.
ASKS = {"stock": {"nvidia.com/gpu": "1"}, "carve": {"nvidia.com/gpu": "1", binder.SLOT: "1"},
        "fraction": {"elasticgpu.io/gpu-memory": "8192", "elasticgpu.io/gpu-core": "10", binder.SLOT: "1"}}
WORKERS, PROCESSES = 16, 4
OTHERS = ("refused", "failed", "unknown")       # outcomes of a bind call other than "bound", as control counts them


def in_processes(where, items, work):
    """Calls work(kube, item) for every item, from 16 workers in 4 processes: one Python process is too slow."""
    def some(part):
        where.each(part, work, WORKERS // PROCESSES)
    fork = multiprocessing.get_context("fork")
    made = [fork.Process(target=some, args=(items[i::PROCESSES],)) for i in range(PROCESSES)]
    for one in made:
        one.start()
    for one in made:
        one.join()
    if any(one.exitcode != 0 for one in made):
        raise RuntimeError("a worker failed")


def make_ready(where, nodes, cards):
    """Creates nodes to which no other client writes: stops the controller-manager and the ring's own scheduler for
    good."""
    for name in ("scheduler", "controller-manager"):
        stop(where.ring.state, name, grace=5)
    in_processes(where, range(nodes), lambda kube, index: where.make_node(kube, index, cards))
    where.say(f"{nodes} nodes with {cards} cards")


def clear_pods(where):
    names = [item["metadata"]["name"] for item in where.kube.list("Pod", labelSelector=placing.LABEL)]
    in_processes(where, names, lambda kube, name: kube.delete("Pod", name, grace=0))


def as_created(asks):
    """Without a slot, which admission adds (admission_parts.install)."""
    return {name: amount for name, amount in asks.items() if name != binder.SLOT}


def pod(name, asks):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {placing.LABEL: "true"}},
            "spec": {"schedulerName": "carve-scheduler", "automountServiceAccountToken": False,
                     "nodeSelector": {placing.LABEL: "true"},
                     "tolerations": [{"operator": "Exists"}],
                     "containers": [{"name": "main", "image": "none", "resources": {"limits": asks}}]}}


class Audit:
    """Reads the API server's audit log from the time of construction."""

    def __init__(self, ring):
        self.path = ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        self.at = self.path.stat().st_size
        self.created, self.bound = {}, {}       # pod -> time
        self.bindings = []                      # (pod, user, HTTP code), refused requests included
        self.writes, self.rest = 0, ""

    def read(self):
        with open(self.path, encoding="utf-8") as log:
            log.seek(self.at)
            text = self.rest + log.read()
            self.at = log.tell()
        lines = text.split("\n")
        self.rest = lines.pop()
        for line in lines:
            event = json.loads(line)
            if event["stage"] == "ResponseComplete":
                self.take(event, event.get("responseStatus", {}).get("code", 500))

    def take(self, event, code):
        about = event.get("objectRef") or {}
        self.writes += code < 300
        if event["verb"] != "create" or about.get("resource") != "pods":
            return
        name, what = about.get("name"), about.get("subresource", "")
        if what == "binding":
            self.bindings.append((name, event["user"]["username"], code))
        if code < 300 and what in ("", "binding"):
            when = datetime.fromisoformat(event["stageTimestamp"].replace("Z", "+00:00")).timestamp()
            (self.bound if what else self.created)[name] = when


class Cpu:
    """Seconds of CPU since construction, by process: (user, system)."""

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


class Threads:
    """Seconds of CPU of one process since construction, by thread name; threads that have ended are missing."""

    def __init__(self, pid):
        self.tasks = Path(f"/proc/{pid}/task")
        self.before = self.now()

    def now(self):
        """thread -> (its name, seconds). From schedstat, in nanoseconds: many threads have less than stat's tick."""
        found = {}
        for task in self.tasks.iterdir():
            try:
                nanoseconds = int((task / "schedstat").read_text().split()[0])
                found[task.name] = (task / "comm").read_text().strip(), nanoseconds / 1e9
            except (FileNotFoundError, ProcessLookupError):
                pass        # it has ended
        return found

    def used(self):
        spent = defaultdict(float)
        for task, (name, seconds) in self.now().items():
            spent[name] += seconds - self.before.get(task, (name, 0))[1]
        return dict(spent)


class Counters:
    """What control has counted since construction."""
    ACCEPTED = 'carve_control_connections_total{port="https",what="accepted"}'

    def __init__(self, where):
        self.where = where
        self.before = self.now()

    def now(self):
        rows = {outcome: f'carve_control_bindings_total{{outcome="{outcome}"}}' for outcome in OTHERS}
        return {what: self.where.metric(line) for what, line in {**rows, "connections": self.ACCEPTED}.items()}

    def since(self):
        return {what: value - self.before[what] for what, value in self.now().items()}


def wait_for_quiet(ring, limit=90, most=5):
    """Waits until no client writes more than Leases. After its Bindings control still writes events about the pods,
    about twenty a second, and these must not count for the next turn."""
    until_ = time.monotonic() + limit
    while time.monotonic() < until_:
        audit = Audit(ring)
        time.sleep(1)
        audit.read()
        if audit.writes <= most:
            return
    raise TimeoutError(f"still more than {most} writes a second after {limit} s")


def resident_mib(pid):
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                    if line.startswith("VmHWM"))) / 1024


def rates(audit):
    """How fast the pods were created and bound."""
    waits = sorted(audit.bound[name] - audit.created[name] for name in audit.bound)
    took = max(audit.bound.values()) - min(audit.created.values())
    creating = max(audit.created.values()) - min(audit.created.values())
    pods = len(audit.bound)
    return {"pods_per_s": pods / took, "created_per_s": pods / creating, "p50_s": statistics.median(waits),
            "p99_s": waits[int(0.99 * (len(waits) - 1))], "writes_per_pod": audit.writes / pods}


def cost(used, threads, pods):
    """Milliseconds of CPU per pod: of each process, of control's threads by name, in total, in the kernel."""
    def each(seconds):
        return 1e3 * seconds / pods
    # processes are counted in ticks, so the difference may be negative
    ended = max(0, sum(used["control"]) - sum(threads.values()))
    named = {**dict(sorted(threads.items())), "(ended)": ended}
    found = {}
    for name, both in used.items():
        found[f"{name}_cpu_ms_per_pod"] = each(sum(both))
        if name == "control":
            found.update({f"control/{thread}_cpu_ms_per_pod": each(seconds) for thread, seconds in named.items()})
    found["all_cpu_ms_per_pod"] = each(sum(sum(both) for both in used.values()))
    found.update({f"{name}_system_ms_per_pod": each(both[1]) for name, both in used.items()})
    return found


def wait_until_bound(audit, pods, limit):
    def all_are():
        audit.read()
        return len(audit.bound) >= pods and len(audit.created) >= pods
    try:
        until(f"{pods} pods are bound", limit, all_are, every=0.2)
    except TimeoutError as error:
        refused = sum(code >= 300 for _, _, code in audit.bindings)
        raise TimeoutError(f"{error}; {len(audit.bound)} are, {refused} Bindings were refused") from None


def one_turn(where, named, stock=False, percentage=None, limit=600):
    """Creates all pods at one time (`named`: name -> what it requests), with a newly started scheduler, and waits until
    all are bound. Returns (figures, the audit log). The pods stay. `stock`: kube-scheduler alone; else with its
    extender and control, which binds. A conflict is a pod that control sent to a node and then refused there when it
    was to bind it."""
    wait_for_quiet(where.ring)
    where.start_scheduler(stock=stock, limits=False, percentage=percentage)
    names = {"scheduler": placing.SCHEDULER, "control": placing.CONTROL, "apiserver": "apiserver", "etcd": "etcd"}
    pids = {name: where.ring.state.pid(process) for name, process in names.items()}
    time.sleep(5)       # its caches fill
    counters = None if stock else Counters(where)
    audit, cpu, threads = Audit(where.ring), Cpu(pids), Threads(pids["control"])
    in_processes(where, [pod(name, asks) for name, asks in named.items()], lambda kube, made: kube.create(made))
    wait_until_bound(audit, len(named), limit)
    found = {**cost(cpu.used(), threads.used(), len(named)), "control_peak_mib": resident_mib(pids["control"])}
    if counters:
        since = counters.since()
        found.update(conflicts=since["refused"], failed=since["failed"], unknown=since["unknown"],
                     connections_per_pod=since["connections"] / len(named))
    where.stop(placing.SCHEDULER)
    return {**rates(audit), **found}, audit


def shown(system, figures):
    return f"{system:9}" + "  ".join(f"{key} {value:.3g}" for key, value in figures.items())
