"""All of Carve on two nodes: installed, replaced by the next release under running pods, uninstalled.

Pods are created while control is replaced, and while agents are. A terminating agent publishes that it is leaving,
control sends no pod to its node during that time, and the kubelet refuses no pod. (A killed agent publishes nothing:
scenario slot_restarts.) CARVE_SOAK=1: also by the plain bundle, with more rolling updates, and an uninstall that begins
under a running pod.
"""
import concurrent.futures
import contextlib
import datetime
import itertools
import json
import os
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import binder, carve, images, installed, planted, traces  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import Background, RingTest, main, pod, wait_for  # noqa: E402

SPACE = carve.NAMESPACE
SOAK = bool(os.environ.get("CARVE_SOAK"))
SMALL = {"elasticgpu.io/gpu-memory": "1024", "elasticgpu.io/gpu-core": "2"}
TOO_MUCH = 2 << 30          # bytes, for a pod with SMALL
OUT_OF_MEMORY = 2           # CUresult
MOST = 30                   # pods that are created while control is replaced
LIVING = 8                  # short pods at a time, at most
ROLLS = int(os.environ.get("CARVE_ROLLS", "4")) if SOAK else 1      # rolling updates of the agents while short pods run


class ArrivingPods(Background):
    """Creates pods with cards without pause while something is replaced. Each is created with one try: refusals are
    kept."""

    def __init__(self, test, make=None, every=1, most=MOST):
        super().__init__()
        self.test, self.make, self.every, self.most = test, make or test.asking, every, most
        self.names, self.refused = [], []

    def run(self):
        while not self.end.is_set() and len(self.names) < self.most:
            made = self.make()
            try:
                self.test.create(made)
                self.names.append(made["metadata"]["name"])
            except (ApiError, OSError) as error:
                self.refused.append(str(error))
            self.end.wait(self.every)


# What a killed agent leaves that is not restarted; the uninstall must find it.
OF_THE_KILLED = ("/run/cdi/carve-slice-s-000000-1.json", "/run/cdi/carve-slice-s-000000-2.json.4711.tmp",
                 "/run/carve/slices/s-000000-1/s", "/var/lib/kubelet/plugins_registry/gpu.elasticgpu.io-left-reg.sock",
                 "/var/lib/kubelet/plugins/gpu.elasticgpu.io/dra-left.sock")


class Installation(RingTest):
    """A way to install Carve; the steps that all ways share."""
    own_scheduler = True
    chart = False       # True: what Helm renders from deploy/chart, instead of the plain bundle

    def setUp(self):
        super().setUp()
        for node in self.ring.nodes:        # left by scenarios that run Carve as processes
            node.run(["rm", "-rf", "/run/carve", "/var/lib/carve"])
        self.before = traces.Before(self.ring)
        self.archive = self.ring.state.folder / "images" / "carve.tar"
        installed.make_image(self.ring.build, self.archive)
        self.addCleanup(self.take_away)
        self.carves = installed.install_control(self.ring, self.archive, own_scheduler=self.own_scheduler,
                                                chart=self.chart)

    def take_away(self):
        """After a failed test: pods with cards first, because a node with such pods is not released."""
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
        """A pod that requests a little of a card and names no scheduler. At SIGUSR1 it tries to allocate more."""
        command = ["ring-look", "try", str(TOO_MUCH), "hold", str(seconds)]
        made = pod(self.name(), image=images.PROGRAMS, command=command, **spec)
        made["spec"]["containers"][0]["resources"] = {"limits": SMALL}
        return made

    def steps(self):
        """The steps of all ways."""
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
        with ArrivingPods(self) as arriving:
            begun = time.monotonic()
            self.replace("deployment", "carve-control", f"control={agent}")
            if self.kube.get("Deployment", "carve-scheduler", SPACE):
                self.ring.kubectl("-n", SPACE, "rollout", "restart", "deployment/carve-scheduler")
                self.rolled("deployment/carve-scheduler")
            of_control = time.monotonic() - begun
            wait_for("pods created during the replacement and after it", 60, lambda: len(arriving.names) > 5)
        for name in arriving.names:
            self.wait_ready(name, 120)
        self.replace_agents(agent)
        self.replace_arbiters(arbiter)
        of_all = time.monotonic() - begun
        self.assertEqual(arriving.refused, [], "admission must be available at every moment")
        waited = max((self.waited(name), name) for name in arriving.names)
        print(f"\ncontrol and scheduler replaced in {of_control:.0f} s, all in {of_all:.0f} s; {len(arriving.names)} "
              "pods were created during that time, none was refused; the one that waited longest was bound after "
              f"{waited[0]:.0f} s",
              flush=True)
        self.assertLessEqual(waited[0], seconds + 5)
        self.assertEqual(self.containers(before), started, "earlier pods must be unchanged")
        self.assert_right([*before, *arriving.names])
        running = {container["image"] for one in self.kube.list("Pod", SPACE) for container in one["spec"]["containers"]
                   if not one["metadata"]["name"].startswith("carve-scheduler")}
        self.assertEqual(running, {agent, arbiter}, "nothing of the old release may be left")

    def replace(self, kind, name, image):
        self.ring.kubectl("-n", SPACE, "set", "image", f"{kind}/{name}", image)
        self.rolled(f"{kind}/{name}")

    def rolled(self, what):
        done = installed.rollout(self.ring, what, check=False)
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}\n"
                         + self.carves[0].describe_all(what.partition("/")[2]))

    def replace_agents(self, image):
        """While short pods start and end, each bound to one of the two nodes: the kubelet must refuse none, and all
        succeed."""
        turn, left = itertools.cycle(node.name for node in self.ring.nodes), set()

        def short():
            while sum(self.ended(name) is None for name in arriving.names[-LIVING:]) == LIVING:
                left.update(self.leaving())
                time.sleep(0.2)
            left.update(self.leaving())
            return self.asking(1, nodeSelector={"kubernetes.io/hostname": next(turn)})
        arriving = ArrivingPods(self, short, 0.3, 150 * ROLLS)
        with arriving:
            begun = time.monotonic()
            self.replace("daemonset", "carve-agent", f"agent={image}")
            for _ in range(ROLLS - 1):
                self.ring.kubectl("-n", SPACE, "rollout", "restart", "daemonset/carve-agent")
                self.rolled("daemonset/carve-agent")
            seconds = time.monotonic() - begun
            # On a busy machine few pods arrive during the replacement: the ones after it are judged, too.
            wait_for("pods arrive", 120, lambda: len(arriving.names) > 15, every=0.5)
        ended = {name: wait_for(f"{name} has ended", 120, lambda n=name: self.ended(n), every=0.2)
                 for name in arriving.names}
        lost = {name: status.get("reason", "?") + ": " + status.get("message", "") for name, status in ended.items()
                if status["phase"] == "Failed"}
        waited = sorted(self.waited(name) for name in arriving.names if name not in lost)
        print(f"\nagents replaced {ROLLS} times in {seconds:.0f} s; {len(arriving.names)} pods were created during that "
              f"time, {len(lost)} were lost; bound after {waited[len(waited) // 2]:.0f} s (half of them), {waited[-1]:.0f} s (all)", flush=True)
        self.assertEqual(lost, {})
        self.assertEqual(left, {node.name for node in self.ring.nodes}, "each agent must publish that it is leaving")
        self.assertEqual(self.leaving(), [], "the next agents must clear that condition")
        for name in arriving.names:
            self.kube.delete("Pod", name, grace=0)
            self.created.remove(("Pod", name, "default"))

    def ended(self, name):
        status = self.kube.get("Pod", name)["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    def leaving(self):
        """Nodes with the condition that their agent is about to end."""
        return [node["metadata"]["name"] for node in self.kube.list("Node", None) for one in node["status"]["conditions"]
                if (one["type"], one["status"]) == ("GPUAgentLeaving", "True")]

    def replace_arbiters(self, image):
        """By hand, because the DaemonSet's updateStrategy is OnDelete: one node after the other."""
        self.ring.kubectl("-n", SPACE, "set", "image", "daemonset/carve-arbiter", f"arbiter={image}")
        for one in self.carves:
            old = one.ready("carve-arbiter")["metadata"]["name"]
            self.kube.delete("Pod", old, SPACE)
            wait_for(f"the next arbiter of {one.node.name}", 60, lambda o=old, c=one: (
                c.ready("carve-arbiter") or {"metadata": {"name": o}})["metadata"]["name"] != o)

    def containers(self, names):
        """The pods' containers, with the number of their restarts."""
        return {name: [(s["containerID"], s["restartCount"]) for s in
                       self.kube.get("Pod", name)["status"]["containerStatuses"]] for name in names}

    def waited(self, name):
        """Seconds from the pod's creation to its binding, by the API server's timestamps."""
        found = self.kube.get("Pod", name)
        bound = next(c["lastTransitionTime"] for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
        made, bound = (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (
            found["metadata"]["creationTimestamp"], bound))
        return (bound - made).total_seconds()

    def look(self, name):
        line = wait_for(f"{name} has printed its look", 20, lambda: self.kube.logs(name, "main").strip().splitlines())
        return json.loads(line[-1])

    def assert_right(self, names):
        """The independent checker: what each container sees equals its record, and no card is over-committed."""
        physical = {card["uuid"]: card["total_bytes"] for one in self.carves for card in one.truth("cards")["cards"]}
        seen = {("default", name, "main"): self.look(name) for name in names}
        pods = [self.kube.get("Pod", name) for name in names]
        self.assert_no_findings(check.check(pods, [], [], seen, by="records", physical=physical))
        self.assertTrue(all(binder.RECORD in one["metadata"]["annotations"] for one in pods))

    # --- uninstalling ------------------------------------------------------------------------------------------------

    def uninstall(self):
        """With CARVE_SOAK while a pod with cards still runs: the one that was created first."""
        last = self.created.pop(0) if SOAK else None
        self._clean()           # the other pods with cards
        self.created.clear()
        for path in OF_THE_KILLED:
            planted.write(self.ring.node(1), path)
        begun = time.monotonic()
        if last is None:
            self.remove()
        else:
            self.created.append(last)
            self.remove_under(last[1])
        print(f"uninstalled in {time.monotonic() - begun:.0f} s", flush=True)
        self.assert_nothing_left()
        with planted.Planted(self.ring) as plants:
            found = self.before.left()
            self.assertEqual(plants.missed(found), [], found)
            print(f"{len(plants.wanted)} things were left on purpose, and each was reported", flush=True)
        self.assert_nothing_left()

    def assert_nothing_left(self):
        with contextlib.suppress(AssertionError):
            wait_for("nothing is left", 30, lambda: not self.before.left(), every=1)
        self.assertEqual(self.before.left(), [])

    def remove_under(self, name):
        """A node is not released while a pod on it has cards: the pod keeps its limit, and the uninstall waits for its
        end."""
        before, node = self.containers([name]), self.kube.get("Pod", name)["spec"]["nodeName"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            removing = pool.submit(self.remove)
            try:
                said = wait_for("carve-down reports why it waits", 120, lambda: self.why_down_waits(node, name),
                                every=0.5)
                print(f"carve-down: {said}", flush=True)
                self.assertIn("1 pod(s) with cards of Carve", said)
                self.assertFalse(removing.done(), "the uninstall must wait")
                self.assertEqual(self.containers([name]), before)
                self.assert_limited_still(name)
                left = self.before.left_on_nodes().get(node, [])
                self.assertTrue(any(line.startswith("labels elasticgpu.io/gpu") for line in left), left)
            finally:
                self._clean()
                self.created.clear()
            removing.result()

    def assert_limited_still(self, name):
        """Without an agent: a running process has its limit, and a new one gets no more (without an arbiter,
        nothing)."""
        self.ring.kubectl("exec", name, "--", "kill", "-USR1", "1")
        said = wait_for("the allocation has been tried", 20, lambda: [line for line in self.kube.logs(name).splitlines()
                                                     if line.startswith('{"tried"')])
        self.assertEqual(json.loads(said[-1]), {"tried": OUT_OF_MEMORY})
        new = self.ring.kubectl("exec", name, "--", "ring-look", "allocate", str(TOO_MUCH))
        self.assertNotEqual(json.loads(new.stdout)["allocated"], 0, new.stdout)

    def why_down_waits(self, node, name) -> str:
        """The line about the pod in the output of carve-down's last try on that node; empty when there is none."""
        for one in self.kube.list("Pod", SPACE):
            if one["spec"].get("nodeName") == node and one["metadata"]["name"].startswith("carve-down"):
                with contextlib.suppress(ApiError):     # its container has not started
                    said = self.kube.logs(one["metadata"]["name"], "down", SPACE).splitlines()
                    return next((line for line in said[::-1] if f"default/{name}" in line), "")
        return ""


class OwnScheduler(Installation):
    """Mode (a): a second kube-scheduler with a profile of Carve's own; all installed by the chart."""
    chart = True

    def test_install_upgrade_uninstall(self):
        self.steps()


@unittest.skipUnless(SOAK, "needs CARVE_SOAK=1")
class OwnSchedulerByBundle(OwnScheduler):
    """The same, installed by the plain bundle."""
    chart = False


@unittest.skipUnless(SOAK, "needs CARVE_SOAK=1")
class ByHelm(Installation):
    """Helm itself installs, upgrades and uninstalls."""
    chart = True

    def test_install_upgrade_uninstall(self):
        first = self.create(self.asking())["metadata"]["name"]
        self.wait_ready(first)
        started = self.containers([first])
        next_image, _ = installed.next_images(self.ring, self.archive.parent)
        with ArrivingPods(self) as arriving:
            installed.helm(self.ring, "upgrade", *installed.helm_sets(*installed.values(), f"image={next_image}"))
            for what in ("deployment/carve-control", "deployment/carve-scheduler", "daemonset/carve-agent"):
                self.rolled(what)
            wait_for("pods created during the replacement and after it", 60, lambda: len(arriving.names) > 5)
        for name in arriving.names:
            self.wait_ready(name, 120)
        self.replace_arbiters(next_image)
        self.assertEqual(arriving.refused, [])
        self.assertEqual(self.containers([first]), started, "earlier pods must be unchanged")
        self.assert_right([first, *arriving.names])
        running = {container["image"] for one in self.kube.list("Pod", SPACE) for container in one["spec"]["containers"]}
        self.assertEqual(running, {next_image, installed.SCHEDULER_IMAGE})
        said = installed.helm(self.ring, "history")
        self.assertRegex(said, r"(?m)^2\s.*deployed")
        print(f"\n{said}", flush=True)
        self.uninstall()


@unittest.skipUnless(SOAK, "needs CARVE_SOAK=1")
class AgentsAgainAndAgain(Installation):
    def test_pods_are_created_while_agents_are_replaced_repeatedly(self):
        self.replace_agents(installed.next_images(self.ring, self.archive.parent)[0])


if __name__ == "__main__":
    main()
