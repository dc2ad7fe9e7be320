"""A hundred nodes with eight cards each, as objects. With CARVE_SOAK=1 a thousand.

The inventory: pods of six dialects are created, end and are deleted at random, while control, the scheduler and the API
server are killed in turn. After every burst, one call of control's API and one table of the command line must equal the
records on the pods, soon: `CARVE_INVENTORY_EVENTS=1000 scale.py Inventory` on a quiet machine allows 2 s.

Then as many concurrent pods as nodes, by Carve; with CARVE_SOAK=1 first by the stock scheduler. Of Carve's pods every
second requests a whole card, the others a fraction. Only what does not depend on the machine's speed is judged: which
user bound each pod, to what, that no card is over-committed (from the API server's objects and its audit log), and
control's memory. The speed is printed and not judged: the build is one for tests, and other tests run concurrently.
bench/cluster, run by scripts/soak, judges Carve's time.

Starts a control plane of its own, so that each try has a new one, with the programs of the build folder CARVE_BUILD.
`down` must remove it from outside: this process is in the ring's cgroups, as are all that connect to its API server
directly.
"""
import csv
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "checker")]
import placed  # noqa: E402
import views  # noqa: E402
from ring import binder, burst, carve, paths, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.process import kill  # noqa: E402
from ring.testing import SOAK, RingTest, main, wait_for  # noqa: E402

NODES, CARDS, PODS = (1000, 8, 1000) if SOAK else (100, 8, 100)
SCHEDULER, CONTROL = "system:kube-scheduler", f"system:serviceaccount:{carve.NAMESPACE}:carve-control"
# What each pod must get: bytes and points of one card.
GIVES = {"carve": [(80 << 30, 100)], "fraction": [(8 << 30, 10)]}
MOST_MIB = 256      # of control: twice what it needs (docs/measurements/placing.md)

# The inventory. SOON: seconds after the last change of a pod. Other tests, or 8,000 cards to read, need more.
EVENTS, SOON = int(os.environ.get("CARVE_INVENTORY_EVENTS", 0)), 2
if EVENTS == 0:
    EVENTS, SOON = 1000 if SOAK else 80, 10
BURST = 40
LINGER = 4          # more than ClusterModel::kLinger, in seconds
REQUESTS = [
    {"elasticgpu.io/gpu-memory": "4096", "elasticgpu.io/gpu-core": "10"},
    {"elasticgpu.com/gpu-memory": "2048", "elasticgpu.com/gpu-core": "5"},
    {"aliyun.com/gpu-mem": "3"},
    {"tke.cloud.tencent.com/qgpu-core": "20", "tke.cloud.tencent.com/qgpu-memory": "6"},
    {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "16"},
    {"volcano.sh/gpu-memory": "5000"},
]
PLACING = None      # the control plane of both classes


def setUpModule():
    global PLACING
    build = os.environ.get("CARVE_BUILD", paths.REPOSITORY / "build/dev")
    subprocess.run([HERE / "up", "--again", "--nodes", "0", "--build", build], check=True, stdout=subprocess.DEVNULL)
    ring = Ring.load()
    ring.control.enter()
    PLACING = placing.Placing(ring, timer("scale"))
    PLACING.install()
    burst.make_ready(PLACING, NODES, CARDS)
    PLACING.start_control()


class OnePlane(RingTest):
    @classmethod
    def setUpClass(cls):
        cls.placing, cls.ring, cls.kube = PLACING, PLACING.ring, PLACING.kube


class Inventory(OnePlane):
    @classmethod
    def tearDownClass(cls):
        burst.clear_pods(cls.placing)

    def held(self):
        """What each living pod's record gives: {(node, card, pod, part, bytes, cores)}; and the pods that wait."""
        found, waiting = set(), []
        for pod in self.kube.list("Pod"):
            name, record = pod["metadata"]["name"], views.record_of(pod)
            if views.living(pod) and record:
                found |= {(pod["spec"]["nodeName"], card["uuid"], f"default/{name}", part["part"], card["bytes"],
                           card["compute"]) for part in record["parts"] for card in part["cards"]}
            elif not pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending":
                waiting.append(name)
        return found, waiting

    def table(self):
        """The same by `carve inspect --cluster -o csv`, and the cards that it lists."""
        done = subprocess.run([self.ring.build / "bin/carve", "inspect", "--cluster", "--kubeconfig",
                               self.placing.access("admin"), "-o", "csv"], capture_output=True, text=True, check=True)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        return {(row["node"], row["card"], row["held_by"], row["part"], int(row["memory_bytes"]), int(row["cores"]))
                for row in rows if row["held_by"]}, {row["card"] for row in rows}

    def ledger(self):
        """The same by control's API."""
        connection = placing.ControlConnection(self.placing.ports["tls"], self.placing.scheduler_certificates())
        connection.request("GET", "/v1/cluster")
        nodes = json.loads(connection.getresponse().read())["nodes"]
        connection.close()
        return {(node["name"], card["uuid"], self.names.get(holder["uid"], holder["uid"]), holder["part"],
                 holder["memory_bytes"], holder["cores"])
                for node in nodes for card in node["cards"] for holder in card["holders"]}, \
            {card["uuid"] for node in nodes for card in node["cards"]}

    def lately_gone(self):
        """Pods whose room control still keeps: no agent says that their processes have ended."""
        return {f"default/{name}" for name, when in self.gone.items() if time.monotonic() < when + LINGER}

    def event(self, kind):
        """Creates, ends or deletes a pod."""
        if kind == "create" or not self.pods:
            name = f"inventory-{len(self.names):04}"
            asks = {**self.random.choice(REQUESTS), binder.SLOT: "1"}
            self.names[self.kube.create(burst.pod(name, asks))["metadata"]["uid"]] = f"default/{name}"
            self.pods.append(name)
            return
        name = self.pods.pop(self.random.randrange(len(self.pods)))
        if kind == "end":
            phase = self.random.choice(("Succeeded", "Failed"))
            self.kube.patch("Pod", name, {"status": {"phase": phase}}, sub="status")
        else:
            self.kube.delete("Pod", name, grace=0)
        self.gone[name] = time.monotonic()

    def assert_views_are_equal_soon(self, after):
        """Returns the seconds from the last change of a record to the time at which both views had it."""
        records, changed = None, time.monotonic()
        while True:
            now, waiting = self.held()
            if now != records:
                records, changed = now, time.monotonic()
            kept = self.lately_gone()
            said = {"the ledger": self.ledger(), "the table": self.table()}
            late = time.monotonic() - changed
            different = {name: sorted(row for row in found ^ records if row in records or row[2] not in kept)[:6]
                         for name, (found, _) in said.items()}
            if not any(different.values()) and not waiting and self.held()[0] == records:
                for name, (_, cards) in said.items():
                    self.assertEqual(len(cards), NODES * CARDS, name)
                return late
            self.assertLess(late, SOON if not waiting else 60, f"{after}: {different}, waiting: {waiting[:6]}")

    def test_the_inventory_equals_the_records_after_random_events_and_kills(self):
        seed = int(os.environ.get("CARVE_INVENTORY_SEED", random.randrange(1 << 30)))
        print(f"CARVE_INVENTORY_SEED={seed}", flush=True)
        self.random = random.Random(seed)
        self.pods, self.gone, self.names, latest = [], {}, {}, []
        self.placing.start_scheduler(limits=False)
        self.addCleanup(self.placing.stop, placing.SCHEDULER)
        kills = [self.kill_control, self.kill_scheduler, self.kill_api_server]
        for burst_of in range(0, EVENTS, BURST):
            for _ in range(BURST):
                self.event(self.random.choices(("create", "delete", "end"), (7, 2, 1))[0])
            latest.append(self.assert_views_are_equal_soon(f"{burst_of + BURST} events"))
            kills[burst_of // BURST % len(kills)]()
            self.assert_views_are_equal_soon(f"{burst_of + BURST} events and a kill")
        wanted = {row[2] for row in self.held()[0]}
        self.assertGreater(len(wanted), EVENTS // 12, "too few pods are left to compare")
        print(f"{EVENTS} events on {NODES} x {CARDS} cards: the ledger and the table had each burst of {BURST} "
              f"{max(latest):.2f} s after its last change at the latest", flush=True)

    def kill_control(self):
        kill(self.ring.state, placing.CONTROL)
        self.placing.start_control()

    def kill_scheduler(self):
        kill(self.ring.state, placing.SCHEDULER)
        self.placing.start_scheduler(limits=False)

    def kill_api_server(self):
        kill(self.ring.state, "apiserver")
        self.ring.start_api_server()
        wait_for("the API server answers", 60, self.kube.ready)


class Scale(OnePlane):
    def turn(self, system, named):
        """Creates the pods of `named` (name -> request) at one time. Returns the figures and the Binding requests."""
        load = os.getloadavg()[0]
        figures, audit = burst.one_turn(self.placing, named, stock=system == "stock")
        print(f"\n{NODES} nodes x {CARDS} cards, {len(named)} pods, {os.cpu_count()} cores, load {load:.1f} before. "
              "A build for tests, on a machine with other work: not comparable with other figures.\n"
              + burst.shown(system, figures), flush=True)
        return figures, audit.bindings

    def test_as_many_concurrent_pods_as_nodes_are_placed_right(self):
        if SOAK:
            # First the stock scheduler: after its Bindings nothing is left to write, after control's its events are.
            named = {f"stock-{index:05}": burst.ASKS["stock"] for index in range(PODS)}
            _, bindings = self.turn("stock", named)
            self.assert_no_findings(placed.check_bindings(named, bindings, SCHEDULER))
            burst.clear_pods(self.placing)
        self.by_carve()

    def by_carve(self):
        kinds = {f"scale-{index:05}": ("carve", "fraction")[index % 2] for index in range(PODS)}
        figures, bindings = self.turn("both", {name: burst.ASKS[kind] for name, kind in kinds.items()})
        wanted = {name: GIVES[kind] for name, kind in kinds.items()}
        pods, nodes, gpus = (self.kube.list(kind, space, labelSelector=placing.LABEL)
                             for kind, space in (("Pod", "default"), ("Node", None), ("GPU", None)))
        self.assertEqual((len(pods), len(nodes), len(gpus)), (PODS, NODES, NODES * CARDS))
        self.assert_no_findings(placed.check_bindings(wanted, bindings, CONTROL))
        self.assert_no_findings(placed.check_places(pods, nodes, gpus, wanted))
        print(f"{len(bindings)} Binding requests, the pods are on "
              f"{len({pod['spec']['nodeName'] for pod in pods})} nodes", flush=True)
        self.assertLess(figures["control_peak_mib"], MOST_MIB)


if __name__ == "__main__":
    main()
