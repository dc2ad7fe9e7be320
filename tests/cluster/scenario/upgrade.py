"""Carve installed from its plain manifests, as a user does, and upgraded under running pods."""
import contextlib
import datetime
import json
import os
import re
import signal
import sys
import tarfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import binder, carve, cgroups, images, installed, stolen  # noqa: E402
from ring.testing import OUT_OF_MEMORY, CarveTest, RingTest, in_soak, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
POINTS = 5                  # of a second's share, as tests/isolation allows for two programs on two processors
HOLD = ["ring-look", "allocate", str(5 * GIB), "hold", "3600"]


class InstalledTest(RingTest):
    """The image is imported and deploy/ applied before the first test; removed after the last."""
    template, look = CarveTest.template, CarveTest.look
    plugins = "dra"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(installed.uninstall, cls.ring)
        cls.archive = cls.ring.state.folder / "images" / "carve.tar"
        cls.image = installed.make_image(cls.build(), cls.archive)
        cls.carves = installed.install(cls.ring, cls.archive, cls.plugins)
        cls.carve = cls.carves[0]

    @classmethod
    def build(cls):
        return cls.ring.build

    def judge(self, names):
        """What the independent checker finds wrong with running pods: seen from inside, against the API."""
        pods = [one for one in self.kube.list("Pod") if one["metadata"]["name"] in names]
        seen = {("default", name, "main"): self.look(name) for name in names}
        physical = {card["uuid"]: card["total_bytes"] for card in self.carve.truth("cards")["cards"]}
        return check.check(pods, self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None), seen,
                           physical=physical)

    def fraction(self, memory="4Gi", cores="30", **spec):
        name = self.name()
        self.create(pod(name, image=images.PROGRAMS, claims={"gpu": self.template(memory=memory, cores=cores)},
                        **{"command": HOLD, "node": "n1", **spec}))
        return name


class AsInstalled(InstalledTest):
    def test_a_fraction_runs_with_only_the_two_daemonsets(self):
        name = self.fraction()
        self.wait_ready(name)
        self.assertEqual(self.look(name)["allocated"], OUT_OF_MEMORY)
        self.assert_no_findings(self.judge([name]))

    def test_the_example_of_docs_kubernetes_runs_as_written(self):
        text = (installed.DEPLOY / "examples/fraction.yaml").read_text().replace("image: IMAGE", f"image: {images.PROGRAMS}")
        self.ring.kubectl("apply", "-f", "-", input=text)
        self.addCleanup(self.ring.kubectl, "delete", "--wait", "--grace-period=1", "-f", "-", input=text)
        self.wait_ready("fraction")
        done = self.ring.kubectl("exec", "fraction", "--", "carve-sample-alloc", "--step", "1Gi")
        seen = json.loads(done.stdout)
        self.assertEqual((seen["bytes"], seen["out_of_memory"], seen["total"]), (3 * GIB, True, 4 * GIB))

    def test_the_image_contains_only_the_program_and_its_libraries(self):
        """No shell, no package manager; small enough to be pulled everywhere quickly."""
        with tarfile.open(self.archive) as archive:
            def blob(digest):
                return archive.extractfile("blobs/" + digest.replace(":", "/"))
            manifest = json.load(blob(json.load(archive.extractfile("index.json"))["manifests"][0]["digest"]))
            layer, = manifest["layers"]
            with tarfile.open(fileobj=blob(layer["digest"]), mode="r:gz") as files:
                names = {one.name.removeprefix("./") for one in files if one.isfile()}
        self.assertLess(self.archive.stat().st_size, 16 << 20)
        libraries = {name for name in names if ".so" in name}
        self.assertEqual(names - libraries, {"usr/bin/carve", "usr/lib/carve/carve-hook", "etc/passwd", "etc/group"})
        self.assertEqual({re.sub(r"\.so.*", "", Path(name).name) for name in libraries},
                         {"ld-linux-x86-64", "libc", "libm", "libgcc_s", "libstdc++", "libssl", "libcrypto",
                          "libdl", "libpthread", "librt", "libsimdjson", "libcarve-cuda", "libcarve-nvml"})

    def test_the_arbiter_has_exactly_three_capabilities(self):
        status = self.carve.ready("carve-arbiter")["status"]["containerStatuses"][0]
        container = status["containerID"].partition("://")[2]
        commands = {}
        for pid in self.pids_of(container):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):      # a probe that has ended
                commands[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        # The kubelet's probe, which runs for moments, begins as runc.
        seen = [Path(f"/proc/{pid}/status") for pid, command in commands.items()
                if b"\0probe\0" not in command and not command.startswith(b"runc\0init")]
        self.assertEqual(len(seen), 1, commands)
        fields = dict(line.split(":\t", 1) for line in seen[0].read_text().splitlines() if ":\t" in line)
        allowed = {19: "SYS_PTRACE", 21: "SYS_ADMIN", 23: "SYS_NICE"}
        self.assertEqual({bit for bit in range(64) if int(fields["CapEff"], 16) >> bit & 1}, set(allowed))
        self.assertEqual((fields["NoNewPrivs"].strip(), fields["Seccomp"].strip()), ("1", "2"))     # 2: a filter

    def run_in(self, what, *arguments):
        """(exit code, seconds) of a carve command in the pod, where the kubelet runs the manifest's probe."""
        name = self.carve.ready(f"carve-{what}")["metadata"]["name"]
        begun = time.monotonic()
        done = self.ring.kubectl("-n", carve.NAMESPACE, "exec", name, "--", "/usr/bin/carve", *arguments, check=False)
        return done.returncode, time.monotonic() - begun

    def probe(self, what):
        return self.run_in(what, "probe", what)

    def containers_of_carve(self):
        return {p["metadata"]["name"]: [(s["containerID"], s["restartCount"]) for s in p["status"]["containerStatuses"]]
                for what in installed.WORKLOADS for p in self.carve.pods_of(what)}

    @in_soak
    def test_an_agent_is_alive_while_the_vendors_library_hangs(self):
        simctl = self.ring.build / "bin" / "carve-simctl"
        before = self.containers_of_carve()
        self.carve.node.run([simctl, "hang", "on"])
        try:
            wait_for("the agent reports all cards", 60, lambda: all(self.troubles()))
            slow = 0
            for _ in range(10):
                _, start = self.run_in("agent", "version")    # the start of a process waits for a processor
                code, seconds = self.probe("agent")
                self.assertEqual(code, 0)
                slow += seconds >= start + 5
                time.sleep(0.5)
            self.assertLess(slow, 3, "the kubelet restarts an agent after several probes without an answer in time")
            self.assertEqual(self.containers_of_carve(), before)
            # An agent that is started now becomes ready, too.
            old = self.carve.ready("carve-agent")["metadata"]["name"]
            self.kube.delete("Pod", old, carve.NAMESPACE)
            wait_for("another agent is ready", 60, lambda: (self.carve.ready("carve-agent") or {"metadata": {"name": old}})
                     ["metadata"]["name"] != old)
        finally:
            self.carve.node.run([simctl, "hang", "off"])
        wait_for("the cards are healthy", 60, lambda: not any(self.troubles()))

    def troubles(self):
        """The health reasons of the cards, from the agent; between two agents there is a moment without an answer."""
        try:
            return [card["health_reason"] for card in self.carve.inspect()["cards"]] or ["no card"]
        except RuntimeError as error:
            return [str(error)]

    def test_a_hanging_agent_or_arbiter_is_restarted(self):
        """Stopped by a signal, like a process that hangs: the probes fail. The agent's probes need two minutes before
        the kubelet acts (in soak), the arbiter's half a minute."""
        patient = ["agent"] if os.environ.get("CARVE_SOAK") else []
        for what in ["arbiter", *patient]:
            with self.subTest(what):
                found = self.carve.ready(f"carve-{what}")
                container = found["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
                (pid,) = [pid for pid in self.pids_of(container)
                          if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == what.encode()]
                os.kill(pid, signal.SIGSTOP)
                wait_for("the kubelet has restarted it", 200, lambda: self.restarts(found) == 1, every=1)
                wait_for("the pod is ready", 60, lambda: self.carve.ready(f"carve-{what}"))

    def restarts(self, found):
        return self.kube.get("Pod", found["metadata"]["name"], carve.NAMESPACE)["status"]["containerStatuses"][0][
            "restartCount"]

    def test_cdi_files_name_the_hosts_paths(self):
        name = self.fraction()
        self.wait_ready(name)
        specs = [json.loads(path.read_text()) for path in self.carve.node.outside("/run/cdi").glob("*.json")]
        paths = [mount["hostPath"] for spec in specs for device in spec["devices"]
                 for mount in device["containerEdits"]["mounts"]]
        self.assertTrue(paths)
        self.assertEqual([path for path in paths if not self.carve.node.outside(path).exists()], [])
        self.assertEqual([path for path in paths if path.startswith("/host")], [])


class Upgrade(InstalledTest):
    """DRA and slots, a loaded card, and the next release of everything: its page ABI is one higher (tests/next)."""
    plugins = "dra,slots"

    @classmethod
    def build(cls):
        return installed.marked_build(cls.ring, cls.ring.state.folder / "images" / "marked")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.next_agent, cls.next_arbiter = installed.next_images(cls.ring, cls.archive.parent)
        cls.cards = [card["uuid"] for card in cls.carve.truth("cards")["cards"]]
        wait_for("slots on the node", 60, lambda: int(
            cls.kube.get("Node", "n1")["status"]["allocatable"].get(binder.SLOT, 0)) > 0)

    # --- pods by DRA and by slots -------------------------------------------------------------------------------------

    def by_record(self, card, size, cores, command):
        """Creates a pod and its record, which names the card. Returns its name."""
        made = pod(self.name(), schedulerName=binder.SCHEDULER)
        made["spec"]["containers"] = [binder.with_slots(
            {"name": "main", "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": command})]
        made = self.create(made)
        text = binder.record(made["metadata"]["uid"], {"main": [(card, size * GIB, cores)]})
        binder.bind(self.kube, made, "n1", text)
        return made["metadata"]["name"]

    def card_of(self, name):
        """The UUID of the card that the claim of a pod was given."""
        claim = self.kube.get("Pod", name)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        device = self.kube.get("ResourceClaim", claim)["status"]["allocation"]["devices"]["results"][0]["device"]
        return next(d["attributes"]["uuid"]["string"] for item in self.carve.published()
                    for d in item["spec"]["devices"] if d["name"] == device)

    def containers(self, names):
        """The pods' containers and the number of their restarts, which an upgrade must not change."""
        return {name: [(s["containerID"], s["restartCount"]) for s in
                       self.kube.get("Pod", name)["status"]["containerStatuses"]] for name in names}

    def shares_during(self, what):
        """Card time of each process while `what` runs: per cent, the mean of all whole seconds of that time, from the
        simulated driver's own windows. Waits until at least two seconds have passed."""
        begun = time.monotonic_ns()
        what()
        time.sleep(max(0.0, 2.1 - (time.monotonic_ns() - begun) / 1e9))
        end = time.monotonic_ns()
        rows = [row for row in self.carve.truth("windows", "--ms", "1000", "--since", str(begun))["windows"]
                if begun <= row["start_ns"] <= end - 10 ** 9]
        starts = [row["start_ns"] for row in rows]      # a process without card time in a second has no row for it
        by_second = {start: sum(row["gpu_ns"] for row in rows if row["start_ns"] == start) / 1e7 for start in starts}
        print("\nper cent of the card in each second:", *(f"{by_second[start]:.0f}" for start in sorted(by_second)), flush=True)
        seconds = (max(starts) - min(starts)) / 1e9 + 1
        return {pid: sum(row["gpu_ns"] for row in rows if row["pid"] == pid) / seconds / 1e7
                for pid in {row["pid"] for row in rows}}

    def page_abis(self):
        """slice -> page ABI, from the grant pages themselves."""
        return {path.name.rsplit("-", 1)[0]: int.from_bytes(path.read_bytes()[4:6], "little")
                for path in self.carve.node.outside("/run/carve/arbiter/pages").iterdir()}

    def libraries(self):
        """The folders of libcarve that living processes on a card have mounted, from /proc."""
        found = set()
        for process in self.carve.living():
            lines = Path(f"/proc/{process['pid']}/mountinfo").read_text().splitlines()
            found |= {str(Path(line.split()[3]).parent) for line in lines if "libcarve-cuda.so " in line}
        return found

    # --- the upgrades -------------------------------------------------------------------------------------------------

    def upgrade_arbiter(self):
        old = self.carve.ready("carve-arbiter")["metadata"]["name"]
        self.ring.kubectl("-n", "carve-system", "set", "image", "daemonset/carve-arbiter",
                          f"arbiter={self.next_arbiter}")
        time.sleep(2)       # the old arbiter must stay (OnDelete)
        self.assertEqual(self.carve.ready("carve-arbiter")["metadata"]["name"], old)
        self.kube.delete("Pod", old, "carve-system")
        wait_for("the next arbiter", 60, lambda: (self.carve.ready("carve-arbiter") or {"metadata": {"name": old}})
                 ["metadata"]["name"] != old)

    def upgrade_agent(self):
        old = self.carve.ready("carve-agent")["metadata"]["name"]
        self.ring.kubectl("-n", "carve-system", "set", "image", "daemonset/carve-agent", f"agent={self.next_agent}")
        installed.rollout(self.ring, "daemonset/carve-agent")
        wait_for("the next agent alone", 60, lambda: (self.carve.ready("carve-agent") or {"metadata": {"name": old}})
                 ["metadata"]["name"] != old)

    def test_pods_keep_running_when_arbiter_and_agent_are_upgraded(self):
        spin = ["carve-sample-spin", "--seconds", "3600", "--memory", "1Gi"]
        fixed = {"apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "fixed"}
        claimed = self.name()
        self.create(pod(claimed, image=images.PROGRAMS, command=spin,
                        claims={"gpu": self.template(memory="4Gi", cores="30", config=fixed)}))
        self.wait_ready(claimed)
        card = self.card_of(claimed)
        recorded = self.by_record(card, 4, 40, spin)    # unknown to the scheduler: claims stay below 60
        holding = self.fraction(cores="5")
        names = [claimed, recorded, holding]
        for name in names:
            self.wait_ready(name)
        before, pages = self.containers(names), self.page_abis()
        first_library = self.libraries()
        self.assertEqual((set(pages.values()), len(first_library)), ({2}, 1))

        self.assert_shares("arbiter", self.upgrade_arbiter)
        self.assertEqual(self.containers(names), before)
        for name in names:
            self.assert_limited(name)
        between = self.fraction(cores="5")      # library of release N-1 with pages of release N
        self.wait_ready(between)
        self.assert_no_findings(self.judge([between, holding]))
        self.assertEqual({abi for slice_, abi in self.page_abis().items() if slice_ not in pages}, {3})
        self.assertEqual(self.libraries(), first_library)

        names.append(between)
        before = self.containers(names)
        started = self.while_pods_start(lambda: self.assert_shares("agent", self.upgrade_agent, busy=True))
        self.assertEqual(self.containers(names), before)
        for name in names:
            self.assert_limited(name)
        last = self.fraction(cores="1", memory="1Gi")
        self.wait_ready(last)
        self.assert_no_findings(self.judge([*started, last, between, holding]))
        self.assertEqual(len(self.libraries()), 2, "the next library next to the one in use")
        self.assert_old_library_goes([*names, *started], last)

    def assert_old_library_goes(self, earlier, last):
        """The old library is deleted at the agent's next start after the last container that has it mounted; the CDI
        files stay unchanged."""
        stored = self.carve.node.outside("/var/lib/carve/lib")
        self.assertEqual(len(list(stored.iterdir())), 2)
        for name in earlier:
            self.kube.delete("Pod", name, grace=0)
        wait_for("their slices have ended", 60, lambda: len(self.carve.inspect()["slices"]) == 1)
        (spec,) = self.carve.node.outside("/run/cdi").glob("carve-slice-*.json")
        was = spec.stat()
        old = self.carve.ready("carve-agent")["metadata"]["name"]
        self.kube.delete("Pod", old, "carve-system")
        wait_for("another agent", 60, lambda: (self.carve.ready("carve-agent") or {"metadata": {"name": old}})
                 ["metadata"]["name"] != old)
        (left,) = wait_for("one library is left", 20, lambda: (f := list(stored.iterdir())) and len(f) == 1 and f)
        self.assertEqual({Path(folder).name for folder in self.libraries()} - {left.name}, set())
        self.assertEqual((spec.stat().st_ino, spec.stat().st_mtime_ns), (was.st_ino, was.st_mtime_ns))
        self.assert_limited(last)

    def assert_shares(self, what, upgrade, busy=False):
        """30 by a claim (fixed) and 40 by a record (burst: it gets all that is left) of one card: during the upgrade as
        in the seconds before. busy: pods start during the upgrade."""
        host, quiet_shares = stolen.Stolen(), self.shares_during(lambda: time.sleep(5))
        before = {pid: share for pid, share in quiet_shares.items() if share >= 1}      # the processes that compute
        taken_before, host = host.percent(), stolen.Stolen()
        during = self.shares_during(upgrade)
        taken, busy_percent, quiet = host.percent(), host.busy_percent(), sorted(before.values())
        shares = sorted(during.get(pid, 0.0) for pid in before)
        print(f"\n{what} upgraded: shares during it {', '.join(f'{share:.1f}' for share in shares)}, "
              f"before {', '.join(f'{share:.1f}' for share in quiet)}; the processors were {busy_percent:.0f} % busy, the host "
              f"took {taken:.1f} %", flush=True)
        self.assertEqual(len(before), 2)
        if busy:
            self.assert_proportion(shares, taken)
        else:
            self.assert_kept(quiet, taken_before)
            self.assert_kept(shares, taken)

    def assert_kept(self, shares, taken):
        """The bounds of tests/isolation, also while no arbiter answers: 5 points, and what the host took. The record's
        40 are guaranteed; how much of the rest it gets also depends on the processors."""
        self.assertLessEqual(abs(shares[0] - 30), POINTS + taken, shares)
        self.assertTrue(40 - POINTS - taken <= shares[1] <= 70 + POINTS + taken, shares)

    def assert_proportion(self, shares, taken):
        """When all processors are busy (fifteen pods start on two of them), both programs launch less. Asserted are the
        cap, half of the guarantee, and the proportion. Without enforcement the shares would be 50 to 50, zero, or above
        the cap."""
        self.assertTrue(15 - taken <= shares[0] <= 30 + POINTS + taken, shares)
        self.assertTrue(1.4 <= shares[1] / shares[0] <= 3.2, shares)

    def while_pods_start(self, upgrade):
        """Runs it while fractions are created without pause; each must become Ready. Returns their names."""
        names, end = [], threading.Event()

        def create():
            while not end.is_set() and len(names) < 15:
                names.append(self.fraction(cores="1", memory="1Gi", command=["ring-look", "hold", "3600"]))
                end.wait(0.4)
        thread = threading.Thread(target=create)
        thread.start()
        try:
            upgrade()
        finally:
            end.set()
            thread.join()
        for name in names:
            self.wait_ready(name, 120)
        slowest = max((self.seconds_to_start(name), name) for name in names)
        print(f"{len(names)} pods started during that time, the slowest took {slowest[0]:.0f} s", flush=True)
        # The API server's Node authorizer learns of a claim a moment after the kubelet does, on a slow host later than
        # the kubelet reads it. That is Kubernetes' own delay.
        refused = [message for name in names for kind, reason, message in
                   self.kube.events_of(self.kube.get("Pod", name)) if reason == "FailedPrepareDynamicResources"
                   and "no relationship found between node" not in message]
        self.assertEqual(refused, [], "a kubelet that finds no driver retries after ten seconds")
        return names

    def seconds_to_start(self, name):
        """From the pod's creation to its container's start."""
        found = self.kube.get("Pod", name)
        made, began = (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (
            found["metadata"]["creationTimestamp"],
            found["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]))
        return (began - made).total_seconds()


class Uninstalled(InstalledTest):
    """What is left on a node after the fractions have ended and after `kubectl delete -f deploy/`."""

    def test_only_the_journal_the_cards_and_the_libraries_stay(self):
        others = self.cgroup()      # of another `carve up` on this machine
        before = self.things()
        name = self.fraction(command=["ring-look", "hold", "3600"])
        self.wait_ready(name)
        self.assertTrue(self.things() - before, "a living slice must be visible, or this test proves nothing")
        self.kube.delete("Pod", name, grace=0)
        # Its device is removed first, its pages with its last process: an agent that is gone by then cannot remove
        # them.
        wait_for("the slice ended", 30, lambda: not self.things() - before)
        installed.uninstall(self.ring)
        try:
            wait_for("sockets, devices and pages gone", 20, lambda: not self.things() - others)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted(self.things())}") from None
        wait_for("the kubelet has deleted the ResourceSlices", 60, lambda: not self.carve.published(), every=1)
        state = {path.name for path in self.carve.node.outside("/var/lib/carve").iterdir()}
        self.assertEqual(state, {"cards.json", "journal.d", "lib"})

    def things(self):
        """Sockets, CDI files, slices, pages and cgroups of Carve on the node, from any Carve."""
        node, found = self.carve.node, set()
        for pattern in ("run/cdi/*", "run/carve/slices/*", "run/carve/arbiter/pages/*", "run/carve/arbiter/lifelines/*", "run/carve/*.sock",
                        "var/lib/kubelet/plugins/gpu.elasticgpu.io/*", "var/lib/kubelet/plugins_registry/gpu*"):
            found |= {str(path) for path in node.outside("/").glob(pattern)}
        return found | self.cgroup()

    def cgroup(self):
        v2, _ = cgroups.mounts()
        return {"cgroup carve"} if v2 and (v2 / "carve").exists() else set()


if __name__ == "__main__":
    main()
