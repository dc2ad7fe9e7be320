"""Every kind of pod with a DRA claim, concurrently on the real kubelet, and the identity races that DRA can have.

The scheduler allocates and the kubelet names the claim by its UID. So a record that is late, missing, of another UID or
too large for the card has no counterpart here: DRA does not place such a pod at all. The rest of the device plugin's
matrix (matrix.py) and races (races.py) is here. A container is judged by what it sees, against its claim. No two claims
have the same size, so an exchange of two slices on one card is noticed.
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
    plugins = "dra"

    def setUp(self):
        super().setUp()
        self.sizes = itertools.count(1024, -1)      # MiB
        self.asked = {}                             # pod -> the bytes that its claim requests

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
        """looks: container -> what it saw, for those that do not run any more. Returns the cards that the containers
        see."""
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
        wait_for("the agent has no slices", 60, lambda: not self.carve.inspect()["slices"])
        self.assertEqual(self.carve.living(), [])


class Matrix(Claimed):
    def test_every_kind_of_pod_gets_its_slice(self):
        with ThreadPoolExecutor(len(KINDS)) as pool:
            outcomes = dict(zip(KINDS, pool.map(self.judged, KINDS)))
        print("\n" + "\n".join(f"{kind}: {outcome}" for kind, outcome in outcomes.items()), flush=True)
        self.assertEqual({kind: text for kind, text in outcomes.items() if text != "right"}, {})

    def judged(self, kind):
        try:
            getattr(self, "kind_" + kind.replace(" ", "_"))(self.name("dra-" + kind.replace(" ", "-")))
            return "right"
        except Exception as error:      # a failed kind must not hide the others
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
        look = wait_for("the look of the previous container", 60, lambda: self.look_before(name), 0.5)
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
        wait_for("the pod has a node", 60, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"), 0.02)
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 60, lambda: self.kube.get("Pod", name) is None)
        wait_for("no slice is left of it", 60, lambda: name not in json.dumps(self.carve.inspect()["slices"]))
        wait_for("its claim is gone", 60, lambda: not any(
            owner["uid"] == made["metadata"]["uid"] for claim in self.kube.list("ResourceClaim")
            for owner in claim["metadata"].get("ownerReferences", [])))

    def kind_same_name_again(self, name):
        self.runs(self.claimed(name, memory="3Gi"))
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 60, lambda: self.kube.get("Pod", name) is None)
        self.assert_right(self.runs(self.claimed(name)))

    def kind_over_the_card(self, name):
        """It is never allocated: the pod waits, and its event says so."""
        made = self.create(self.claimed(name, memory="500Gi"))
        wait_for("an event that names the claim", 60, lambda: [
            m for _, reason, m in self.kube.events_of(made) if reason == "FailedScheduling" and "claim" in m])
        self.assertIsNone(self.kube.get("Pod", name)["spec"].get("nodeName"))

    def test_the_kubelet_refuses_a_static_pod_with_a_claim(self):
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
        wait_for("the kubelet logs the refusal", 60, refused, 0.5)
        self.assertIsNone(self.kube.get("Pod", name + "-n1"))
        self.assertEqual(self.pids_of(name), [])


class Races(Claimed):
    """RA-1: pods that differ only in their claim's size. RA-9: the agent is killed between prepare and start. RA-10:
    the same name again immediately. RA-11 is many_pods.py; RA-5, a pod without an allocation, dra_claims.py. The others
    are about a decision that is matched to a pod by its size or time, which DRA does not have."""

    def test_ra1_equal_pods_get_their_own_slices_while_the_agent_is_killed_ra9(self):
        names = []

        def prepare():
            names.extend(self.create(self.claimed(self.name(), node="n1"))["metadata"]["name"] for _ in range(8))
            pods = names[-8:]
            wait_for("the first pod has a node", 60, lambda: any(
                self.kube.get("Pod", name)["spec"].get("nodeName") for name in pods), 0.01)
            return pods

        def come_right(pods):
            cards = set()
            for name in pods:
                self.wait_ready(name, 120)
                cards |= self.assert_right(name)
            self.assertLess(len(cards), len(pods))      # some share a card, where only the size distinguishes them

        def prepared(_):
            return self.carve.inspect()["slices"][len(names) - 8:]
        with disaster.runtime_stopped_amid(self.ring.node(1), prepare, lambda _: None, prepared,
                                           come_right) as slices:
            print(f"{len(slices)} of 8 prepared ", end="", flush=True)        # and no sandbox can be created
            self.carve.kill_agent()
            self.carve.start_agent(wait=False)
        self.carve.wait_agent()
        come_right(names)

    def test_ra10_a_pod_of_the_same_name_created_immediately_gets_its_own_claim(self):
        """Deleted and created again while the kubelet still ends the first: each pod has a claim of its own."""
        name = self.name()
        for memory in ("2Gi", "3Gi", "1Gi"):
            self.create(self.claimed(name, memory=memory))
            wait_for("the pod has a node", 60, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"), 0.02)
            if memory != "1Gi":
                self.kube.delete("Pod", name, grace=0)
                wait_for("deleted at the API server", 30, lambda: self.kube.get("Pod", name) is None, 0.02)
        self.wait_ready(name, 120)
        self.assert_right(name)
        wait_for("the agent has one slice", 60, lambda: len(self.carve.inspect()["slices"]) == 1)
        self.kube.delete("Pod", name, grace=0)
        self.assert_nothing_held()


if __name__ == "__main__":
    main()
