"""Chaos: pods of three dialects come and go on two nodes while one process after the other is killed or stops for twice
control's lease. At rest everybody must say the same of the cards, and nothing may be left when the pods are gone.

CARVE_CHAOS_SEED=n repeats the choices of a run (not its timing). CARVE_SOAK=1: half an hour of it.
"""
import json
import os
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
import control  # noqa: E402
import views  # noqa: E402
from ring import bare_nodes, carve, gather, moments  # noqa: E402
from ring.churn import Churn, make, stays  # noqa: E402
from ring.faults import PARTS, Faults, Supervisor  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import RingTest, main  # noqa: E402

SOAK = bool(os.environ.get("CARVE_SOAK"))
SEED = int(os.environ.get("CARVE_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
TWICE_THE_LEASE = 20
KILLS, STOPS = (7, 3) if SOAK else (1, 1)           # of each part
PAUSE = (15, 40) if SOAK else (1, 2.5)              # seconds between two faults; stops last longer, so they overlap
FINISHED = 200 if SOAK else 8                       # pods that ended by themselves meanwhile
BARE = 4
PATIENCE = 400 if SOAK else 150                     # the kubelet waits longer and longer before it starts a container again
# Why a pod may fail when what it needs is killed under it; its owner makes another.
#   UnexpectedAdmissionError  the kubelet asked for devices while no agent served: it asks once
#   Unknown                   containerd was killed while it started the container: of that it says "Unknown", exit code 255
#   StartError                containerd did not answer while it was to start the container: "context canceled", exit code 128
LEGAL = {"UnexpectedAdmissionError", "Unknown", "StartError"}
NOT_READY = 802     # CUDA_ERROR_SYSTEM_NOT_READY: a new process waits 5 s for the arbiter, and then gets nothing


def plan(dice):
    """The faults in their order: each part is killed, and each stops."""
    made = [(what, part) for part in PARTS for what, times in (("kill", KILLS), ("stop", STOPS)) for _ in range(times)]
    dice.shuffle(made)
    return made


def setUpModule():
    control.setUpModule()


class Chaos(RingTest):
    def setUp(self):
        super().setUp()
        self.bare = bare_nodes.make(self.kube, "n1", BARE)
        self.addCleanup(bare_nodes.remove, self.kube, self.bare)
        self.addCleanup(Supervisor(self.ring).end)
        self.physical = gather.physical(control.carves)
        self.begun = time.monotonic()

    def say(self, text):
        print(f"  {time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def test_everybody_says_the_same_at_rest_and_nothing_is_left(self):
        print(f"\nCARVE_CHAOS_SEED={SEED}", flush=True)
        dice = random.Random(SEED)
        churn = Churn(self.kube, self.name("churn"), dice.randrange(1 << 32)).start()
        self.addCleanup(self.all_gone, churn)
        faults = Faults(self.ring, dice, PATIENCE, self.say)
        for what, part in plan(dice):
            time.sleep(dice.uniform(*PAUSE))
            faults.kill(part) if what == "kill" else faults.stop(part, TWICE_THE_LEASE)
        faults.wait_all_go_on()
        self.say("the last fault is over")
        self.assertEqual(faults.done, {(part, what): times for part in PARTS
                                       for what, times in (("kill", KILLS), ("stop", STOPS))})
        self.assertEqual(faults.cut_short, [], f"stopped for less than {TWICE_THE_LEASE} s")
        self.say(f"{len(churn.ended)} pods have ended by themselves")
        wait_for(f"{FINISHED} pods to have ended by themselves", 2 * PATIENCE, lambda: len(churn.ended) >= FINISHED, every=0.5)
        churn.end()
        self.say(f"quiet: {churn.made} pods made, {len(churn.ended)} ended, {len(churn.until)} there; "
                 f"refused {churn.refused}; errors {churn.errors}")
        self.ended_right(churn, faults)
        self.settled(churn)
        self.agreed(views.check_all)
        self.inside()
        self.each_node_starts_pods()
        self.all_gone(churn)
        self.agreed(views.check_nothing)
        self.say("nothing is left")

    # --- steps -------------------------------------------------------------------------------------------------------

    def ended_right(self, churn, faults):
        """What those saw that ended by themselves, against their records; none failed for a reason of ours. Who began while
        there was no arbiter saw nothing, which is right only then."""
        wrong, looked, shut_out = [], 0, 0
        for pod, looks in churn.ended:
            for name in [name for name, look in looks.items() if (look["cuda"] or {}).get("init") == NOT_READY]:
                self.saw_nothing(pod, name, looks.pop(name), faults)
                shut_out += 1
            seen = {("default", pod["metadata"]["name"], name): look for name, look in looks.items()}
            pod["spec"]["containers"] = [one for one in pod["spec"]["containers"] if one["name"] in looks]
            looked += len(looks)
            wrong += check.check([pod], [], [], seen, by="records", physical=self.physical)
        self.acquit(wrong)
        self.assertGreater(looked, FINISHED // 2, f"ended as failed: {churn.reasons}, logs lost: {churn.lost_looks}")
        for reason, texts in churn.reasons.items():
            self.say(f"{len(texts)} failed by {reason}: {sorted(set(texts))}")
        self.assertLessEqual(set(churn.reasons), LEGAL)
        self.say(f"{looked} containers that ended had seen their own cards and limits ({churn.lost_looks} logs lost), "
                 f"{shut_out} nothing, as their arbiter was away")

    def saw_nothing(self, pod, name, look, faults):
        """A container that was told that nothing is ready: no card, not a byte, and its node's arbiter was away meanwhile."""
        self.acquit([f"{pod['metadata']['name']}/{name}: {card}" for card in look["cuda"]["cards"]] +
                    [f"{pod['metadata']['name']}/{name}: {card}" for card in (look["nvml"] or {"cards": []})["cards"] if card["memory"]])
        state = next(one["state"]["terminated"] for one in pod["status"]["containerStatuses"] if one["name"] == name)
        since, until = (moments.of_rfc3339(state[key]) for key in ("startedAt", "finishedAt"))
        self.assertTrue(faults.may_be_away("arbiter", pod["spec"]["nodeName"], since, until + 1, TWICE_THE_LEASE),
                        f"{pod['metadata']['name']}/{name} was told \"not ready\" beside its arbiter: {look}")

    def settled(self, churn):
        """All of Carve is Ready; each pod runs, waits for room, or has ended. One that ends by itself has: nobody could look
        into it."""
        def ready(pod):
            return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        wait_for("all of Carve is Ready", PATIENCE, lambda: all(map(ready, self.kube.list("Pod", carve.NAMESPACE))), every=0.5)
        for one in control.carves:
            wait_for(f"slots on {one.node.name}", 60, lambda o=one: int(self.kube.get("Node", o.node.name)["status"][
                "allocatable"].get("elasticgpu.io/slot", 0)) > 0, every=0.5)

        def unsettled():
            return [pod for pod in self.kube.list("Pod") if pod["spec"].get("nodeName", "bare").partition("-")[0] != "bare" and
                    pod["status"]["phase"] not in ("Succeeded", "Failed") and not (ready(pod) and stays(pod))]
        try:
            wait_for("each pod runs or has ended", 120, lambda: not unsettled(), every=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.describe(p["metadata"]["name"]) for p in unsettled())) from None
        self.say("settled")

    def agreed(self, judge):
        """The checker finds nothing, within a bounded time: GPU objects are written each two seconds."""
        found = []

        def nothing():
            found[:] = judge(gather.everything(self.ring, control.carves))
            return not found
        try:
            wait_for("everybody says the same", 60, nothing, every=1)
        except AssertionError:
            self.acquit(found, f"still after a minute (CARVE_CHAOS_SEED={SEED})")
            raise

    def inside(self):
        """A new process in each running container sees its cards and limits, and gets no byte more."""
        wanted = []
        for pod in self.kube.list("Pod"):
            if pod["status"]["phase"] != "Running" or "deletionTimestamp" in pod["metadata"]:
                continue
            for part in views.record_of(pod)["parts"]:
                wanted.append((pod, part["part"], part["cards"][0]["bytes"] + (1 << 20)))
        looks = gather.look_into_all(self.ring, wanted)
        seen = {("default", pod["metadata"]["name"], part): look for (pod, part, _), look in zip(wanted, looks)}
        pods = {pod["metadata"]["uid"]: pod for pod, _, _ in wanted}
        self.acquit(check.check(list(pods.values()), [], [], seen, by="records", physical=self.physical))
        self.acquit([f"{key}: an allocation over its limit returned {look['allocated']}, not 2 (out of memory)"
                     for key, look in seen.items() if look["allocated"] != 2])
        self.say(f"{len(seen)} containers see their own cards and limits, and get no byte more")

    def each_node_starts_pods(self):
        """Also by slots that somebody else held before."""
        for node in self.ring.nodes:
            made, _ = make(self.name(), random.Random(1))
            made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
            made["spec"]["containers"][0]["command"] = ["ring-look", "hold", "3600"]
            self.wait_ready(self.create(made)["metadata"]["name"], 60)

    def all_gone(self, churn):
        """Deleted, and gone."""
        churn.end()
        names = [pod["metadata"]["name"] for pod in self.kube.list("Pod")]
        for name in names:
            churn.delete(name)
        wait_for("no pod is there", 120, lambda: not self.kube.list("Pod"), every=0.5)


if __name__ == "__main__":
    main()
