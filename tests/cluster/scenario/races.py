"""The identity races on the real kubelet and containerd: does each container get its own slots while everything
changes?

The truth is what a container sees from inside, against the record that the test wrote on that pod (by UID). Also while
containerd is stopped at random moments, so that it notices a device's file late. RA-11, a hundred concurrent pods, is
many_pods.py.
"""
import json
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import binder, disaster  # noqa: E402
from ring.slot_testing import GIB, SlotTest, check, container, slot_pod  # noqa: E402
from ring.testing import in_soak, main, wait_for  # noqa: E402

SEED = random.SystemRandom().randrange(1 << 32)


class Races(SlotTest):
    def setUp(self):
        super().setUp()
        self.unresolved_before = self.unresolved_names()

    def tearDown(self):
        print(f"unresolved CDI names: {self.unresolved_names() - self.unresolved_before} ", end="", flush=True)

    def bind_all(self, made, parts):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: binder.bind(self.kube, made[i], "n1", self.record(made[i], parts[i])), range(len(made))))

    def all_right(self, made, seconds=240):
        names = [one["metadata"]["name"] for one in made]

        def ready():
            pods = {one["metadata"]["name"]: one["status"] for one in self.kube.list("Pod")}
            failed = [name for name in names if pods[name].get("phase") == "Failed"]
            self.assertEqual(failed, [], failed and self.describe(failed[0]))
            return all(pods[name].get("phase") == "Running" for name in names)
        wait_for(f"{len(names)} pods run", seconds, ready, every=0.5)
        with ThreadPoolExecutor(8) as pool:
            wrong = [text for found in pool.map(self.wrong, names) for text in found]
        self.assertEqual(wrong, [])

    def stuttering_containerd(self, dice):
        """Stops and continues containerd at random moments until the returned function is called."""
        stop = threading.Event()
        pid = self.node.pid("containerd")

        def stutter():
            while not stop.is_set():
                with disaster.stopped(pid):
                    time.sleep(dice.uniform(0.05, 0.6))
                time.sleep(dice.uniform(0.02, 0.3))
        thread = threading.Thread(target=stutter)
        thread.start()

        def end():
            stop.set()
            thread.join()
        self.addCleanup(end)
        return end

    def equal_pods(self, count, after=lambda: None):
        """Pods that differ only in their records, bound in another order than they were created. Those on one card
        differ in size, so that a wrong slice is noticed there, too."""
        made = [self.create(slot_pod(self.name())) for _ in range(count)]
        parts = [{"main": [((i * 7) % len(self.cards), 1 + i % 5, 1 + i % 7)]} for i in range(count)]
        order = list(range(count))[::-1]
        after()
        self.bind_all([made[i] for i in order], [parts[i] for i in order])
        self.all_right(made)
        pods = [one for one in self.kube.list("Pod") if one["metadata"]["uid"] in {m["metadata"]["uid"] for m in made}]
        granted = check.granted_by_records(pods)
        self.assertEqual(len(granted), count)
        self.assert_no_findings(check.check_pages(granted, *self.carve.granted()))
        return made

    @in_soak
    def test_ra1_equal_pods_bound_in_another_order_get_their_own_slices(self):
        self.equal_pods(8)

    def test_ra1_equal_pods_get_their_own_slices_while_containerd_stutters(self):
        print(f"seed {SEED} ", end="", flush=True)
        end = self.stuttering_containerd(random.Random(SEED))
        self.equal_pods(16)
        end()

    def test_ra5_an_unplaced_pod_next_to_one_of_the_same_size_waits_for_its_record(self):
        foreign = self.create(slot_pod(self.name(), nodeName="n1"))
        placed = self.start(slot_pod(self.name()), {"main": [(3, 2, 10)]})
        self.wait_ready(placed["metadata"]["name"])
        self.assert_right(placed["metadata"]["name"])
        wait_for("a warning that names the record", 60, lambda: [w for w in self.warnings(foreign) if "has no record" in w])
        self.assertTrue([w for w in self.warnings(foreign) if "has no record" in w and "check that `carve control` runs" in w])
        wait_for("the Node's condition", 15, lambda: self.node_condition("GPUStartsRefused")[0])
        self.assertIn(f"pod default/{foreign['metadata']['name']}, container main",
                      self.node_condition("GPUStartsRefused")[1])
        self.assertEqual(self.phase(foreign["metadata"]["name"]), "Pending")
        binder.write_later(self.kube, foreign, self.record(foreign, {"main": [(4, 2, 10)]}))
        self.wait_ready(foreign["metadata"]["name"], 90)
        self.assert_right(foreign["metadata"]["name"])
        wait_for("the condition is cleared", 15, lambda: not self.node_condition("GPUStartsRefused")[0])

    def test_ra9_pods_get_their_slices_when_the_agent_is_killed_between_allocate_and_start(self):
        made = []
        checkpoint = self.node.folder / "var-lib/kubelet/device-plugins/kubelet_internal_checkpoint"

        def prepare():
            more = [self.create(slot_pod(self.name())) for _ in range(4)]
            made.extend(more)
            return more

        def begin(pods):
            self.bind_all(pods, [{"main": [(i, 2, 10)]} for i in range(4)])

        def all_allocated(pods):        # a pod admitted while no process serves slots is refused permanently
            known = checkpoint.read_text()
            return all(one["metadata"]["uid"] in known for one in pods)
        with disaster.runtime_stopped_amid(self.node, prepare, begin, all_allocated, self.all_right):
            print(f"try {len(made) // 4} ", end="", flush=True)     # and no sandbox can be created
            self.carve.kill_agent()
            self.carve.start_agent()
        self.all_right(made)

    def test_ra10_a_pod_of_the_same_name_with_the_old_record_waits_for_its_own(self):
        name = self.name()
        old = self.start(slot_pod(name), {"main": [(0, 4, 30)]})
        self.wait_ready(name)
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 30, lambda: self.kube.get("Pod", name) is None)
        self.created.clear()
        fresh = self.create(slot_pod(name))
        binder.bind(self.kube, fresh, "n1", self.record(old, {"main": [(0, 4, 30)]}))
        wait_for("a warning that names the UID", 60, lambda: [w for w in self.warnings(fresh) if old["metadata"]["uid"] in w])
        self.assertEqual(self.phase(name), "Pending")
        binder.write_later(self.kube, fresh, self.record(fresh, {"main": [(5, 7, 20)]}))
        self.wait_ready(name, 90)
        self.assert_right(name)

    def node_condition(self, kind):
        """(True or False, message) of a condition of the Node."""
        found = [one for one in self.kube.get("Node", "n1")["status"]["conditions"] if one["type"] == kind]
        return (found[0]["status"] == "True", found[0].get("message", "")) if found else (False, "")

    @in_soak
    def test_an_unresolved_cdi_name_is_counted_and_reported(self):
        """The device's file is removed while a container restarts, then restored."""
        name = self.start(slot_pod(self.name(), restartPolicy="Always"), {"main": [(6, 3, 10)]})["metadata"]["name"]
        self.wait_ready(name)
        (file,) = self.node.outside("/run/cdi").glob("carve-slice-*.json")
        text, before = file.read_bytes(), self.unresolved_names()
        file.unlink()
        try:
            container = self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"].rsplit("/", 1)[1]
            for pid in self.pids_of(container):
                os.kill(pid, signal.SIGKILL)
            wait_for("the Node's condition", 40, lambda: self.node_condition("GPUDevicesUnresolved")[0])
            said = self.node_condition("GPUDevicesUnresolved")[1]
            self.assertIn(f"default/{name}/main (1 seen", said)
            self.assertIn("cdi_spec_dirs", said)
            self.assertGreater(self.unresolved_names(), before)     # by the runtime's own log
            wait_for("the pod's warning", 10, lambda: [w for w in self.warnings(self.kube.get("Pod", name))
                                                 if "did not find the CDI device" in w])
        finally:
            unfinished = file.with_name(".unfinished")
            unfinished.write_bytes(text)
            unfinished.rename(file)
        wait_for("the container runs again", 60, lambda: self.restarts_of(name) > 0 and self.phase(name) == "Running")
        self.wait_ready(name)
        self.assert_right(name)
        wait_for("the condition is cleared", 30, lambda: not self.node_condition("GPUDevicesUnresolved")[0])


class Endings(SlotTest):
    """A slice is freed when its processes are gone and not before, regardless of the pod's state in Kubernetes."""

    def ends_with_its_last_process(self, made):
        """The pod's process is unreachable for signals; the pod is deleted from the API by force."""
        name = made["metadata"]["name"]
        self.wait_ready(name)
        main = self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"].rsplit("/", 1)[1]
        pids = self.pids_of(main)
        with disaster.unreachable(pids[0]):
            self.kube.delete("Pod", name, grace=0)
            wait_for("deleted at the API server", 30, lambda: self.kube.get("Pod", name) is None)
            time.sleep(4)
            slices = self.carve.inspect()["slices"]
            self.assertEqual([one["state"] for one in slices], ["ending"])
            self.assertTrue(Path(f"/proc/{pids[0]}").exists())
            self.carve.kill_agent()       # the next agent must know that the owner has ended
            self.carve.start_agent()
            time.sleep(2)
            self.assertEqual([one["state"] for one in self.carve.inspect()["slices"]], ["ending"])
        wait_for("its process is gone", 60, lambda: not Path(f"/proc/{pids[0]}").exists())
        wait_for("the pod's other processes are gone", 60, lambda: not self.pids_of(made["metadata"]["uid"]))
        begun = time.monotonic()
        self.assert_nothing_held(10)
        print(f"freed {time.monotonic() - begun:.1f} s after the last process ", end="", flush=True)

    def test_a_fraction_is_freed_after_a_process_that_cannot_be_killed(self):
        self.ends_with_its_last_process(self.start(slot_pod(self.name()), {"main": [(0, 4, 30)]}))

    def test_a_whole_card_is_freed_after_a_process_that_cannot_be_killed(self):
        made = self.create(slot_pod(self.name(), [container("main", ["sleep", "3600"])]))
        size = next(card["total_bytes"] for card in self.carve.truth("cards")["cards"] if card["uuid"] == self.cards[2])
        record = json.loads(self.record(made, {"main": [(2, size / GIB, 100)]}))
        record["parts"][0]["cards"][0]["bytes"] = size
        part = record["parts"][0]     # canonical order: the flags follow the name
        record["parts"][0] = {"part": part.pop("part"), "exclusive": True, "whole": True, **part}
        binder.bind(self.kube, made, "n1", json.dumps(record, separators=(",", ":")))
        self.ends_with_its_last_process(made)

    def test_a_slice_is_kept_while_its_process_ignores_sigterm(self):
        stubborn = slot_pod(self.name(), [container("main", ["sh", "-c", "trap '' TERM; ring-look; while :; do sleep 1; done"])],
                            terminationGracePeriodSeconds=6)
        made = self.start(stubborn, {"main": [(1, 4, 30)]})
        name = made["metadata"]["name"]
        self.wait_ready(name)
        self.kube.delete("Pod", name, grace=6)
        time.sleep(3)
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        wait_for("gone", 30, lambda: self.kube.get("Pod", name) is None)
        self.assert_nothing_held(2)


if __name__ == "__main__":
    main()
