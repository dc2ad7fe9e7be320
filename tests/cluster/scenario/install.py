"""All of Carve on two nodes: installed, replaced by the next release under running pods, taken away again.

Pods keep coming while control is replaced, and while agents are: an agent that is told to end says so, control sends
nobody there meanwhile, and the kubelet refuses no pod. (One that is killed says nothing: scenario slot_restarts.)
"""
import collections
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import os
import re
import sys
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import bare_nodes, binder, carve, cgroups, control_plane, disaster, images, installed, traces  # noqa: E402
from ring.kube import RESOURCES, ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

SPACE = carve.NAMESPACE
SMALL = {"elasticgpu.io/gpu-memory": "1024", "elasticgpu.io/gpu-core": "2"}
MOST = 30                   # pods that are made while control is replaced
LIVING = 8                  # short pods at a time, at most
ROLLS = int(os.environ.get("CARVE_ROLLS", "4")) if os.environ.get("CARVE_SOAK") else 1    # rolling updates of the agents under short pods


class Coming(threading.Thread):
    """Pods with cards, created without pause while something is replaced. Each is asked for once: a refusal is kept."""

    def __init__(self, test, make=None, every=1, most=MOST):
        super().__init__()
        self.test, self.make, self.every, self.most = test, make or test.asking, every, most
        self.names, self.refused, self.end = [], [], threading.Event()

    def run(self):
        while not self.end.is_set() and len(self.names) < self.most:
            made = self.make()
            try:
                self.test.create(made)
                self.names.append(made["metadata"]["name"])
            except (ApiError, OSError) as error:
                self.refused.append(str(error))
            self.end.wait(self.every)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.join()


BURST, PATIENCE = 150, 30   # pods at once, and the seconds within which all of them are bound
LEFT = "left-behind"        # what these tests leave on purpose
# A mark of each kind that an uninstall could forget in the API server. `seen` by its name, as new.
OBJECTS = [
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
     "metadata": {"name": "marks.left-behind.example"}, "spec": {
         "group": "left-behind.example", "scope": "Cluster", "names": {"plural": "marks", "kind": "Mark"}, "versions": [
             {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": LEFT},
     "spec": {"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [
         {"apiGroups": ["left-behind.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["marks"]}]}}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
     "metadata": {"name": LEFT}, "spec": {"policyName": LEFT, "validationActions": ["Audit"]}},
    *({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": LEFT}, "webhooks": []}
      for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")),
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": LEFT}, "rules": []},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": LEFT},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": LEFT}, "subjects": []},
    *({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": LEFT, "namespace": "kube-system"},
       **more} for kind, more in (("Role", {"rules": []}), ("RoleBinding", {"subjects": [], "roleRef": {
           "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LEFT}}))),
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEFT, "namespace": "kube-system"}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEFT}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": LEFT}, "value": 1},
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": LEFT}, "spec": {}},
]
FILES = ("/etc/cdi/left-behind.json", "/run/cdi/left-behind.json", "/run/carve/left-behind", "/usr/lib/carve/left-behind",
         "/var/lib/carve/left-behind", "/var/lib/kubelet/device-plugins/left-behind.sock",
         "/var/lib/kubelet/plugins_registry/left-behind.sock")
# What an agent leaves that is killed and does not come back; an uninstall is to find it.
OF_THE_KILLED = ("/run/cdi/carve-slice-s-000000-1.json", "/run/cdi/carve-slice-s-000000-2.json.4711.tmp",
                 "/run/carve/slices/s-000000-1/s", "/var/lib/kubelet/plugins_registry/gpu.elasticgpu.io-left-reg.sock",
                 "/var/lib/kubelet/plugins/gpu.elasticgpu.io/dra-left.sock")


def names_on(node) -> list:
    """["field name"] of what components put on a Node."""
    meta, status = node["metadata"], node["status"]
    fields = {"labels": meta.get("labels", {}), "annotations": meta.get("annotations", {}),
              "finalizers": meta.get("finalizers", []), "taints": [one["key"] for one in node["spec"].get("taints", [])],
              "conditions": [one["type"] for one in status.get("conditions", [])],
              "capacity": status.get("capacity", {}), "allocatable": status.get("allocatable", {})}
    return [f"{field} {name}" for field, names in fields.items() for name in names]


class Installation(RingTest):
    """One way to have Carve; what is the same of all of them."""
    own_scheduler = True
    chart = False       # what Helm renders of deploy/chart, instead of the plain bundle

    def setUp(self):
        super().setUp()
        self.before = traces.objects(self.kube)
        self.nodes_before = {node.name: traces.on_node(node) for node in self.ring.nodes}
        self.archive = self.ring.state.folder / "images" / "carve.tar"
        installed.make_image(self.ring.build, self.archive)
        self.addCleanup(self.take_away)
        self.carves = installed.install_control(self.ring, self.archive, own_scheduler=self.own_scheduler,
                                                chart=self.chart)

    def take_away(self):
        """Where a test failed: pods with cards first, or the nodes are not let go."""
        self._clean()
        self.remove()

    def remove(self):
        """The commands of the README."""
        installed.uninstall_control(self.ring, chart=self.chart, own_scheduler=self.own_scheduler)

    def tearDown(self):
        outcome = self._outcome.result
        if outcome.failures or outcome.errors:
            print("\n" + self.carves[0].describe_all("carve-control"), flush=True)

    def asking(self, seconds=3600, **spec):
        """A pod that asks for a little of a card, and says nothing of a scheduler."""
        made = pod(self.name(), image=images.PROGRAMS, command=["ring-look", "hold", str(seconds)], **spec)
        made["spec"]["containers"][0]["resources"] = {"limits": SMALL}
        return made

    def steps(self):
        """What all ways go through."""
        first = self.create(self.asking())["metadata"]["name"]
        self.wait_ready(first)
        self.assert_right([first])
        self.upgrade([first])
        self.uninstall()

    # --- upgrade -----------------------------------------------------------------------------------------------------

    def upgrade(self, before):
        agent, arbiter = installed.next_images(self.ring, self.archive.parent)
        started = self.containers(before)
        seconds = self.kube.get("Lease", "carve-control", SPACE)["spec"]["leaseDurationSeconds"]
        with Coming(self) as coming:
            begun = time.monotonic()
            self.replace("deployment", "carve-control", f"control={agent}")
            if self.kube.get("Deployment", "carve-scheduler", SPACE):
                self.ring.kubectl("-n", SPACE, "rollout", "restart", "deployment/carve-scheduler")
                self.rolled("deployment/carve-scheduler")
            of_control = time.monotonic() - begun
        for name in coming.names:
            self.wait_ready(name, 120)
        self.replace_agents(agent)
        self.replace_arbiters(arbiter)
        of_all = time.monotonic() - begun
        self.assertGreater(len(coming.names), 5)
        self.assertEqual(coming.refused, [], "admission is there at every moment")
        waited = max((self.waited(name), name) for name in coming.names)
        print(f"\ncontrol and scheduler replaced in {of_control:.0f} s, all in {of_all:.0f} s; {len(coming.names)} pods "
              f"came meanwhile, none was refused; the one that waited longest was bound after {waited[0]:.0f} s",
              flush=True)
        self.assertLessEqual(waited[0], seconds + 5)
        self.assertEqual(self.containers(before), started, "what ran before is untouched")
        self.assert_right([*before, *coming.names])
        running = {container["image"] for one in self.kube.list("Pod", SPACE) for container in one["spec"]["containers"]
                   if not one["metadata"]["name"].startswith("carve-scheduler")}
        self.assertEqual(running, {agent, arbiter}, "nothing of the old release is left")

    def replace(self, kind, name, image):
        self.ring.kubectl("-n", SPACE, "set", "image", f"{kind}/{name}", image)
        self.rolled(f"{kind}/{name}")

    def rolled(self, what):
        done = self.ring.kubectl("-n", SPACE, "rollout", "status", what, "--timeout=150s", check=False)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}\n"
                         + self.carves[0].describe_all(what.partition("/")[2]))

    def replace_agents(self, image):
        """Under pods that come and end, each bound to one of the two nodes: the kubelet refuses none, and all end well."""
        turn, said = itertools.cycle(node.name for node in self.ring.nodes), set()

        def short():
            while sum(self.ended(name) is None for name in coming.names[-LIVING:]) == LIVING:
                said.update(self.leaving())
                time.sleep(0.2)
            said.update(self.leaving())
            return self.asking(1, nodeSelector={"kubernetes.io/hostname": next(turn)})
        coming = Coming(self, short, 0.3, 150 * ROLLS)
        with coming:
            begun = time.monotonic()
            self.replace("daemonset", "carve-agent", f"agent={image}")
            for _ in range(ROLLS - 1):
                self.ring.kubectl("-n", SPACE, "rollout", "restart", "daemonset/carve-agent")
                self.rolled("daemonset/carve-agent")
            seconds = time.monotonic() - begun
        self.assertGreater(len(coming.names), 15)
        ended = {name: wait_for(f"{name} has ended", 120, lambda n=name: self.ended(n), every=0.2)
                 for name in coming.names}
        lost = {name: status.get("reason", "?") + ": " + status.get("message", "") for name, status in ended.items()
                if status["phase"] == "Failed"}
        waited = sorted(self.waited(name) for name in coming.names if name not in lost)
        print(f"\nagents replaced {ROLLS} times in {seconds:.0f} s; {len(coming.names)} pods came meanwhile, {len(lost)} "
              f"were lost; bound after {waited[len(waited) // 2]:.0f} s (half of them), {waited[-1]:.0f} s (all)", flush=True)
        self.assertEqual(lost, {})
        self.assertEqual(said, {node.name for node in self.ring.nodes}, "each agent has said that it leaves")
        self.assertEqual(self.leaving(), [], "the next agents have taken it back")
        for name in coming.names:
            self.kube.delete("Pod", name, grace=0)
            self.created.remove(("Pod", name, "default"))

    def ended(self, name):
        status = self.kube.get("Pod", name)["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    def leaving(self):
        """Nodes that say that their agent is about to end."""
        return [node["metadata"]["name"] for node in self.kube.list("Node", None) for one in node["status"]["conditions"]
                if (one["type"], one["status"]) == ("GPUAgentLeaving", "True")]

    def replace_arbiters(self, image):
        """By hand, as its DaemonSet says (OnDelete): one node after the other."""
        self.ring.kubectl("-n", SPACE, "set", "image", "daemonset/carve-arbiter", f"arbiter={image}")
        for one in self.carves:
            old = one.ready("carve-arbiter")["metadata"]["name"]
            self.kube.delete("Pod", old, SPACE)
            wait_for(f"the next arbiter of {one.node.name}", 60, lambda o=old, c=one: (
                c.ready("carve-arbiter") or {"metadata": {"name": o}})["metadata"]["name"] != o)

    def containers(self, names):
        """Which containers run, and how often they were started."""
        return {name: [(s["containerID"], s["restartCount"]) for s in
                       self.kube.get("Pod", name)["status"]["containerStatuses"]] for name in names}

    def waited(self, name):
        """Seconds from the pod's creation to its binding, as the API server has both."""
        found = self.kube.get("Pod", name)
        bound = next(c["lastTransitionTime"] for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
        made, bound = (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (
            found["metadata"]["creationTimestamp"], bound))
        return (bound - made).total_seconds()

    def look(self, name):
        line = wait_for(f"{name} has looked", 20, lambda: self.kube.logs(name, "main").strip().splitlines())
        return json.loads(line[-1])

    def assert_right(self, names):
        """The independent checker: what each container sees equals its record, and no card is over."""
        physical = {card["uuid"]: card["total_bytes"] for one in self.carves for card in one.truth("cards")["cards"]}
        seen = {("default", name, "main"): self.look(name) for name in names}
        pods = [self.kube.get("Pod", name) for name in names]
        self.acquit(check.check(pods, [], [], seen, by="records", physical=physical))
        self.assertTrue(all(binder.RECORD in one["metadata"]["annotations"] for one in pods))

    # --- taking it away ----------------------------------------------------------------------------------------------

    def uninstall(self):
        self._clean()           # the pods with cards
        self.created.clear()
        for path in OF_THE_KILLED:
            self.write(path)
        begun = time.monotonic()
        self.remove()
        print(f"uninstalled in {time.monotonic() - begun:.0f} s", flush=True)
        with contextlib.suppress(AssertionError):
            wait_for("nothing that was not there before", 30, lambda: not self.left(), every=1)
        self.assertEqual(self.left(), [])
        self.forgotten()

    def left(self) -> list:
        """All that is there now and was not before: objects, what Nodes say, files, mounts, cgroups. A node's own lease is
        made some seconds after its kubelet was started."""
        found = [" ".join(key) for key in set(traces.objects(self.kube)) - set(self.before) if key[1] != "kube-node-lease"]
        found += [f"{node}: {line}" for node, lines in self.left_on_nodes().items() for line in lines]
        found += [f"{node.name}: {one}" for node in self.ring.nodes
                  for one in traces.on_node(node) - self.nodes_before[node.name]]
        return sorted(found)

    def write(self, path):
        file = self.ring.node(1).outside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")

    def forgotten(self):
        """Of each kind of thing one is left on purpose: an uninstall that forgets one does not pass for clean."""
        node, wanted = self.ring.node(1), []        # wanted: how a line of left() begins, and how it ends
        group = cgroups.roots_of(node.name)[0] / "carve-left-behind"
        mark = {"type": "LeftBehind", "status": "True", "reason": "Test", "message": ""}
        try:
            for one in OBJECTS:
                self.ring.kubectl("apply", "-f", "-", input=json.dumps(one))
                wanted.append((RESOURCES[one["kind"]][1], " " + one["metadata"]["name"]))
            self.kube.patch("Node", node.name, {"metadata": {"labels": {"elasticgpu.io/left-behind": "yes"}}})
            self.kube.patch("Node", node.name, {"status": {"conditions": [mark]}}, sub="status",
                            content="application/strategic-merge-patch+json")
            self.kube.patch("Node", node.name, {"status": {"capacity": {"elasticgpu.io/left-behind": "7"}}}, sub="status")
            wanted += [(node.name, f" {what}") for what in ("labels elasticgpu.io/left-behind", "conditions LeftBehind",
                                                           "capacity elasticgpu.io/left-behind")]
            for path in FILES:
                self.write(path)
                # Of a folder of Carve's own it is the folder that is named.
                own = path.rpartition("/")[0] if path.startswith(("/run/carve/", "/var/lib/carve/")) else path
                wanted.append((node.name, f"file {own}"))
            group.mkdir()
            node.outside("/run/carve-left-mount").mkdir()
            node.run(["mount", "-t", "tmpfs", "carve-left-mount", "/run/carve-left-mount"])
            wanted += [(node.name, f"cgroup {group}"), (node.name, "mount /run/carve-left-mount (carve-left-mount)")]
            found = self.left()
            self.assertEqual([one for one in wanted if not any(
                line.startswith(one[0]) and line.endswith(one[1]) for line in found)], [], found)
            print(f"{len(wanted)} things were left on purpose, and each was named", flush=True)
        finally:
            node.run(["umount", "/run/carve-left-mount"], check=False)
            node.run(["rm", "-rf", "/run/carve-left-mount", "/run/carve", "/var/lib/carve", "/usr/lib/carve", *FILES],
                     check=False)
            with contextlib.suppress(OSError):
                group.rmdir()
            for one in OBJECTS[::-1]:
                self.ring.kubectl("delete", "--ignore-not-found", "-f", "-", input=json.dumps(one), check=False)
            self.unmark(node)
        with contextlib.suppress(AssertionError):
            wait_for("the marks are gone", 30, lambda: not self.left(), every=1)
        self.assertEqual(self.left(), [])

    def unmark(self, node):
        gone = {"elasticgpu.io/left-behind": None}
        self.kube.patch("Node", node.name, {"metadata": {"labels": gone}})
        self.kube.patch("Node", node.name, {"status": {
            "conditions": [{"$patch": "delete", "type": "LeftBehind"}], "capacity": gone, "allocatable": gone}},
            sub="status", content="application/strategic-merge-patch+json")

    def left_on_nodes(self):
        """Node -> what it has that it did not have before: labels, conditions, totals and the like by their names, and where
        else it names Carve or one of its resources."""
        found = {}
        for name in (node.name for node in self.ring.nodes):
            now = self.kube.get("Node", name)
            now["status"].pop("images", None)       # what the runtime has in its store
            before = self.before[("nodes", "", name)]
            was = [*traces.words_in(before), *names_on(before)]
            # Slots are the kubelet's to count: it shows 0 of what a plugin once served.
            if lines := [line for line in [*traces.words_in(now), *names_on(now)]
                         if line not in was and not line.endswith(binder.SLOT)]:
                found[name] = lines
        return found


class OwnScheduler(Installation):
    """Mode (a): a second kube-scheduler with a profile of Carve's own; all of it by the chart."""
    chart = True

    def test_install_upgrade_uninstall(self):
        self.steps()


@unittest.skipUnless(os.environ.get("CARVE_SOAK"), "a long one: CARVE_SOAK=1")
class AgentsAgainAndAgain(Installation):
    def test_pods_come_while_agents_are_replaced(self):
        self.replace_agents(installed.next_images(self.ring, self.archive.parent)[0])


class DefaultScheduler(Installation):
    """Mode (b): the cluster's own kube-scheduler, told of control."""
    own_scheduler = False

    def test_install_upgrade_uninstall(self):
        name = self.create(self.asking())["metadata"]["name"]
        self.wait_ready(name)
        found = self.kube.get("Pod", name)
        self.assertEqual(found["spec"]["schedulerName"], "default-scheduler")
        self.assertEqual(self.who_bound(name), {"system:serviceaccount:carve-system:carve-control"})
        other = self.create(pod(self.name()))["metadata"]["name"]       # one without cards is its own business
        self.wait_ready(other)
        self.assertEqual(self.who_bound(other), {"system:kube-scheduler"})
        self.burst()
        if os.environ.get("CARVE_SOAK"):
            self.upgrade([name])        # of all but the scheduler as in the other mode
        self.uninstall()

    def burst(self):
        """Pods that kube-scheduler finds all at once, onto nodes without a kubelet that have room for ten more: all are bound
        soon, and hardly one is sent where another one's Binding is on its way to."""
        nodes = bare_nodes.make(self.kube, "n1", 4)
        wait_for("control knows them", 20, lambda: self.known_to_control() >= 4 + len(self.ring.nodes), every=0.2)
        refused, made = self.binds("refused"), [self.asking(nodeSelector={bare_nodes.LABEL: "true"}) for _ in range(BURST)]
        for one in made:
            one["spec"]["containers"][0]["resources"] = {"limits": {"elasticgpu.io/gpu-memory": "4096",
                                                                     "elasticgpu.io/gpu-core": "10"}}
        try:
            with disaster.stopped(self.ring.state.pid("scheduler")), concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(self.kube.create, made))
            begun = time.monotonic()
            with contextlib.suppress(AssertionError):
                wait_for("all are bound", PATIENCE, lambda: len(self.bound_there()) == BURST, every=0.25)
            seconds, there = time.monotonic() - begun, self.bound_there()
            refused = self.binds("refused") - refused
            print(f"\n{len(there)} of {BURST} pods were bound {seconds:.1f} s after kube-scheduler saw them; "
                  f"{refused:.0f} bind calls were refused, their pods tried again", flush=True)
            self.assertEqual(len(there), BURST)
            self.assertLessEqual(refused, BURST / 5)
            held = collections.Counter()
            for one in there:
                for part in json.loads(one["metadata"]["annotations"][binder.RECORD])["parts"]:
                    for card in part["cards"]:
                        held[card["uuid"]] += card["compute"]
            self.assertEqual((sum(held.values()), max(held.values())), (BURST * 10, 100))
        finally:
            for one in made:
                self.kube.delete("Pod", one["metadata"]["name"], grace=0)
            wait_for("they are gone", 30, lambda: not self.bound_there(), every=0.5)
            bare_nodes.remove(self.kube, nodes)

    def bound_there(self) -> list:
        return [one for one in self.kube.list("Pod") if bare_nodes.LABEL in one["spec"].get("nodeSelector", {})
                and one["spec"].get("nodeName")]

    def metrics(self) -> list:
        """Of each replica of control."""
        return [self.kube.request("GET", f"/api/v1/namespaces/{SPACE}/pods/{one['metadata']['name']}:8080/proxy/metrics",
                                  raw=True) for one in self.kube.list("Pod", SPACE)
                if one["metadata"]["name"].startswith("carve-control")]

    def binds(self, outcome) -> float:
        found = [re.search(rf'(?m)^carve_control_bindings_total{{outcome="{outcome}"}} (\S+)$', text)
                 for text in self.metrics()]
        self.assertTrue(found and all(found))
        return sum(float(one.group(1)) for one in found)

    def known_to_control(self) -> int:
        """Nodes with cards, by the replica that knows fewest."""
        return min(int(float(re.search(r"(?m)^carve_nodes (\S+)$", text).group(1))) for text in self.metrics())

    def who_bound(self, name):
        """Users whose Binding of that pod the API server took, by its audit log."""
        found = set()
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            what = event.get("objectRef") or {}
            if (what.get("resource"), what.get("name"), what.get("subresource")) == ("pods", name, "binding") \
                    and event.get("responseStatus", {}).get("code") == 201:
                found.add(event["user"]["username"])
        return found

    def remove(self):
        installed.untell_default_scheduler(self.ring)
        super().remove()


if __name__ == "__main__":
    main()
