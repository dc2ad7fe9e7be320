"""The device plugin: records on pods, late binding in PreStartContainer, on the real kubelet and containerd.

The test binds the pods itself (ring/binder.py). The checker compares what a program sees inside each container with
the pod's record.
"""
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import binder  # noqa: E402
from ring.slot_testing import GIB, SlotTest, container, slot_pod  # noqa: E402
from ring.testing import in_soak, main, wait_for  # noqa: E402


class Slots(SlotTest):
    def test_slow_cases(self):
        """Run concurrently, each on its own card, because each takes long: the agent waits up to 20 s for a record, and
        the kubelet retries only later."""
        self.concurrently(self.an_init_container_needs_no_room_next_to_later_containers,
                          self.a_container_restart_keeps_the_slice, self.without_a_record_nothing_starts,
                          self.a_record_may_be_fifteen_seconds_late, self.a_record_of_another_uid_is_refused,
                          self.a_record_over_the_card_is_refused_with_numbers)

    # --- record early ----------------------------------------------------------------------------------------------

    def test_a_pod_gets_its_slice(self):
        made = self.start(slot_pod(self.name()), {"main": [(0, 4, 30)]})
        self.wait_ready(made["metadata"]["name"])
        self.assert_right(made["metadata"]["name"])

    def test_several_containers_and_cards(self):
        both = slot_pod(self.name(), [container("one", cards=2), container("two")])
        made = self.start(both, {"one": [(0, 2, 10), (1, 3, 20)], "two": [(1, 5, 30)]})
        self.wait_ready(made["metadata"]["name"])
        self.assert_right(made["metadata"]["name"], ("one", "two"))

    def test_init_sidecar_and_main_containers_get_their_slices(self):
        look = ["sh", "-c", "ring-look"]
        whole = slot_pod(self.name(), [container("main")], init=[
            container("first", look), container("second", look), container("side", restartPolicy="Always")])
        made = self.start(whole, {"first": [(0, 1, 10)], "second": [(0, 2, 10)], "side": [(1, 3, 10)],
                                  "main": [(1, 4, 10)]}, init=("first", "second"))
        name = made["metadata"]["name"]
        self.wait_ready(name)
        self.assert_right(name)
        for part, card, size in (("first", 0, 1), ("second", 0, 2), ("side", 1, 3)):
            seen = self.look(name, part)["cuda"]["cards"]
            self.assertEqual([(c["uuid"], c["memory"]) for c in seen], [(self.cards[card], size * GIB)], part)

    def an_init_container_needs_no_room_next_to_later_containers(self):
        """Each container takes more than half of the card. A pod holds the larger of two amounts: that of its init
        containers, and that of all other containers."""
        whole = slot_pod(self.name(), [container("main")], init=[container("first", ["sh", "-c", "ring-look"])])
        name = self.start(whole, {"first": [(7, 80, 60)], "main": [(7, 76, 70)]}, init=("first",))["metadata"]["name"]
        self.wait_ready(name)
        self.assert_right(name)
        card, = [one for one in self.carve.inspect()["cards"] if one["uuid"] == self.cards[7]]
        self.assertEqual(card["set_aside_bytes"], 80 * GIB)
        neighbour = self.start(slot_pod(self.name()), {"main": [(7, 50, 30)]})["metadata"]["name"]
        self.wait_ready(neighbour)
        self.assert_right(neighbour)
        over = self.start(slot_pod(self.name()), {"main": [(7, 12, 0)]})
        wait_for("a warning that names the card", 60, lambda: [w for w in self.warnings(over) if self.cards[7] in w])
        self.assertEqual(self.phase(over["metadata"]["name"]), "Pending")

    def test_a_dialects_variables_are_in_the_container(self):
        """They override the pod's own variables, because the runtime sets the agent's variables last."""
        mine = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "ALIYUN_COM_GPU_MEM_DEV", "value": "1"}]
        made = self.create(slot_pod(self.name(), [container("main", env=mine), container("side")]))
        text = self.record(made, {"main": [(1, 3, 0)], "side": [(1, 2, 0)]})
        text = text.replace('"native"', '"gpushare"').replace('"burst"', '"besteffort"')
        binder.bind(self.kube, made, "n1", text)
        name = made["metadata"]["name"]
        self.wait_ready(name)
        for part, own in (("main", "3"), ("side", "2")):
            lines = self.ring.kubectl("exec", name, "-c", part, "--", "env").stdout.splitlines()
            seen = dict(line.split("=", 1) for line in lines if "=" in line)
            whole = self.carve.truth("cards")["cards"][1]["total_bytes"] // GIB
            # The driver reports some hundred MiB less than the card has.
            self.assertIn(seen.pop("ALIYUN_COM_GPU_MEM_DEV"), (str(whole), str(whole - 1)), part)
            self.assertEqual({key: value for key, value in seen.items()
                              if key.startswith("ALIYUN_COM") or key == "NVIDIA_VISIBLE_DEVICES"}, {
                "NVIDIA_VISIBLE_DEVICES": "void", "ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "5",
                "ALIYUN_COM_GPU_MEM_CONTAINER": own, "ALIYUN_COM_GPU_VISIBLE_DEVICES": self.cards[1]}, part)

    def a_container_restart_keeps_the_slice(self):
        again = slot_pod(self.name(), [container("main", ["sh", "-c", "ring-look; sleep 1; exit 1"])],
                         restartPolicy="Always")
        name = self.start(again, {"main": [(3, 4, 30)]})["metadata"]["name"]
        wait_for("two restarts", 90, lambda: (self.kube.get("Pod", name)["status"].get("containerStatuses") or
                                              [{"restartCount": 0}])[0]["restartCount"] >= 2)
        look = wait_for("the look of the previous container", 60, lambda: self.look_before(name), 0.5)
        self.assertEqual(look["cuda"]["cards"], [{"uuid": self.cards[3], "memory": 4 * GIB}])

    def test_a_pod_of_the_same_name_gets_its_own_slice(self):
        name = self.name()
        self.start(slot_pod(name), {"main": [(0, 4, 30)]})
        self.wait_ready(name)
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 30, lambda: self.kube.get("Pod", name) is None)
        self.created.clear()
        self.start(slot_pod(name), {"main": [(1, 7, 20)]})
        self.wait_ready(name)
        self.assert_right(name)

    def test_a_pod_deleted_while_starting_frees_everything(self):
        for pause in (0.0, 0.2, 0.5, 1.0, 1.5):
            made = self.start(slot_pod(self.name()), {"main": [(0, 60, 50)]})
            time.sleep(pause)
            self.kube.delete("Pod", made["metadata"]["name"], grace=0)
        wait_for("the agent has no slices", 30, lambda: not self.carve.inspect()["slices"])
        self.assertEqual(self.carve.living(), [])

    # --- record late, missing, wrong ---------------------------------------------------------------------------------

    def a_record_may_be_fifteen_seconds_late(self):
        made = self.create(slot_pod(self.name()))
        binder.bind(self.kube, made, "n1", None)
        time.sleep(15)
        binder.write_later(self.kube, made, self.record(made, {"main": [(4, 4, 30)]}))
        self.wait_ready(made["metadata"]["name"], 60)
        self.assert_right(made["metadata"]["name"])

    def without_a_record_nothing_starts(self):
        made = self.create(slot_pod(self.name()))
        binder.bind(self.kube, made, "n1", None)
        wait_for("a warning that names the record", 60, lambda: [w for w in self.warnings(made) if "record" in w])
        self.assertEqual(self.phase(made["metadata"]["name"]), "Pending")

    def a_record_of_another_uid_is_refused(self):
        made = self.create(slot_pod(self.name()))
        other = "00000000-0000-4000-8000-000000000001"
        binder.bind(self.kube, made, "n1", self.record(made, {"main": [(5, 4, 30)]}, uid=other))
        wait_for("a warning that names the UID", 60, lambda: [w for w in self.warnings(made) if other in w or "UID" in w])
        self.assertEqual(self.phase(made["metadata"]["name"]), "Pending")

    def a_record_over_the_card_is_refused_with_numbers(self):
        first = self.start(slot_pod(self.name()), {"main": [(6, 100, 60)]})
        self.wait_ready(first["metadata"]["name"])
        second = self.start(slot_pod(self.name()), {"main": [(6, 4, 60)]})
        wait_for("a warning that names the card", 60,
                 lambda: [w for w in self.warnings(second) if self.cards[6] in w and "60" in w])
        self.assertEqual(self.phase(second["metadata"]["name"]), "Pending")
        self.kube.delete("Pod", first["metadata"]["name"], grace=0)
        self.wait_ready(second["metadata"]["name"], 90)

    # --- pods without a scheduler ------------------------------------------------------------------------------------

    def test_a_pod_with_node_name_waits_for_its_record(self):
        made = self.create(slot_pod(self.name(), nodeName="n1"))
        binder.write_later(self.kube, made, self.record(made, {"main": [(0, 2, 10)]}))
        self.wait_ready(made["metadata"]["name"])
        self.assert_right(made["metadata"]["name"])

    def test_a_static_pod_gets_its_record_through_the_mirror_pod(self):
        node, name = self.ring.node(1), self.name("static")
        static = slot_pod(name)
        del static["spec"]["schedulerName"]
        path = node.folder / "manifests" / f"{name}.json"
        path.write_text(json.dumps(static))
        self.addCleanup(lambda: wait_for("static pod gone", 60, lambda: self.kube.get("Pod", name + "-n1") is None))
        self.addCleanup(path.unlink)
        mirror = wait_for("the mirror pod", 60, lambda: self.kube.get("Pod", name + "-n1"))
        # The record names the mirror pod's UID, which the API server knows, not the kubelet's own.
        binder.write_later(self.kube, mirror, self.record(mirror, {"main": [(1, 2, 10)]}))
        self.wait_ready(name + "-n1")
        self.assertEqual(self.look(name + "-n1")["cuda"]["cards"], [{"uuid": self.cards[1], "memory": 2 * GIB}])

    # --- many --------------------------------------------------------------------------------------------------------

    @in_soak
    def test_forty_concurrent_pods_get_their_own_slices_while_other_pods_start(self):
        made = [self.create(slot_pod(self.name())) for _ in range(40)]
        threads = [threading.Thread(target=binder.bind, args=(self.ring.kube(), one, "n1", self.record(
            one, {"main": [(i % len(self.cards), 1 + i // 2 * 0.25, 2)]}))) for i, one in enumerate(made)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for one in made:
            self.wait_ready(one["metadata"]["name"], 120)
        for one in made:
            self.assert_right(one["metadata"]["name"])


if __name__ == "__main__":
    main()
