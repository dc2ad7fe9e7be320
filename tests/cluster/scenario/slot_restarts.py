"""Restarts and faults of a node that serves DRA and slots: kubelet restarts next to a crash loop, a full disk, an
expired token.

CARVE_SOAK=1: the long versions.
"""
import base64
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import disaster, images  # noqa: E402
from ring.slot_testing import SlotTest, container, slot_pod  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

RESTARTS = 20 if os.environ.get("CARVE_SOAK") else 5
KILLS = 50 if os.environ.get("CARVE_SOAK") else 10
KEEPER_KILLS = 10 if os.environ.get("CARVE_SOAK") else 3
LIST_WITHIN = 0.200     # seconds from the creation of the kubelet's socket (design 10)
RECEIVED = re.compile(r"[IWE](\d{4} \d\d:\d\d:\d\d\.\d{6}).*Processed device updates for resource.*elasticgpu\.io/slot.*"
                      r"totalCount=([1-9]\d*)")


class BothInterfaces(SlotTest):
    plugins = "dra,slots"

    def setUp(self):
        super().setUp()
        if self.node.pid("agent") is None:
            self.carve.start_agent()

    def container_id(self, name):
        return self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"]

    def fraction(self, command=("ring-look", "hold", "3600"), **spec):
        """Creates a pod by DRA. Returns (name, object)."""
        name = self.name()
        made = self.create(pod(name, image=images.PROGRAMS, claims={"gpu": self.template(memory="4Gi", cores="5")},
                               command=command, node="n1", **spec))
        return name, made

    def messages(self, made):
        return [message for _, _, message in self.kube.events_of(made)]

    # --- the kubelet -------------------------------------------------------------------------------------------------

    def seconds_to_the_list(self, offset):
        """Seconds from the creation of the kubelet's socket to the first full list of slots, from the kubelet's own
        log."""
        log = self.node.state.log("n1-kubelet")
        socket = self.node.folder / "var-lib/kubelet/device-plugins/kubelet.sock"

        def received():
            with open(log, encoding="utf-8", errors="replace") as text:
                text.seek(offset)
                return next((found for line in text if (found := RECEIVED.search(line))), None)
        found = wait_for("the kubelet has the list of slots", 30, received)
        when = datetime.strptime(f"{datetime.now().year} {found.group(1)}", "%Y %m%d %H:%M:%S.%f").timestamp()
        return when - socket.stat().st_ctime

    def test_pods_survive_kubelet_restarts_next_to_a_crash_loop(self):
        steady = self.start(slot_pod(self.name()), {"main": [(0, 4, 5)]})["metadata"]["name"]
        claimed, _ = self.fraction()
        claimed_looping, _ = self.fraction(["sh", "-c", "ring-look; sleep 1; exit 1"], restartPolicy="Always")
        again = slot_pod(self.name(), [container("main", ["sh", "-c", "ring-look; sleep 1; exit 1"]),
                                       container("other")], restartPolicy="Always")
        looping = self.start(again, {"main": [(1, 4, 5)], "other": [(2, 4, 5)]})["metadata"]["name"]
        for name in (steady, claimed):
            self.wait_ready(name, 90)
        for name in (looping, claimed_looping):
            wait_for(f"{name} has restarted", 90, lambda n=name: [
                s for s in self.kube.get("Pod", n)["status"].get("containerStatuses", []) if s["restartCount"] > 0])
        before = {name: self.container_id(name) for name in (steady, claimed)}
        seconds = []
        for _ in range(RESTARTS):
            with self.node.kubelet_stopped():
                offset = self.node.state.log("n1-kubelet").stat().st_size
            seconds.append(self.seconds_to_the_list(offset))
            time.sleep(2)   # the kubelet admits the node's pods again about a second after its start
            for name in (looping, claimed_looping, steady, claimed):
                self.assertNotEqual(self.phase(name), "Failed", self.describe(name))
        print(f"{RESTARTS} restarts, socket to list: worst {max(seconds) * 1000:.0f} ms ", end="", flush=True)
        self.assertEqual({name: self.container_id(name) for name in before}, before)
        self.assertLessEqual(max(seconds), LIST_WITHIN, seconds)

    # --- the agent, and the node -------------------------------------------------------------------------------------

    def started_under(self, kills, kill):
        """Binds pods one after the other while `kill` is called `kills` times at random moments. Returns their names. A
        running pod keeps running, and afterwards a pod starts as usual."""
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed} ", end="", flush=True)
        dice, stop, killed = random.Random(seed), threading.Event(), []
        steady = self.start(slot_pod(self.name()), {"main": [(0, 4, 5)]})["metadata"]["name"]
        self.wait_ready(steady)
        before = self.container_id(steady)

        def killer():
            while len(killed) < kills and not stop.is_set():
                time.sleep(dice.uniform(0.05, 0.8))
                kill()
                killed.append(time.monotonic())
        thread = threading.Thread(target=killer)
        thread.start()
        names = []
        try:
            while thread.is_alive():
                names.append(self.start(slot_pod(self.name()), {"main": [(len(names) % len(self.cards), 1, 1)]})
                             ["metadata"]["name"])
                if len(names) % 8 == 0:
                    self.assert_limited(steady)
                time.sleep(0.5)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(len(killed), kills)
        self.carve.wait_agent()
        for name in names:
            self.wait_phase(name, ("Running", "Failed"), 120)
        again = self.start(slot_pod(self.name()), {"main": [(1, 1, 1)]})["metadata"]["name"]
        self.wait_ready(again)
        self.assert_right(again)
        self.assert_limited(steady)
        self.assertEqual(self.container_id(steady), before)
        return names

    def clean_up(self):
        self._clean()
        self.created.clear()
        self.assert_nothing_held()

    def test_every_pod_runs_when_the_agent_is_killed_at_random_moments(self):
        """Its keeper lives: every pod runs with its own slice, and none was refused."""
        names = self.started_under(KILLS, self.carve.crash_agent)
        refused = [name for name in names if self.phase(name) != "Running"]
        print(f"{KILLS} kills, {len(names)} pods, {len(refused)} refused ", end="", flush=True)
        self.assertEqual(refused, [], "".join(map(self.describe, refused)))
        for name in names:
            self.assert_right(name)
        self.clean_up()

    def test_running_pods_keep_their_slices_when_the_keeper_is_killed(self):
        """As when their container ends: Allocate fails while no process serves it, and such a pod is Failed permanently. A
        running pod has its own slice, and a pod that is created afterwards runs."""
        def kill():
            self.carve.kill_agent()
            self.carve.start_agent(wait=False)
        names, failed = self.started_under(KEEPER_KILLS, kill), 0
        for name in names:
            if self.phase(name) == "Failed":
                failed += 1
                self.assertEqual(self.kube.get("Pod", name)["status"].get("reason"), "UnexpectedAdmissionError",
                                 self.describe(name))
                continue
            self.assert_right(name)
        print(f"{KEEPER_KILLS} kills, {len(names)} pods, {failed} failed at admission ", end="", flush=True)
        self.clean_up()

    def test_after_a_reboot_pods_run_again_or_free_their_slices(self):
        """/run is empty, the boot id is another, no process survives: a pod runs again with its own slice, or is Failed
        (its controller re-creates it) and has no slice."""
        made = [self.start(slot_pod(self.name(), restartPolicy="Always"), {"main": [(card, 4, 5)]}) for card in (0, 1)]
        names = [one["metadata"]["name"] for one in made]
        for name in names:
            self.wait_ready(name)
        begun = time.monotonic()

        def boot(node):
            node.start_simulator(self.ring.build, self.ring.state.content["simulate"])
            self.carve.start_arbiter()
            self.carve.start_agent(wait=False)
        disaster.reboot(self.node, boot)
        wait_for("each runs again or has failed", 150, lambda: all(
            self.phase(name) == "Failed" or self.restarts_of(name) > 0 for name in names))
        running = [name for name in names if self.phase(name) != "Failed"]
        for name in running:
            self.wait_ready(name, 120)
            self.assert_right(name)
        print(f"{len(running)} of {len(names)} run again {time.monotonic() - begun:.1f} s after the reboot ", end="", flush=True)
        wait_for("slices only of the running pods", 60, lambda: len(self.carve.inspect()["slices"]) == len(running))
        self.carve.wait_agent()
        self.wait_slots()
        new = self.start(slot_pod(self.name()), {"main": [(0, 4, 5)]})["metadata"]["name"]
        self.wait_ready(new, 90)
        self.assert_right(new)

    # --- the disk ----------------------------------------------------------------------------------------------------

    def fraction_refused_for_the_disk(self):
        """Returns (its name, the number of pods started before it): the last page of the journal has room for some
        lines."""
        for started in range(16):
            name, made = self.fraction()
            wait_for("running, or an event that names the disk", 60, lambda n=name, m=made: self.phase(n) == "Running" or any(
                "journal" in text and "o space left" in text for text in self.messages(m)))
            if self.phase(name) != "Running":
                return name, started
        raise AssertionError("the full disk refuses nothing")

    def test_starts_are_refused_while_the_journals_disk_is_full(self):
        steady = self.start(slot_pod(self.name()), {"main": [(0, 4, 5)]})["metadata"]["name"]
        self.wait_ready(steady)
        before = self.container_id(steady)
        self.carve.kill_agent()
        try:
            with disaster.full_disk(self.node, "/var/lib/carve") as filler:
                self.carve.start_agent()
                name, started = self.fraction_refused_for_the_disk()
                self.assertEqual(self.phase(name), "Pending")
                self.assertEqual(len(self.carve.inspect()["slices"]), 1 + started)      # no slice is lost
                # By slots: a refusal at Allocate would be final, so the start is refused each time.
                slot = self.start(slot_pod(self.name()), {"main": [(1, 2, 5)]})["metadata"]["name"]
                found = self.kube.get("Pod", slot)
                wait_for("the kubelet's event that names the disk", 60, lambda: any(
                    "o space left" in message for _, _, message in self.kube.events_of(found)))
                self.assertEqual(self.phase(slot), "Pending", self.describe(slot))
                filler.unlink()
                self.wait_ready(name, 90)                                   # without intervention
                self.wait_ready(slot, 120)
                self.assert_right(slot)
            self.assertEqual(self.container_id(steady), before)
            self._clean()
            self.created.clear()
            self.assert_nothing_held()
        finally:
            self.carve.kill_agent()
            self.node.run(["sh", "-c", "umount /var/lib/carve; rm -rf /var/lib/carve/journal.d; "
                           "cp -a /var/lib/ring-full/journal.d /var/lib/carve/; umount /var/lib/ring-full"])
            self.carve.start_agent()

    # --- the token ---------------------------------------------------------------------------------------------------

    def expired(self, token):
        """The same token, signed with the same key, that expired an hour ago."""
        def packed(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=")
        head, claims, _ = token.split(".")
        content = json.loads(base64.urlsafe_b64decode(claims + "=="))
        content.update(exp=int(time.time()) - 3600, iat=int(time.time()) - 7200, nbf=int(time.time()) - 7200)
        signed = head.encode() + b"." + packed(json.dumps(content, separators=(",", ":")).encode())
        key = self.ring.certificates.file("service-account.key")
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", key], input=signed, check=True,
                                   capture_output=True).stdout
        return (signed + b"." + packed(signature)).decode()

    def test_an_expired_token_is_reported_and_starts_continue_with_a_new_one(self):
        steady, _ = self.fraction()
        self.wait_ready(steady)
        before = self.container_id(steady)
        path = self.node.folder / "agent-credentials" / "token"
        good = path.read_text()
        unfinished = path.with_name("token.unfinished")
        unfinished.write_text(self.expired(good))
        unfinished.rename(path)
        try:
            # The agent reads its token again. A kept connection does not help it: every request carries a token.
            def refused():
                name, made = self.fraction()
                wait_for("prepared or refused", 60, lambda: self.phase(name) == "Running" or self.messages(made)[1:])
                return [m for m in self.messages(made) if "nauthorized" in m] and name
            name = wait_for("an event that names the refused token", 120, refused, every=3)
            slot = self.start(slot_pod(self.name()), {"main": [(1, 2, 5)]})["metadata"]["name"]
            self.assertEqual(self.container_id(steady), before)
        finally:
            unfinished.write_text(good)
            unfinished.rename(path)
        self.wait_ready(name, 120)
        self.wait_ready(slot, 120)
        self.assert_right(slot)
        self.assertEqual(self.container_id(steady), before)


if __name__ == "__main__":
    main()
