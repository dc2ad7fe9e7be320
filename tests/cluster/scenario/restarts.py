"""Restarts of each part under running pods by DRA (of the runtime, by DRA and by slots): no pod is lost, limits hold,
every pod gets its slice."""
import random
import re
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import disaster, images  # noqa: E402
from ring.slot_testing import SlotTest, container, slot_pod  # noqa: E402
from ring.testing import SOAK, CarveTest, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
HOLD = ["ring-look", "allocate", str(5 * GIB), "hold", "3600"]
SEED = random.SystemRandom().randrange(1 << 32)


AWAY = 60 if SOAK else 35      # seconds for which the API server is away; the agent notices it within 20


class Fractions(CarveTest):
    """Pods with a fraction each by DRA, and what must not change about them."""

    def setUp(self):
        super().setUp()
        self.node = self.ring.node(1)
        if self.node.pid("arbiter") is None:
            self.carve.start_arbiter()
        if self.node.pid("agent") is None:
            self.carve.start_agent()

    def fraction(self, **spec):
        name = self.name()
        self.create(pod(name, image=images.PROGRAMS, claims={"gpu": self.template(memory="4Gi", cores="5")},
                        **{"command": HOLD, "node": "n1", **spec}))
        return name

    def judge(self, names):
        pods = [one for one in self.kube.list("Pod") if one["metadata"]["name"] in names]
        seen = {("default", name, "main"): self.look(name) for name in names}
        return check.check(pods, self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None), seen)

    def container_ids(self, names):
        return {name: self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"] for name in names}


class Restarts(Fractions):
    plugins = "dra"
    kills = 50 if SOAK else 12

    def test_pods_start_while_the_agent_is_killed_at_random_moments(self):
        print(f"\nseed {SEED}", flush=True)
        dice = random.Random(SEED)
        steady = self.fraction()
        self.wait_ready(steady)
        before, killed, stop = self.container_ids([steady]), [0], threading.Event()

        def killer():
            while killed[0] < self.kills and not stop.is_set():
                time.sleep(dice.uniform(0.05, 0.8))
                self.carve.kill_agent()
                killed[0] += 1
                self.carve.start_agent(wait=False)
        thread = threading.Thread(target=killer)
        thread.start()
        names, rounds = [], 0
        try:
            while thread.is_alive():
                rounds += 1
                if rounds % 8 == 0:     # during the kills, not only afterwards
                    self.assert_limited(steady)
                names.append(self.fraction())
                if len(names) > 12:
                    self.wait_ready(names[0], 120)
                    self.assert_no_findings(self.judge(names[:1]))
                    self.kube.delete("Pod", names.pop(0), grace=0)
                time.sleep(0.2)
        finally:
            stop.set()
            thread.join()
        self.carve.wait_agent()
        for name in names:
            self.wait_ready(name, 120)
        self.assert_no_findings(self.judge([*names, steady]))
        self.assertEqual(self.container_ids([steady]), before)
        self.assert_limited(steady)
        self.assertEqual(killed[0], self.kills)

    def test_limits_hold_when_the_arbiter_is_killed(self):
        name = self.fraction()
        self.wait_ready(name)
        before = self.container_ids([name])
        for _ in range(5):
            self.node.kill("arbiter")
            self.carve.start_arbiter()
        self.assert_limited(name)
        self.assertEqual(self.container_ids([name]), before)

    def test_pods_survive_kubelet_restarts_next_to_a_crash_loop(self):
        steady = self.fraction()
        looping = self.fraction(command=["sh", "-c", "ring-look; sleep 1; exit 1"], restartPolicy="Always")
        self.wait_ready(steady)
        before = self.container_ids([steady])
        for _ in range(5):
            self.node.restart_kubelet()
            time.sleep(2)
            self.assertNotEqual(self.phase(looping), "Failed", self.describe(looping))
        self.wait_ready(steady)
        self.assertEqual(self.container_ids([steady]), before)
        new = self.fraction()
        self.wait_ready(new, 90)
        self.assert_no_findings(self.judge([new, steady]))

    def away_events(self):
        """The agent's events on its Node about an API server that it could not reach."""
        return [event for event in self.kube.list("Event") if event["reason"] == "APIServerAway" and
                (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Node", "n1")]

    def test_pods_survive_an_unavailable_api_server_and_the_agent_reports_it(self):
        steady = self.fraction()
        self.wait_ready(steady)
        before, reported = self.container_ids([steady]), sum(event["count"] for event in self.away_events())
        with disaster.api_server_away(self.ring):
            time.sleep(AWAY)
            self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        wait_for("one event more on the Node", 60,
                 lambda: sum(event["count"] for event in self.away_events()) == reported + 1)
        message = max(self.away_events(), key=lambda event: event["lastTimestamp"])["message"]
        seconds = int(re.search(r"did not answer this agent for (\d+) s", message)[1])
        # noticed within 20 s, reported when it is back
        self.assertTrue(AWAY - 30 <= seconds <= AWAY + 15, message)
        new = self.fraction()
        self.wait_ready(new, 120)
        self.assert_no_findings(self.judge([new, steady]))
        self.assertEqual(self.container_ids([steady]), before)
        self.assert_limited(steady)

    def test_a_claim_is_released_when_the_driver_is_gone(self):
        name = self.fraction()
        self.wait_ready(name)
        self.node.kill("simd")
        try:
            self.kube.delete("Pod", name, grace=0)
            wait_for("the pod is gone", 60, lambda: self.kube.get("Pod", name) is None)
            wait_for("its claim is gone", 60, lambda: not self.kube.list("ResourceClaim"))
            wait_for("the agent has no slices", 20, lambda: not self.carve.inspect()["slices"])
        finally:
            self.node.start_simulator(self.ring.build, self.ring.state.content["simulate"])

    def test_a_pod_runs_again_with_its_slice_after_a_reboot(self):
        """/run is empty, the boot id is another, no process survives."""
        name = self.fraction(restartPolicy="Always")
        self.wait_ready(name)
        before = self.look(name)
        begun = time.monotonic()

        def boot(node):
            node.start_simulator(self.ring.build, self.ring.state.content["simulate"])
            self.carve.start_arbiter()
            self.carve.start_agent(wait=False)
        disaster.reboot(self.node, boot)
        wait_for("the container was restarted", 120, lambda: self.kube.get("Pod", name)["status"]
                 .get("containerStatuses", [{}])[0].get("restartCount", 0) > 0)
        self.wait_ready(name, 120)
        print(f"\nrunning {time.monotonic() - begun:.1f} s after the reboot", flush=True)
        self.assertEqual(self.look(name)["cuda"], before["cuda"])
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)


class RuntimeKilled(Fractions, SlotTest):
    plugins = "dra,slots"

    def ready_condition(self):
        """The Node's Ready condition: (status, message)."""
        conditions = self.kube.get("Node", "n1")["status"]["conditions"]
        return next((one["status"], one["message"]) for one in conditions if one["type"] == "Ready")

    def test_pods_survive_a_killed_containerd(self):
        """It is away for so long that the Node is not Ready. Pods created during that time, by DRA and by slots, start
        later."""
        claimed, recorded = self.fraction(), self.recorded(1)
        steady = [claimed, recorded]
        for name in steady:
            self.wait_ready(name)
        before = self.container_ids(steady)
        self.node.kill("containerd")
        try:
            # The kubelet waits half a minute before it reports that, and writes its node's status every five seconds.
            wait_for("the Node is not Ready for its container runtime", 90, lambda: (
                said := self.ready_condition()) and said[0] == "False" and "container runtime is down" in said[1], 0.5)
            during = [self.fraction(), self.recorded(2)]
        finally:
            self.node.start_containerd()
        self.node.wait_containerd()
        wait_for("the Node is Ready", 60, lambda: self.ready_condition()[0] == "True", 0.5)
        new = [self.fraction(), self.recorded(3)]
        for name in [*during, *new]:
            self.wait_ready(name, 90)
        by_claims, by_records = zip(steady, during, new)
        self.assert_no_findings(self.judge(by_claims))
        for name in by_records:
            self.assert_right(name)
        self.assertEqual(self.container_ids(steady), before)
        for name in steady:
            self.assert_limited(name)

    def recorded(self, card):
        """Creates a pod by slots with 4 GiB of that card. Returns its name."""
        return self.start(slot_pod(self.name(), [container("main", HOLD)]), {"main": [(card, 4, 5)]})["metadata"]["name"]


if __name__ == "__main__":
    main()
