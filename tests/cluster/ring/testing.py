"""What every scenario shares: the running ring, pods that are deleted after each test, and helpers for common waits."""
import concurrent.futures
import contextlib
import itertools
import json
import os
import signal
import threading
import time
import unittest
from pathlib import Path

from . import images, stolen
from .cluster import Ring
from .kube import ApiError, wait_for
from .repeats import Repeats

_counter = itertools.count(1)
OUT_OF_MEMORY = 2       # CUDA_ERROR_OUT_OF_MEMORY


def pod(name, image=images.BUSYBOX, command=("sleep", "3600"), node=None, claims=None, annotations=None, **spec):
    """A pod with one container `main`. `spec` is added to the pod's spec unchanged. It gets a token of the API
    server, which costs a request, a volume and a watch of the kubelet, only if it names a ServiceAccount.

    claims: request name -> ResourceClaimTemplate name; the container gets all of them.
    """
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": list(command)}
    whole = {"terminationGracePeriodSeconds": 1, "restartPolicy": "Never", "containers": [container],
             "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": "serviceAccountName" in spec}
    if node:
        whole["nodeSelector"] = {"kubernetes.io/hostname": node}
    if claims:
        whole["resourceClaims"] = [{"name": key, "resourceClaimTemplateName": template}
                                   for key, template in claims.items()]
        container["resources"] = {"claims": [{"name": key} for key in claims]}
    whole.update(spec)
    meta = {"name": name, "namespace": "default"}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}


SOAK = bool(os.environ.get("CARVE_SOAK"))


def in_soak(test):
    """Marks a test, or a class of tests, that scripts/soak runs and scripts/test does not. Without CARVE_SOAK it is no
    test, so it counts neither as run nor as skipped. scripts/README.md lists these tests with the reason."""
    return test if SOAK else None


class Background(threading.Thread):
    """A thread that runs while a `with` block does. Leaving the block sets `end` and joins; run() must check `end`."""

    def __init__(self):
        super().__init__()
        self.end = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.join()


class RingTest(unittest.TestCase):
    """Tests on the ring that `up` started. Objects that a test creates through `create` are deleted at its end."""
    longMessage, maxDiff = True, None

    @classmethod
    def setUpClass(cls):
        cls.ring = Ring.load()
        cls.kube = cls.ring.kube()

    def setUp(self):
        self.created = []
        self.addCleanup(self._clean)
        self.earlier_refusals = {event["metadata"]["uid"] for event in self.refusals_at_admission()}

    @staticmethod
    def concurrently(*cases):
        """Runs cases of one test, one thread each, for cases that wait for the kubelet. When all have ended, raises
        what the first failed one raised."""
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            begun = [pool.submit(case) for case in cases]
        for case in begun:
            case.result()

    def refusals_at_admission(self):
        """The events by which a kubelet refused a pod for its devices."""
        return self.kube.list("Event", fieldSelector="reason=UnexpectedAdmissionError")

    def refused_at_admission(self):
        """Those since the test's start. Scenarios share a ring, and some scenarios cause such events on purpose."""
        return [event for event in self.refusals_at_admission()
                if event["metadata"]["uid"] not in self.earlier_refusals]

    def name(self, what="pod"):
        return f"{what}-{os.getpid()}-{next(_counter)}"

    def create(self, object_):
        made = self.kube.create(object_)
        meta = made["metadata"]
        self.created.append((object_["kind"], meta["name"], meta.get("namespace", "default")))
        return made

    def _clean(self):
        """Deletes everything, then waits until it is gone: pods before the objects that they use."""
        order = sorted(reversed(self.created), key=lambda c: c[0] not in ("Deployment", "DaemonSet", "Job", "Pod"))
        for kind, name, namespace in order:
            self.kube.delete(kind, name, namespace, grace=1 if kind == "Pod" else None)
        for kind, name, namespace in order:
            wait_for(f"{kind} {name} gone", 180, lambda k=kind, n=name, s=namespace: self.kube.get(k, n, s) is None)

    def assert_no_findings(self, found, message=None):
        """Asserts that an independent checker found nothing wrong. A test may be repeated when the machine was too slow
        for it. A repetition does not undo access to another owner's slice, so findings go into the run's closing
        lines."""
        kept = os.environ.get("CARVE_CONVICTIONS")
        if found and kept:
            with open(kept, "a", encoding="utf-8") as file:
                file.writelines(f"{self.id()}: {line}\n" for line in found)
        self.assertEqual(found, [], message)

    @staticmethod
    def pids_of(word):
        """The machine's processes with this word in their cgroup path: those of a container or a pod."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if word in (path / "cgroup").read_text(errors="replace"):
                    found.append(int(path.name))
            except OSError:     # it has ended
                pass
        return found

    def kill_sandbox(self, name):
        """Kills a pod's pause process: the kubelet re-creates sandbox and containers. Returns when the pod is Ready
        again."""
        uid = self.kube.get("Pod", name)["metadata"]["uid"]
        for pid in self.pids_of(uid):
            with contextlib.suppress(OSError):
                if "pause" in Path(f"/proc/{pid}/comm").read_text():
                    os.kill(pid, signal.SIGKILL)
        wait_for("the container was restarted", 120, lambda: self.restarts_of(name) > 0, 0.5)
        self.wait_ready(name, 120)

    def assert_limited(self, name):
        """A new process in a container that has 4 GiB of a card asks for 5: its library says hello, and the limit
        holds."""
        done = self.ring.kubectl("exec", name, "--", "ring-look", "allocate", str(5 << 30))
        self.assertEqual(json.loads(done.stdout)["allocated"], OUT_OF_MEMORY, name)

    def restarts_of(self, name):
        """How many times the pod's first container was restarted."""
        status = self.kube.get("Pod", name)["status"].get("containerStatuses") or [{"restartCount": 0}]
        return status[0]["restartCount"]

    def look_before(self, name, container="main"):
        """What `ring-look` printed in the previous container; None while the kubelet has no such log."""
        try:
            return json.loads(self.kube.logs(name, container, previous=True).strip().splitlines()[-1])
        except (IndexError, ValueError, ApiError):
            return None

    # --- waits and views -----------------------------------------------------------------------------------------

    def phase(self, name):
        found = self.kube.get("Pod", name)
        return found and found["status"].get("phase")

    @staticmethod
    def over(found, wanted=()):
        """Whether the pod has ended in a phase that is not wanted: it will not change, unless a controller re-creates
        it."""
        phase = found["status"].get("phase") if found and not found["metadata"].get("ownerReferences") else None
        return phase in ("Succeeded", "Failed") and phase not in wanted

    def describe(self, name):
        """For a person to read: phase, container states, events."""
        found = self.kube.get("Pod", name)
        if found is None:
            return f"pod {name}: gone"
        states = [(s["name"], s["state"]) for s in found["status"].get("containerStatuses", [])]
        return f"pod {name}: {found['status'].get('phase')} {found['status'].get('message', '')} {states}\n" + \
            "\n".join(f"  {t} {r}: {m}" for t, r, m in self.kube.events_of(found))

    def wait_phase(self, name, phases, seconds=60):
        phases = (phases,) if isinstance(phases, str) else phases
        return self._wait_pod(name, "/".join(phases), seconds,
                              lambda found: (found and found["status"].get("phase")) in phases, phases)

    def wait_ready(self, name, seconds=60):
        self._wait_pod(name, "ready", seconds, lambda found: found and any(
            c["type"] == "Ready" and c["status"] == "True" for c in found["status"].get("conditions", [])))

    def _wait_pod(self, name, what, seconds, holds, final=()):
        """Waits until `holds` of the pod. Fails immediately when the pod has ended in a phase other than `final`."""
        def arrived():
            found = self.kube.get("Pod", name)
            if self.over(found, final):
                raise AssertionError(f"pod {name} has ended and is not {what}")
            return holds(found)
        try:
            return wait_for(f"pod {name} is {what}", seconds, arrived)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from None

    def run_to_end(self, object_, seconds=60):
        """Creates a pod and waits until it has ended. Returns (phase, log of its container `main`)."""
        name = self.create(object_)["metadata"]["name"]
        self.wait_phase(name, ("Succeeded", "Failed"), seconds)
        return self.phase(name), self.kube.logs(name, "main")


class Shares:
    """A part of a RingTest: the shares of one card, measured by the simulated driver's account of self.carve's node."""

    def card_time(self, names):
        """pod -> nanoseconds of card time so far as the simulated driver counts them, and the time of the reading."""
        rows = {row["pid"]: row["gpu_ns"] for row in self.carve.truth("account")["processes"] if row["alive"]}
        uids = {name: self.kube.get("Pod", name)["metadata"]["uid"] for name in names}
        return {name: sum(rows.get(pid, 0) for pid in self.pids_of(uid)) for name, uid in uids.items()}, time.monotonic_ns()

    def assert_shares_kept(self, wanted):
        """wanted: pod -> its share of the one card on which all of them SPIN, in points. Measured in real time: nothing
        else may run concurrently. No pod may exceed its share. What all of them lack together, because programs wait for
        a processor, each may lack in proportion; isolation_share_test judges the whole shares."""
        for name in wanted:
            self.wait_ready(name)
        wait_for("all launch", 20, lambda: all(spent > 0 for spent in self.card_time(wanted)[0].values()))
        time.sleep(1)
        host, (before, start) = stolen.Stolen(), self.card_time(wanted)
        time.sleep(5)           # the measurement itself
        (after, end), taken = self.card_time(wanted), host.percent()
        got = [(cores, 100 * (after[name] - before[name]) / (end - start)) for name, cores in wanted.items()]
        print(f"\nshares of one card: {', '.join(f'{share:.1f} of {cores}' for cores, share in got)}; "
              f"the host took {taken:.1f} % of the processors", flush=True)
        delivered = min(1, sum(share for _, share in got) / sum(wanted.values()))
        self.assertGreaterEqual(delivered, 0.6, got)
        for cores, share in got:
            self.assertLessEqual(share, cores + 5 + taken, got)
            self.assertGreaterEqual(share, cores * delivered - 5 - taken, got)


class CarveTest(Shares, RingTest):
    """Tests with Carve on every node: arbiter and agent run before the first test and end after the last."""
    plugins = "dra"
    # launches without pause
    SPIN = ["carve-sample-spin", "--seconds", "120", "--memory", "1Gi", "--kernel-us", "1000"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        from .carve import Carve, install_objects
        install_objects(cls.ring)
        cls.carves = [Carve(cls.ring, node, cls.plugins) for node in cls.ring.nodes]
        cls.carve = cls.carves[0]
        try:
            for carve in cls.carves:
                carve.start_arbiter()
                carve.start_agent()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        for carve in cls.carves:
            carve.stop()

    def template(self, cores=None, memory=None, count=None, device_class="gpu.elasticgpu.io", config=None):
        """Creates a ResourceClaimTemplate for one request `gpu`. Returns its name."""
        exactly = {"deviceClassName": device_class}
        requests = {key: value for key, value in (("memory", memory), ("cores", cores)) if value is not None}
        if requests:
            exactly["capacity"] = {"requests": requests}
        if count:
            exactly.update(allocationMode="ExactCount", count=count)
        devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
        if config is not None:
            devices["config"] = [{"opaque": {"driver": "gpu.elasticgpu.io", "parameters": config}}]
        name = self.name("template")
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": name, "namespace": "default"}, "spec": {"spec": {"devices": devices}}})
        return name

    def look(self, name, container="main"):
        """What `ring-look` printed in a container that runs it."""
        line = wait_for(f"{name}/{container} has printed its look", 20,
                        lambda: self.kube.logs(name, container).strip().splitlines())
        return json.loads(line[-1])


class TimedResult(unittest.TextTestResult):
    """Prints how long each test took, and how long the fixtures before it (setUpClass, tearDownClass) took."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.last = time.monotonic()

    def startTest(self, test):
        self._mark("fixtures before it")
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self._mark(test.id().partition(".")[2])

    def addSuccess(self, test):
        super().addSuccess(test)
        _repeats.passed(test)

    def stopTestRun(self):
        self._mark("fixtures after the last test")
        super().stopTestRun()

    def _mark(self, what):
        now = time.monotonic()
        self.stream.writeln(f"  [{now - self.last:6.1f} s] {what}")
        self.last = now


class Runner(unittest.TextTestRunner):
    """Runs the tests that have not passed in an earlier try."""

    def run(self, test):
        return super().run(_repeats.begin(test))


_repeats = Repeats()


def main(defaultTest=None):
    """Runs a scenario file: its tests (`defaultTest`: which, when not all), or those named on the command line."""
    from . import installed
    ring = Ring.find()      # none: the scenario starts one
    for what in ring.repair() if ring else ():
        print(f"left by an earlier scenario: {what}", flush=True)
    ran = unittest.main(defaultTest=defaultTest, warnings="ignore", exit=False,
                        testRunner=Runner(verbosity=2, resultclass=TimedResult))
    _repeats.end(ran.result.wasSuccessful())
    if installed.SHARED and not ran.result.wasSuccessful():
        installed.spoil(Ring.load())
    if ran.result.testsRun == 0:
        raise SystemExit("no test ran")
    raise SystemExit(not ran.result.wasSuccessful())
