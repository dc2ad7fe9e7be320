"""A cluster with all of Carve, installed as a user would: pods ask in three dialects, are placed, limited, explained."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
import admission  # noqa: E402
from ring import binder, carve, control_plane, images, installed  # noqa: E402
from ring.cluster import Ring  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
HOLD = ["ring-look", "hold", "3600"]
NATIVE = {"elasticgpu.io/gpu-memory": 4096, "elasticgpu.io/gpu-core": 30}


def asking(name, limits, command=HOLD, containers=1, **spec):
    """A pod of the programs' image whose containers ask for `limits`; nothing in it names Carve's scheduler or slots."""
    made = pod(name, image=images.PROGRAMS, command=command, **spec)
    first = made["spec"]["containers"][0]
    first["resources"] = {"limits": {key: str(value) for key, value in limits.items()}}
    made["spec"]["containers"] = [{**first, "name": "main" if i == 0 else f"main-{i}"} for i in range(containers)]
    return made


carves = []         # of each node, once for all tests of this file


def setUpModule():
    ring = Ring.load()
    unittest.addModuleCleanup(installed.uninstall_control, ring)
    archive = ring.state.folder / "images" / "carve.tar"
    installed.make_image(ring.build, archive)
    carves[:] = installed.install_control(ring, archive)


class ControlTest(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.carves = carves
        cls.capacity = {card["uuid"]: card["total_bytes"] for one in cls.carves for card in one.truth("cards")["cards"]}

    def tearDown(self):
        outcome = self._outcome.result
        if outcome.failures or outcome.errors:
            print("\n" + self.carves[0].describe_all("carve-control"), flush=True)

    # --- words -------------------------------------------------------------------------------------------------------

    def look(self, name, container="main"):
        line = wait_for(f"{name}/{container} has looked", 20,
                        lambda: self.kube.logs(name, container).strip().splitlines())
        return json.loads(line[-1])

    def record(self, name):
        return json.loads(self.kube.get("Pod", name)["metadata"]["annotations"][binder.RECORD])

    def cards_of(self, name):
        """container -> [(card, bytes, cores)] by the record."""
        return {part["part"]: [(card["uuid"], card["bytes"], card["compute"]) for card in part["cards"]]
                for part in self.record(name)["parts"]}

    def view(self, command, *arguments):
        """`carve inspect --cluster` and `carve explain` as a person runs them, with the admin's kubeconfig."""
        return subprocess.run([self.ring.build / "bin" / "carve", command, "--kubeconfig", self.ring.kubeconfig,
                               *arguments], text=True, capture_output=True, check=True).stdout

    def doctor(self):
        """`carve doctor --cluster`: the ids of what it finds wrong."""
        self.findings = found = subprocess.run([self.ring.build / "bin" / "carve", "doctor", "--kubeconfig", self.ring.kubeconfig, "-o", "json"],
                               text=True, capture_output=True)
        wrong = sorted(one["id"] for one in json.loads(found.stdout) if one["severity"] != "note")
        self.assertEqual(found.returncode, 1 if wrong else 0, found.stderr)
        return wrong

    def messages(self, made):
        return [message for _, _, message in self.kube.events_of(made)]

    def assert_right(self, names, containers=("main",)):
        """The independent checker: what each container sees equals its record, and no card is over."""
        pods = [self.kube.get("Pod", name) for name in names]
        seen = {("default", name, c): self.look(name, c) for name in names for c in containers}
        self.assertEqual(check.check(pods, [], [], seen, by="records", physical=self.capacity), [])

    def run_all(self, *made):
        names = [self.create(one)["metadata"]["name"] for one in made]
        for name in names:
            self.wait_ready(name)
        return names


class Dialects(ControlTest):
    def test_a_native_fraction_is_placed_limited_and_shown(self):
        name, = self.run_all(asking(self.name(), NATIVE, command=["ring-look", "allocate", str(5 * GIB), "hold", "3600"]))
        self.assertEqual([(size, cores) for _, size, cores in self.cards_of(name)["main"]], [(4 * GIB, 30)])
        self.assertEqual(self.look(name)["allocated"], 2)       # CUDA_ERROR_OUT_OF_MEMORY
        self.assert_right([name])
        wait_for("it in carve inspect", 10, lambda: f"default/{name}" in self.view("inspect"))
        self.assertIn("4 GiB of", self.view("inspect"))
        self.assertIn("holds    main: GPU-", self.view("explain", name))

    def test_the_gpushare_stateful_set_of_the_field_packs_on_one_card(self):
        name = self.name("binpack")
        self.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": "default"},
                     "spec": {"replicas": 3, "podManagementPolicy": "Parallel", "serviceName": name,
                              "selector": {"matchLabels": {"app": name}},
                              "template": {"metadata": {"labels": {"app": name}},
                                           "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                                               "name": "main", "image": images.PROGRAMS, "imagePullPolicy": "Never",
                                               "command": HOLD, "resources": {"limits": {"aliyun.com/gpu-mem": 3}}}]}}}})
        names = [f"{name}-{i}" for i in range(3)]
        for one in names:
            wait_for(one, 30, lambda n=one: self.kube.get("Pod", n))
            self.wait_ready(one)
        cards = {self.cards_of(one)["main"][0] for one in names}
        self.assertEqual(len(cards), 1, cards)
        self.assertEqual(cards.pop()[1], 3 * GIB)
        written = self.kube.get("Pod", names[0])["metadata"]["annotations"]
        self.assertEqual((written["ALIYUN_COM_GPU_MEM_POD"], len(written["ALIYUN_COM_GPU_MEM_ASSUME_TIME"])), ("3", 19))
        self.assert_right(names)

    def test_two_containers_with_two_whole_cards_each_get_four(self):
        whole = {"nvidia.com/gpu": 2}
        total = len(self.carves[0].truth("cards")["cards"])
        self.assertEqual(total, 4, "this test is for nodes with four cards")
        name, = self.run_all(asking(self.name(), whole, containers=2))
        cards = [card for part in self.cards_of(name).values() for card, _, _ in part]
        self.assertEqual((len(cards), len(set(cards))), (4, 4))
        self.assert_right([name], ("main", "main-1"))
        # The other node has four; a second pod takes them, the third finds too few, and is told how many.
        self.run_all(asking(self.name(), whole, containers=2))
        third = self.create(asking(self.name(), whole, containers=2))
        said = wait_for("why it waits", 30, lambda: [m for m in self.messages(third) if "nodes are available" in m])
        self.assertIn("no room for 2 whole cards: 4 cards: somebody has it alone", " ".join(said))
        self.assertEqual(self.phase(third["metadata"]["name"]), "Pending")
        self.assertIn("none of 2 nodes", self.view("explain", third["metadata"]["name"]))

    def test_three_dialects_on_one_node_and_no_card_is_over(self):
        here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        made = [asking(self.name(), {"nvidia.com/gpu": 1}, **here)]
        made += [asking(self.name(), NATIVE, **here) for _ in range(6)]
        made += [asking(self.name(), {"aliyun.com/gpu-mem": 5}, **here) for _ in range(4)]
        names = self.run_all(*made)
        self.assertEqual({self.kube.get("Pod", name)["spec"]["nodeName"] for name in names}, {"n1"})
        self.assert_right(names)

    def test_nonsense_is_refused_with_the_unit_and_what_is_legal(self):
        with self.assertRaises(Exception) as refused:
            self.create(asking(self.name(), {"elasticgpu.io/gpu-core": 130}))
        self.assertIn("gpu-core", str(refused.exception))
        self.assertIn("130", str(refused.exception))


class Admission(admission.Served):
    """The webhook as control serves it."""


class Seen(ControlTest):
    """What a person and a collector see of a whole cluster while it runs."""

    def test_top_shows_what_a_slice_uses_and_the_doctor_finds_nothing(self):
        name, = self.run_all(asking(self.name(), NATIVE, command=["ring-look", "allocate", str(GIB), "hold", "3600"]))
        self.look(name)
        node = self.kube.get("Pod", name)["spec"]["nodeName"]
        (card, _, _), = self.cards_of(name)["main"]
        wait_for("its use in carve top", 10, lambda: self.used(node, name) == [(card, 4 * GIB, 30)])
        table = self.view("top", "--once")
        self.assertIn(f"default/{name}/main", table)
        self.assertIn("/ 4 GiB  30 burst", table)
        agent = next(p["metadata"]["name"] for p in self.kube.list("Pod", carve.NAMESPACE)
                     if p["metadata"]["name"].startswith("carve-agent-") and p["spec"]["nodeName"] == node)
        told = self.ring.kubectl("get", "--raw", f"/api/v1/namespaces/{carve.NAMESPACE}/pods/{agent}/proxy/metrics").stdout
        line, = [row for row in told.splitlines() if row.startswith("carve_slice_memory_limit_bytes{") and f'pod="{name}"' in row]
        self.assertEqual(float(line.rsplit(" ", 1)[1]), 4 * GIB)
        self.assertIn(f'uuid="{card}"', line)
        with contextlib.suppress(AssertionError):
            wait_for("the doctor finds nothing", 20, lambda: self.doctor() == [])
        self.assertEqual(self.doctor(), [], self.findings.stdout)

    def used(self, node, name):
        """(card, limit, cores) of the pod's slices that use memory, by every node's agent."""
        nodes = json.loads(self.view("top", "--once", "-o", "json"))["nodes"]
        self.assertEqual(len(nodes), 2)
        self.assertEqual([one for one in nodes if "agent" not in one], [])
        return [(held["card"], held["limit_bytes"], held["compute"]) for one in nodes if one["node"] == node
                for slice_ in one["agent"]["slices"] if slice_["name"] == f"default/{name}/main"
                for held in slice_["cards"] if held["used_bytes"] >= GIB]


class AnotherPlugin(ControlTest):
    def test_a_name_that_another_plugin_serves_is_left_to_it_and_said(self):
        """It stays so for five minutes after that plugin went: the kubelet waits as long for it to come back."""
        name = "aliyun.com/gpu-count"
        node = self.ring.node(2)
        node.start("plugin", [self.ring.binaries["ring-plugin"], name, "7", "ring.test/thing=one"])
        self.addCleanup(node.stop, "plugin")
        said = wait_for("the condition", 60, lambda: self.condition("n2"))
        self.assertIn(f"another device plugin serves {name} on this node (7 devices)", said)
        shown = lambda node: self.kube.get("Node", node)["status"]["capacity"].get(name)  # noqa: E731
        wait_for("the kubelet shows that plugin's number", 30, lambda: shown("n2") == "7")
        for _ in range(20):
            self.assertEqual(shown("n2"), "7")                # and nobody fights it
            time.sleep(0.2)
        self.assertEqual(self.condition("n1"), None)
        self.assertEqual(shown("n1"), "4")

    def condition(self, node):
        """Its message while it is True."""
        return next((c["message"] for c in self.kube.get("Node", node)["status"]["conditions"]
                     if c["type"] == "ConflictingPlugin" and c["status"] == "True"), None)


class Placement(ControlTest):
    """Which node and card is data that changes under a running control. All pods ask for so little that a card holds
    them all."""
    LITTLE = {"elasticgpu.io/gpu-memory": 1024, "elasticgpu.io/gpu-core": 5}
    MAP = "carve-placement"

    def setUp(self):
        super().setUp()
        self.addCleanup(self.kube.delete, "ConfigMap", self.MAP, carve.NAMESPACE)
        wait_for("nobody holds anything any more", 60, lambda: not any(
            card.get("status", {}).get("holders") for card in self.kube.list("GPU", None)))

    def say(self, *lines):
        """Changes the rules; until both replicas have read them."""
        made = self.kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "data": {"placement.conf": "\n".join(lines)},
                                "metadata": {"name": self.MAP, "namespace": carve.NAMESPACE}})
        read = f'carve_control_placement_info{{resource_version="{made["metadata"]["resourceVersion"]}"}} 1'
        wait_for("every replica has read the rules", 20, lambda: all(
            read in self.scrape(one["status"]["podIP"]) for one in self.replicas()))
        return made

    def replicas(self):
        return [found for found in self.kube.list("Pod", carve.NAMESPACE)
                if found["metadata"]["name"].startswith("carve-control-")]

    def scrape(self, address):
        read = f"import urllib.request as u; print(u.urlopen('http://{address}:8080/metrics').read().decode())"
        return self.ring.node(1).run([sys.executable, "-c", read]).stdout

    def where(self, own=None, node=None):
        """(node, card) of a new pod."""
        made = asking(self.name(), self.LITTLE, **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}))
        if own:
            made["metadata"]["annotations"] = {"elasticgpu.io/placement": own}
        name, = self.run_all(made)
        return self.kube.get("Pod", name)["spec"]["nodeName"], self.cards_of(name)["main"][0][0]

    def test_policies_of_every_scope_count_for_the_next_pod_and_nothing_restarts(self):
        lives = {one["metadata"]["uid"]: one["status"]["containerStatuses"][0]["restartCount"]
                 for one in self.replicas()}
        first = self.where()
        self.assertEqual(self.where(), first, "binpack: the same card")
        self.say("cluster = spread")
        other = self.where()
        self.assertNotEqual(other[0], first[0], "spread: the other node")
        self.assertEqual(self.where("binpack"), first, "a pod's own word: the fullest card")
        self.say("cluster = spread", "namespace.default = node:binpack,card:spread")
        node, card = self.where()
        self.assertEqual(node, first[0])
        self.assertNotEqual(card, first[1], "the namespace's: the fullest node, an empty card of it")
        self.say("cluster = binpack",
                 f"pool.first.nodes = kubernetes.io/hostname={first[0]}", "pool.first = card:spread")
        _, card = self.where(node=first[0])
        self.assertNotEqual(card, first[1], "the pool's: an empty card of its node")
        self.assertEqual({one["metadata"]["uid"]: one["status"]["containerStatuses"][0]["restartCount"]
                          for one in self.replicas()}, lives)

    def test_a_wrong_text_changes_nothing_and_says_which_line(self):
        self.say("cluster = spread")
        first = self.where()
        made = self.say("cluster = spread", "namespace.default = tight")
        self.assertNotEqual(self.where()[0], first[0], "the last good rules stay")
        said = wait_for("the event", 20, lambda: [m for _, reason, m in self.kube.events_of(made)
                                                  if reason == "PlacementRefused"])
        self.assertIn('placement.conf:2: namespace.default: "tight" is no placement; legal are binpack', said[0])
        self.assertIn("nodes by", self.view("explain", self.created[0][1]))

    def test_a_pods_nonsense_is_refused(self):
        made = asking(self.name(), self.LITTLE)
        made["metadata"]["annotations"] = {"elasticgpu.io/placement": "tight"}
        with self.assertRaises(ApiError) as refused:
            self.create(made)
        self.assertIn('annotation elasticgpu.io/placement: "tight" is no placement', str(refused.exception))


class Waiting(ControlTest):
    def test_a_waiting_pod_starts_within_two_seconds_of_the_room(self):
        """From the moment at which the agent lets the slice go to the container's start; the kubelet's own way apart."""
        here = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        total = len(self.carves[0].truth("cards")["cards"])
        holders = self.run_all(*[asking(self.name(), {"nvidia.com/gpu": 1}, **here) for _ in range(total)])
        waiting = self.create(asking(self.name(), NATIVE, **here))
        name = waiting["metadata"]["name"]
        wait_for("that it waits", 30, lambda: [m for m in self.messages(waiting) if "nodes are available" in m])
        self.kube.delete("Pod", holders[0], grace=0)
        wait_for("the slice is free", 60, lambda: len(self.carves[0].living()) < total, every=0.02)
        freed = time.monotonic()
        wait_for("bound", 30, lambda: self.kube.get("Pod", name)["spec"].get("nodeName"), every=0.02)
        bound = time.monotonic() - freed
        self.wait_ready(name)
        print(f"\nbound {bound:.2f} s after the last process of the old holder, ready after "
              f"{time.monotonic() - freed:.2f} s", flush=True)
        self.assertLess(bound, 2.0)

    def test_one_write_to_the_pod_for_each_that_is_placed(self):
        name, = self.run_all(asking(self.name(), NATIVE))
        self.assertEqual(self.writes_about(name), {("carve-control", "create", "binding"): 1})

    def writes_about(self, name):
        """(Carve's identity, verb, subresource) -> how often it wrote to that Pod, by the API server's audit log."""
        found = {}
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            who = event["user"].get("username", "").removeprefix(f"system:serviceaccount:{carve.NAMESPACE}:")
            if reference.get("resource") != "pods" or reference.get("name") != name or not who.startswith("carve-"):
                continue
            key = (who, event["verb"], reference.get("subresource", ""))
            found[key] = found.get(key, 0) + 1
        return found


class Failures(ControlTest):
    def test_the_webhook_away_stops_pods_with_cards_and_nobody_else(self):
        self.ring.kubectl("-n", carve.NAMESPACE, "scale", "deployment/carve-control", "--replicas=0")
        self.addCleanup(self.back)
        wait_for("control is away", 60, lambda: not [p for p in self.kube.list("Pod", carve.NAMESPACE)
                                                     if p["metadata"]["name"].startswith("carve-control-")])
        with self.assertRaises(Exception) as refused:
            self.create(asking(self.name(), NATIVE))
        self.assertIn("failed calling webhook", str(refused.exception))
        self.assertLessEqual({"none-ready", "webhook-down"}, set(self.doctor()))
        self.run_all(pod(self.name()))

    def back(self):
        self.ring.kubectl("-n", carve.NAMESPACE, "scale", "deployment/carve-control", "--replicas=2")
        self.ring.kubectl("-n", carve.NAMESPACE, "rollout", "status", "deployment/carve-control", "--timeout=90s")

    def test_over_a_change_of_leaders_no_pod_is_lost(self):
        """The leader is killed; pods that come meanwhile wait no longer than its lease and five seconds."""
        before = self.lease()
        os.kill(self.process_of(before["holderIdentity"]), signal.SIGKILL)
        epochs = self.bound_in_time(before)
        self.assertGreater(min(epochs), before["leaseTransitions"])

    def test_a_leader_that_was_paused_for_twice_its_lease_decides_nothing_more(self):
        before = self.lease()
        process = self.process_of(before["holderIdentity"])
        os.kill(process, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            epochs = self.bound_in_time(before)
            wait_for("twice its lease", 60, lambda: time.monotonic() > begun + 2 * before["leaseDurationSeconds"])
        finally:
            os.kill(process, signal.SIGCONT)
        names = [self.create(asking(self.name(), NATIVE))["metadata"]["name"] for _ in range(5)]
        self.assert_right(self.wait_all(names))
        self.assertEqual({self.record(name)["epoch"] for name in names}, epochs)      # the new one's, still

    def bound_in_time(self, before):
        """Five pods, now; the epochs of their records."""
        seconds, begun = before["leaseDurationSeconds"], time.monotonic()
        names = [self.create_at_last(asking(self.name(), NATIVE), begun + seconds) for _ in range(5)]
        for name in names:
            wait_for(f"{name} bound", seconds + 10, lambda n=name: self.kube.get("Pod", n)["spec"].get("nodeName"))
        took = time.monotonic() - begun
        print(f"\nlease {seconds} s; the last of 5 pods was bound after {took:.1f} s", flush=True)
        self.assertLess(took, seconds + 5)
        self.assert_right(self.wait_all(names))
        return {self.record(name)["epoch"] for name in names}

    def create_at_last(self, made, until):
        """The pod's name. While a replica hangs and is not known to, admission by it fails: closed, and to be tried again."""
        while True:
            try:
                return self.create(made)["metadata"]["name"]
            except ApiError as error:
                if "failed calling webhook" not in str(error) or time.monotonic() > until:
                    raise

    def lease(self):
        return self.kube.get("Lease", "carve-control", carve.NAMESPACE)["spec"]

    def process_of(self, identity):
        """The process of that replica, by its container's cgroup."""
        name = identity.partition("_")[0]
        status = self.kube.get("Pod", name, carve.NAMESPACE)["status"]["containerStatuses"][0]
        container = status["containerID"].partition("://")[2]
        found = self.pids_of(container)
        self.assertEqual(len(found), 1)
        return found[0]

    def wait_all(self, names):
        for name in names:
            self.wait_ready(name)
        return names


if __name__ == "__main__":
    main()
