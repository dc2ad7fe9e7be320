"""Every kind of pod by the DRA door, all at once on the real kubelet, and the identity races that this door can have.

The scheduler allocates and the kubelet names the claim by its UID, so a record that is late, missing, of another UID or
over the card has no counterpart: what it would place wrongly it does not place at all. What is left of the slot door's
matrix (matrix.py) and races (races.py) is here. A container is judged by what it sees, against its claim; no two claims
are of one size, so that two on one card cannot be exchanged unseen.
"""
import itertools
import json
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import disaster, images  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

HOLD = ["ring-look", "hold", "3600"]
LOOK = ["ring-look"]
FAILS = ["sh", "-c", "ring-look; sleep 1; exit 1"]
KINDS = ("plain", "init", "two init", "sidecar", "several containers", "container restart", "crash loop", "pod restart",
         "deleted while starting", "same name again", "over the card")


class Claimed(CarveTest):
    doors = "dra"

    def setUp(self):
        super().setUp()
        self.sizes = itertools.count(1024, -1)      # MiB
        self.asked = {}                             # pod -> what its claim asks for, in bytes

    def container(self, name, command=HOLD, **more):
        return {"name": name, "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": list(command),
                "resources": {"claims": [{"name": "gpu"}]}, **more}

    def claimed(self, name, containers=None, init=(), memory=None, **spec):
        memory = memory or f"{next(self.sizes)}Mi"
        self.asked[name] = check.quantity(memory)
        made = pod(name, claims={"gpu": self.template(cores="1", memory=memory)}, **spec)
        made["spec"]["containers"] = containers or [self.container("main")]
        if init:
            made["spec"]["initContainers"] = list(init)
        return made

    def assert_right(self, name, looks=None):
        """looks: container -> what it saw, of those that do not run any more. The cards that its containers see."""
        found = self.kube.get("Pod", name)
        seen = {("default", name, container): look for container, look in (looks or {}).items()}
        for one in found["spec"]["containers"]:
            if one["name"] not in (looks or {}):
                seen["default", name, one["name"]] = self.look(name, one["name"])
        for one in found["spec"].get("initContainers", []):
            seen["default", name, one["name"]] = self.look(name, one["name"])
        wrong = check.check([found], self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None), seen)
        self.assert_no_findings(wrong)
        cards = [card for look in seen.values() for card in look["cuda"]["cards"]]
        self.assertEqual({card["memory"] for card in cards}, {self.asked[name]}, name)
        return {card["uuid"] for card in cards}

    def assert_nothing_held(self):
        wait_for("the agent holds nothing", 60, lambda: not self.carve.inspect()["slices"])
        self.assertEqual(self.carve.living(), [])


class Matrix(Claimed):
    def test_every_kind_of_pod(self):
        with ThreadPoolExecutor(len(KINDS)) as pool:
            outcomes = dict(zip(KINDS, pool.map(self.judged, KINDS)))
        print("\n" + "\n".join(f"{kind}: {outcome}" for kind, outcome in outcomes.items()), flush=True)
        self.assertEqual({kind: text for kind, text in outcomes.items() if text != "right"}, {})

    def judged(self, kind):
        try:
            getattr(self, "kind_" + kind.replace(" ", "_"))(self.name("dra-" + kind.replace(" ", "-")))
            return "right"
        except Exception as error:      # one that fails does not hide the others
            return f"FAILED {str(error)[:500]}\n{traceback.format_exc(limit=-2)[:1500]}"

    def runs(self, object_):
        name = self.create(object_)["metadata"]["name"]
        self.wait_ready(name, 120)
        return name

    def kind_plain(self, name):
        self.assert_right(self.runs(self.claimed(name)))

    def kind_init(self, name):
        self.assert_right(self.runs(self.claimed(name, init=[self.container("first", LOOK)])))

    def kind_two_init(self, name):
        self.assert_right(self.runs(self.claimed(name, init=[self.container("first", LOOK),
                                                             self.container("second", LOOK)])))

    def kind_sidecar(self, name):
        self.assert_right(self.runs(self.claimed(name, init=[self.container("side", restartPolicy="Always")])))

    def kind_several_containers(self, name):
        self.assert_right(self.runs(self.claimed(name, [self.container("main"), self.container("two"),
                                                        self.container("three")])))

    def restarted(self, name, times):
        made = self.claimed(name, [self.container("main", FAILS)], restartPolicy="Always")
        self.create(made)
        wait_for(f"{times} restarts", 120, lambda: self.restarts_of(name) >= times, 0.5)
        look = wait_for("what the container before saw", 60, lambda: self.look_before(name), 0.5)
        self.assert_right(name, {"main": look})

    def kind_container_restart(self, name):
        self.restarted(name, 1)

    def kind_crash_loop(self, name):
        self.restarted(name, 3)

    def kind_pod_restart(self, name):
        self.runs(self.claimed(name, restartPolicy="Always"))
        self.kill_sandbox(name)
        self.assert_right(name)

    def kind_deleted_while_starting(self, name):
        made = self.create(self.claimed(name))
        wait_for("it has a node", 60, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"), 0.02)
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 60, lambda: self.kube.get("Pod", name) is None)
        wait_for("nothing is held for it", 60, lambda: name not in json.dumps(self.carve.inspect()["slices"]))
        wait_for("its claim is gone", 60, lambda: not any(
            owner["uid"] == made["metadata"]["uid"] for claim in self.kube.list("ResourceClaim")
            for owner in claim["metadata"].get("ownerReferences", [])))

    def kind_same_name_again(self, name):
        self.runs(self.claimed(name, memory="3Gi"))
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 60, lambda: self.kube.get("Pod", name) is None)
        self.assert_right(self.runs(self.claimed(name)))

    def kind_over_the_card(self, name):
        """Nobody allocates it: it waits, and its event says so."""
        made = self.create(self.claimed(name, memory="500Gi"))
        wait_for("an event that names the claim", 60, lambda: [
            m for _, reason, m in self.kube.events_of(made) if reason == "FailedScheduling" and "claim" in m])
        self.assertIsNone(self.kube.get("Pod", name)["spec"].get("nodeName"))

    def test_a_static_pod_with_a_claim_is_the_kubelets_to_refuse(self):
        name = self.name("static")
        made = self.claimed(name)
        path = self.ring.node(1).folder / "manifests" / f"{name}.json"
        log = self.ring.node(1).state.log("n1-kubelet")
        begun = log.stat().st_size
        path.write_text(json.dumps(made))
        self.addCleanup(path.unlink)

        def refused():
            with open(log, encoding="utf-8", errors="replace") as lines:
                lines.seek(begun)
                return [line for line in lines if name in line and "resourceclaims" in line.lower()]
        wait_for("the kubelet says why", 60, refused, 0.5)
        self.assertIsNone(self.kube.get("Pod", name + "-n1"))
        self.assertEqual(self.pids_of(name), [])


class Races(Claimed):
    """RA-1 pods that differ in their claim's size alone, RA-9 agent killed between prepare and start, RA-10 the same name
    again under the door's feet. RA-11 is many_pods.py; RA-5, a pod that nobody placed, dra_claims.py; the others are about
    what DRA has not: a choice that is matched to a pod by its size or its time."""

    def test_ra1_equal_pods_while_the_agent_is_killed_ra9(self):
        names = []

        def begin():
            names.extend(self.create(self.claimed(self.name(), node="n1"))["metadata"]["name"] for _ in range(8))
            return names[-8:]

        def come_right(pods):
            cards = set()
            for name in pods:
                self.wait_ready(name, 120)
                cards |= self.assert_right(name)
            self.assertLess(len(cards), len(pods))      # some are on one card, where only the size tells them apart

        def prepared(_):
            return self.carve.inspect()["slices"][len(names) - 8:]
        with disaster.runtime_stopped_amid(self.ring.node(1), begin, prepared, come_right) as slices:
            print(f"{len(slices)} of 8 prepared ", end="", flush=True)        # and no sandbox can be made
            self.carve.kill_agent()
            self.carve.start_agent(wait=False)
        self.carve.wait_agent()
        come_right(names)

    def test_ra10_the_same_name_at_once(self):
        """Deleted and made again, so fast that the kubelet still ends the first: each time with a claim of its own."""
        name = self.name()
        for memory in ("2Gi", "3Gi", "1Gi"):
            self.create(self.claimed(name, memory=memory))
            wait_for("it has a node", 60, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"), 0.02)
            if memory != "1Gi":
                self.kube.delete("Pod", name, grace=0)
                wait_for("gone for the API server", 30, lambda: self.kube.get("Pod", name) is None, 0.02)
        self.wait_ready(name, 120)
        self.assert_right(name)
        wait_for("one slice is held", 60, lambda: len(self.carve.inspect()["slices"]) == 1)
        self.kube.delete("Pod", name, grace=0)
        self.assert_nothing_held()


if __name__ == "__main__":
    main()
