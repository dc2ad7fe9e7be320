"""Chaos: pods of nine dialects are created and deleted on two nodes while processes are killed or stopped for twice
the duration of control's coordination.k8s.io Lease. At rest all sources must report the same about the cards, and
nothing may be left when the pods are gone. Every failure must be explained by a fault in effect at that time
(../checker/excuses.py).

CARVE_CHAOS_SEED=n repeats the choices of a run (not its timing). CARVE_SOAK=1: half an hour of it.
"""
import collections
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
import excuses  # noqa: E402
import views  # noqa: E402
from ring import bare_nodes, carve, gather, moments  # noqa: E402
from ring.churn import Churn, ended_badly, make, reason_of, stays  # noqa: E402
from ring.faults import PARTS, Faults, Supervisor  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import RingTest, main  # noqa: E402

SOAK = bool(os.environ.get("CARVE_SOAK"))
SEED = int(os.environ.get("CARVE_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
TWICE_THE_LEASE = 20
KILLS, STOPS = (7, 3) if SOAK else (1, 1)           # of each part
PAUSE = (15, 40) if SOAK else (1, 2.5)              # seconds between two faults; stops last longer, so they overlap
FINISHED = 200 if SOAK else 8                       # pods that must end by themselves
BARE = 4
PATIENCE = 400 if SOAK else 150                     # the kubelet waits longer each time before it restarts a container
NOT_READY = 802     # CUDA_ERROR_SYSTEM_NOT_READY: a new process waits 5 s for the arbiter, then gets this error


def plan(dice):
    """The faults in their order: each part is killed, and each part is stopped."""
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
        self.looked = 0                             # containers that ended and had seen exactly their own cards
        self.excused = collections.Counter()        # (kind of failure, fault) -> count

    def say(self, text):
        print(f"  {time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def test_all_sources_agree_at_rest_and_nothing_is_left(self):
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
        self.say(f"quiet: {churn.made} pods created, {len(churn.ended)} ended, {len(churn.until)} exist; "
                 f"refused {churn.refused}; {len(churn.troubles)} requests failed")
        faults.wait_all_serve()
        self.judged(churn, faults)
        self.settled(churn)
        churn.collect_the_rest()
        self.judged(churn, faults)
        self.summed_up()
        self.agreed(views.check_all)
        self.inside()
        self.each_node_starts_pods()
        self.all_gone(churn)
        self.agreed(views.check_nothing)
        self.say("nothing is left")

    # --- steps -------------------------------------------------------------------------------------------------------

    def judged(self, churn, faults):
        """Judges what was collected since the last call: pods that ended by themselves must have seen what their
        records say, and each failure must have a fault that explains it."""
        events = self.kube.list("Event")
        failures = self.ended_right(churn, events) + self.lost(churn)
        counts, unexplained = excuses.judge(failures, faults.windows)
        self.excused += counts
        if unexplained:
            self.fail("\n\n".join([
                f"{len(unexplained)} failures that no fault explains (CARVE_CHAOS_SEED={SEED}); explained: {counts}",
                *(self.story(failure, events, faults) for failure in unexplained)]))

    def ended_right(self, churn, events):
        """The failures among ended pods. A container that saw cards must have seen its own."""
        wrong, failures = [], []
        ended, churn.ended = churn.ended, []
        for pod, looks, seen in ended:
            if ended_badly(pod):
                about = [event for event in events if event["involvedObject"].get("uid") == pod["metadata"]["uid"]]
                failures.append(excuses.of_end(pod, *reason_of(pod), seen, about))
            for name in [name for name, look in looks.items() if (look["cuda"] or {}).get("init") == NOT_READY]:
                failures.append(self.saw_nothing(pod, name, looks.pop(name)))
            seen_by = {("default", pod["metadata"]["name"], name): look for name, look in looks.items()}
            pod["spec"]["containers"] = [one for one in pod["spec"]["containers"] if one["name"] in looks]
            self.looked += len(looks)
            wrong += check.check([pod], [], [], seen_by, by="records", physical=self.physical)
        self.assert_no_findings(wrong)
        return failures

    def saw_nothing(self, pod, name, look):
        """The Failure of a container that got CUDA_ERROR_SYSTEM_NOT_READY. It must have seen no card and no memory."""
        subject = f"{pod['metadata']['name']}/{name}"
        self.assert_no_findings([f"{subject}: {card}" for card in look["cuda"]["cards"]] +
                    [f"{subject}: {card}" for card in (look["nvml"] or {"cards": []})["cards"] if card["memory"]])
        state = next(one["state"]["terminated"] for one in pod["status"]["containerStatuses"] if one["name"] == name)
        since, until = (moments.of_rfc3339(state[key]) for key in ("startedAt", "finishedAt"))
        return excuses.Failure(excuses.NOT_READY, subject, pod["spec"]["nodeName"], since, until + 1, str(look),
                               pod["metadata"]["uid"])

    @staticmethod
    def lost(churn):
        """The failures other than pods' ends: pods that never started or vanished, logs and requests that failed."""
        failures = [excuses.of_unstarted(pod, seen) for pod, seen in churn.unstarted]
        failures += [excuses.Failure(excuses.VANISHED, name, "", at, at, "") for name, at in churn.vanished]
        for pod, container, (since, until, status, text) in churn.lost_logs:
            if status == 200:       # it may have been truncated at any time of the container's life
                since = moments.of_rfc3339(pod["status"]["startTime"])
            kind = excuses.LOST_LOG if status == 200 else excuses.NO_LOG
            subject = f"{pod['metadata']['name']}/{container}"
            failures.append(excuses.Failure(kind, subject, pod["spec"]["nodeName"], since, until, f"{status}: {text}",
                                            pod["metadata"]["uid"]))
        for since, until, status, text in churn.troubles:
            failures.append(excuses.Failure(excuses.kind_of_answer(status, text), "a request", "", since, until,
                                            f"{status}: {text}"))
        churn.unstarted, churn.vanished, churn.lost_logs, churn.troubles = [], [], [], []
        return [failure for failure in failures if failure is not None]

    def story(self, failure, events, faults):
        """For a person to read: the events about a failure, and the faults around it."""
        about = [f"{event.get('firstTimestamp') or event.get('eventTime')} {event['reason']}: {event.get('message', '')}"
                for event in events if failure.uid and event["involvedObject"].get("uid") == failure.uid]
        begun = time.strftime("%H:%M:%S", time.gmtime(failure.since))
        return "\n  ".join([f"{failure.subject} on {failure.node or 'no node'}: {failure.kind}, {begun} and "
                            f"{failure.until - failure.since:.1f} s after: {failure.text}",
                            *about, "faults around it, relative to its time:",
                            *excuses.around(failure, faults.windows)])

    def summed_up(self):
        """Prints how many containers were checked, and how many failures each fault excused."""
        self.say(f"{self.looked} containers that ended had seen their own cards and limits")
        self.assertGreater(self.looked, FINISHED // 2, f"excused: {self.excused}")
        for (kind, fault), times in sorted(self.excused.items()):
            self.say(f"excused: {times} × {kind}, by {fault}")

    def settled(self, churn):
        """Waits until all of Carve is Ready and each pod runs, waits for room, or has ended. Pods that end by
        themselves must have ended, because a look into them would race with their end."""
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
        """The checker must find nothing within a bounded time: GPU objects are written every two seconds."""
        found = []

        def nothing():
            found[:] = judge(gather.everything(self.ring, control.carves))
            return not found
        try:
            wait_for("all sources agree", 60, nothing, every=1)
        except AssertionError:
            self.assert_no_findings(found, f"still after a minute (CARVE_CHAOS_SEED={SEED})")
            raise

    def inside(self):
        """A new process in each running container sees its cards and limits, and cannot allocate more."""
        wanted = []
        for pod in self.kube.list("Pod"):
            if pod["status"]["phase"] != "Running" or "deletionTimestamp" in pod["metadata"]:
                continue
            for part in views.record_of(pod)["parts"]:
                wanted.append((pod, part["part"], part["cards"][0]["bytes"] + (1 << 20)))
        looks = gather.look_into_all(self.ring, wanted)
        seen = {("default", pod["metadata"]["name"], part): look for (pod, part, _), look in zip(wanted, looks)}
        pods = {pod["metadata"]["uid"]: pod for pod, _, _ in wanted}
        self.assert_no_findings(check.check(list(pods.values()), [], [], seen, by="records", physical=self.physical))
        self.assert_no_findings([f"{key}: an allocation over its limit returned {look['allocated']}, not 2 (out of memory)"
                                 for key, look in seen.items() if look["allocated"] != 2])
        self.say(f"{len(seen)} containers see their own cards and limits, and cannot allocate more")

    def each_node_starts_pods(self):
        """Also with slots that other pods had before."""
        for node in self.ring.nodes:
            made, _ = make(self.name(), random.Random(1))
            made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node.name}
            made["spec"]["containers"][0]["command"] = ["ring-look", "hold", "3600"]
            self.wait_ready(self.create(made)["metadata"]["name"], 60)

    def all_gone(self, churn):
        """Deletes all pods and waits until they are gone."""
        churn.end()
        names = [pod["metadata"]["name"] for pod in self.kube.list("Pod")]
        for name in names:
            churn.delete(name)
        wait_for("no pod exists", 120, lambda: not self.kube.list("Pod"), every=0.5)


if __name__ == "__main__":
    main()
