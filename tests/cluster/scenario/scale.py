"""A hundred nodes with eight cards each, as objects, and as many concurrent pods: first by the stock scheduler, then
by Carve. With CARVE_SOAK=1 a thousand of each.

Of Carve's pods every second requests a whole card, the others a fraction. Only what does not depend on the machine's
speed is judged: which user bound each pod, to what, that no card is over-committed (from the API server's objects and
its audit log), and control's memory. The speed is printed and not judged: the build is one for tests, and other tests
run concurrently. bench/cluster, run by scripts/soak, judges Carve's time.

Starts a control plane of its own, so that each try has a new one, with the programs of the build folder CARVE_BUILD.
`down` must remove it from outside: this process is in the ring's cgroups, as are all that connect to its API server
directly.
"""
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "checker")]
import placed  # noqa: E402
from ring import burst, carve, paths, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.testing import SOAK, RingTest, main  # noqa: E402

NODES, CARDS, PODS = (1000, 8, 1000) if SOAK else (100, 8, 100)
SCHEDULER, CONTROL = "system:kube-scheduler", f"system:serviceaccount:{carve.NAMESPACE}:carve-control"
# What each pod must get: bytes and points of one card.
GIVES = {"carve": [(80 << 30, 100)], "fraction": [(8 << 30, 10)]}
MOST_MIB = 256      # of control: twice what it needs (docs/measurements/placing.md)


class Scale(RingTest):
    @classmethod
    def setUpClass(cls):
        build = os.environ.get("CARVE_BUILD", paths.REPOSITORY / "build/dev")
        subprocess.run([HERE / "up", "--again", "--nodes", "0", "--build", build], check=True,
                       stdout=subprocess.DEVNULL)
        cls.ring = Ring.load()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("scale"))
        cls.kube = cls.placing.kube
        cls.placing.install()
        burst.make_ready(cls.placing, NODES, CARDS)
        cls.placing.start_control()

    def turn(self, system, named):
        """Creates the pods of `named` (name -> request) at one time. Returns the figures and the Binding requests."""
        load = os.getloadavg()[0]
        figures, audit = burst.one_turn(self.placing, named, stock=system == "stock")
        print(f"\n{NODES} nodes x {CARDS} cards, {len(named)} pods, {os.cpu_count()} cores, load {load:.1f} before. "
              "A build for tests, on a machine with other work: not comparable with other figures.\n"
              + burst.shown(system, figures), flush=True)
        return figures, audit.bindings

    def test_as_many_concurrent_pods_as_nodes_are_placed_right(self):
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
