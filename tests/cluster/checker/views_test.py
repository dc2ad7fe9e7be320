"""views.py finds faults planted in each view, and reports nothing when nothing is wrong; read_node.py decodes the
formats."""
import base64
import copy
import json
import socket
import struct
import tempfile
import threading
import unittest
from pathlib import Path

import check
import read_node
import views

A, B = "GPU-00000000-0000-4000-8000-00000000000a", "GPU-00000000-0000-4000-8000-00000000000b"
GIB = 1 << 30
PATHS = {A: "/dev/nvidia0", B: "/dev/nvidia1"}


def record(uid, cards, epoch=3):
    return json.dumps({"v": 1, "epoch": epoch, "owner": {"kind": "pod", "uid": uid}, "parts": [
        {"part": "main", "share": "burst", "priority": "standard", "dialect": "native",
         "cards": [{"uuid": uuid, "bytes": size, "compute": cores} for uuid, size, cores in cards]}]})


def pod(name, uid, cards):
    return {"metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": {check.RECORD: record(uid, cards)}},
            "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]}}


def gpu(uuid, holders):
    used = sum(size for _, size, _ in holders)
    cores = sum(compute for _, _, compute in holders)
    return {"metadata": {"name": "n1." + uuid.lower()},
            "spec": {"nodeName": "n1", "uuid": uuid, "path": PATHS[uuid], "memory": 16 * GIB},
            "status": {"capacity": {"m": str(16 * GIB), "c": "100"}, "free": {"m": str(16 * GIB - used), "c": str(100 - cores)},
                       "holders": [{"owner": {"kind": "pod", "uid": uid}, "part": "main", "memory": size, "cores": compute}
                                   for uid, size, compute in holders]}}


def ledger(held):
    return {"nodes": [{"name": "n1", "cards": [
        {"uuid": uuid, "memory_bytes": {"total": 16 * GIB, "granted": sum(h[1] for h in holders)},
         "cores": {"total": 100, "granted": sum(h[2] for h in holders)},
         "holders": [{"uid": uid, "part": "main", "memory_bytes": size, "cores": cores} for uid, size, cores in holders]}
        for uuid, holders in held.items()]}]}


def cluster():
    """p1 has 4 GiB of A; p2 has 8 GiB of A and 2 GiB of B."""
    given = {"u1": [(A, 4 * GIB, 30)], "u2": [(A, 8 * GIB, 40), (B, 2 * GIB, 10)]}
    held = {A: [("u1", 4 * GIB, 30), ("u2", 8 * GIB, 40)], B: [("u2", 2 * GIB, 10)]}
    name = read_node.KIND + "=s-1-{}"
    return {
        "pods": [pod("p1", "u1", given["u1"]), pod("p2", "u2", given["u2"])],
        "gpus": [gpu(A, held[A]), gpu(B, held[B])], "ledgers": {"c1": ledger(held)}, "physical": {A: 16 * GIB, B: 16 * GIB},
        "room": {"c1": {"n1": (True, False)}},
        "nodes": {"n1": {
            "resources": {("default", "p1", "main"): ["slot-1"], ("default", "p2", "main"): ["slot-2", "slot-3"]},
            "checkpoint": {("u1", "main"): (["slot-1"], [name.format(1)]), ("u2", "main"): (["slot-2", "slot-3"], [name.format(2)])},
            "devices": {name.format(1): ["/dev/nvidia0", "/dev/nvidiactl"], name.format(2): ["/dev/nvidia0", "/dev/nvidia1"]},
            "journal": {uid: record(uid, cards, epoch=0) for uid, cards in given.items()},
            "notes": {"s-1-1": "keep=1 uid=0 v=1 owner=pod/u1 part=main pods=u1 env=A=%20;B=1 name=x",
                      "s-1-2": "keep=1 uid=0 owner=pod/u2 part=main pods=u2 name=x"},
            "inspect": {"slices": [{"name": "default/p1/main", "cards": [{"card": A, "limit_bytes": 4 * GIB, "compute": 30}]},
                                   {"name": "default/p2/main", "cards": [
                                       {"card": A, "limit_bytes": 8 * GIB, "compute": 40},
                                       {"card": B, "limit_bytes": 2 * GIB, "compute": 10}]}]}, "left": []}}}


class Views(unittest.TestCase):
    def setUp(self):
        self.cluster = cluster()
        self.node = self.cluster["nodes"]["n1"]

    def finds(self, *words, count=None):
        found = views.check_all(self.cluster)
        for word in words:
            self.assertTrue(any(word in sentence for sentence in found), f"{word!r} in {found}")
        if count is not None:
            self.assertEqual(len(found), count, found)
        self.assertTrue(found)

    def test_reports_nothing_when_nothing_is_wrong(self):
        self.assertEqual(views.check_all(self.cluster), [])

    def test_finds_an_over_committed_card(self):
        more = pod("p3", "u3", [(A, 5 * GIB, 1)])
        self.cluster["pods"].append(more)
        self.finds(f"{A}: {17 * GIB} bytes")

    def test_finds_a_pod_without_a_record(self):
        del self.cluster["pods"][0]["metadata"]["annotations"][check.RECORD]
        self.finds("p1 is on a node and has no record")

    def test_finds_the_record_of_a_pod_of_the_same_name(self):
        self.cluster["pods"][0]["metadata"]["uid"] = "u9"
        self.finds("has a record for UID u1, its own is u9")

    def test_finds_differences_in_the_gpu_objects(self):
        gone = self.cluster["gpus"][0]["status"]["holders"].pop(0)
        self.finds("the GPU objects of n1 does not have u1", count=1)
        self.cluster["gpus"][0]["status"]["holders"] += [gone, {**gone, "owner": {"uid": "u7"}}]
        self.finds("the GPU objects of n1 has u7", count=1)
        self.cluster["gpus"][0]["status"]["holders"][-1] = {**gone, "memory": 1}
        self.finds("u1, main, " + A + ", 1, 30, which no living pod's record has", count=1)

    def test_finds_a_holder_that_is_still_ending(self):
        self.cluster["gpus"][0]["status"]["holders"][0]["ending"] = True
        self.finds("u1 is still ending", count=1)

    def test_finds_differences_in_the_ledger_of_control(self):
        card = self.cluster["ledgers"]["c1"]["nodes"][0]["cards"][1]
        holder = card["holders"].pop()
        self.finds("the ledger of c1, node n1, does not have u2", count=1)
        card["holders"] += [holder, {**holder, "uid": "leaked"}]
        self.finds("has leaked", count=1)
        card["holders"].pop()
        card["cores"]["granted"] = 101
        self.finds("granted cores", count=1)
        card["cores"]["granted"] = 100
        self.cluster["ledgers"]["c1"]["nodes"] = []
        self.finds("does not know node n1", count=1)

    def test_finds_a_replica_that_would_place_too_little_or_too_much(self):
        self.assertEqual(views.room_of(self.cluster["pods"], self.cluster["gpus"]), {"n1": 14 * 1024})
        self.cluster["room"]["c1"]["n1"] = (False, False)           # it counts something that no pod has
        self.finds(f"c1 has no room for {14 * 1024} MiB on n1", count=1)
        self.cluster["room"]["c1"]["n1"] = (True, True)             # it would give something twice
        self.finds(f"c1 has room for {14 * 1024 + 1} MiB on n1", count=1)
        self.cluster["room"] = {}
        self.finds("c1 has no room", count=1)

    def test_a_card_used_alone_has_no_room_left(self):
        text = self.cluster["pods"][1]["metadata"]["annotations"]
        text[check.RECORD] = text[check.RECORD].replace('"part": "main"', '"part": "main", "whole": true')
        self.assertEqual(views.room_of(self.cluster["pods"], self.cluster["gpus"]), {"n1": 0})

    def test_finds_differences_at_the_kubelet(self):
        here = ("default", "p2", "main")
        self.node["resources"][here] = ["slot-2"]
        self.finds("1 slots, its record 2 cards", "the kubelet's file gives", count=2)
        self.node["resources"][here] = ["slot-1", "slot-3"]
        self.node["checkpoint"][("u2", "main")] = (["slot-1", "slot-3"], self.node["checkpoint"][("u2", "main")][1])
        self.finds("slot-1 is held by default/p1/main and default/p2/main", count=1)

    def test_finds_slots_of_a_pod_that_is_gone(self):
        self.node["resources"][("default", "gone", "main")] = ["slot-9"]
        self.finds("gone/main, which runs without a record", count=1)

    def test_finds_the_devices_of_another_pod(self):
        one, two = ("u1", "main"), ("u2", "main")
        names = self.node["checkpoint"]
        names[one], names[two] = (names[one][0], names[two][1]), (names[two][0], names[one][1])
        self.finds("opens ['/dev/nvidia0', '/dev/nvidia1']; p1/main", "the journal does not say", count=4)

    def test_finds_a_surplus_device_and_a_missing_device(self):
        name = read_node.KIND + "=s-1-9"
        self.node["devices"][name] = ["/dev/nvidia0"]
        self.finds(f"{name} belongs to no living container", count=1)
        del self.node["devices"][name], self.node["devices"][read_node.KIND + "=s-1-1"]
        self.finds("which does not exist", count=1)

    def test_finds_differences_in_the_journal(self):
        kept = self.node["journal"].pop("u1")
        self.finds("the journal has no record of pod u1", count=1)
        self.node["journal"].update(u1=kept.replace(str(4 * GIB), str(5 * GIB)))
        self.finds("the journal's record of u1 is", count=1)
        self.node["journal"].update(u1=kept, u8=kept)
        self.finds("the journal has a record of u8, which is no living pod's", count=1)

    def test_the_journal_may_order_parts_by_container_starts(self):
        pods = [pod("p1", "u1", [(A, 4 * GIB, 30)])]
        two = json.loads(record("u1", [(A, 4 * GIB, 30)]))
        two["parts"].append({**two["parts"][0], "part": "main-1"})
        pods[0]["metadata"]["annotations"][check.RECORD] = json.dumps(two)
        self.node["journal"] = {"u1": json.dumps({**two, "parts": two["parts"][::-1]})}
        found = views.check_agent("n1", self.node, pods)
        self.assertFalse([line for line in found if "journal" in line], found)

    def test_finds_differences_in_carve_inspect(self):
        self.node["inspect"]["slices"][0]["cards"][0]["limit_bytes"] += 1
        self.finds("carve inspect does not have default/p1/main", count=2)

    def test_an_ended_pod_and_a_waiting_pod_hold_nothing(self):
        ended = pod("p3", "u3", [(A, 16 * GIB, 100)])
        ended["status"]["phase"] = "Succeeded"
        waiting = pod("p4", "u4", [])
        waiting["spec"].pop("nodeName")
        self.cluster["pods"] += [ended, waiting]
        self.assertEqual(views.check_all(self.cluster), [])


class Nothing(unittest.TestCase):
    def setUp(self):
        self.cluster = {"pods": [], "gpus": [gpu(A, [])], "ledgers": {"c1": ledger({A: []})}, "physical": {A: 16 * GIB},
                        "room": {"c1": {"n1": (True, False)}}, "nodes": {
            "n1": {"resources": {}, "checkpoint": {}, "devices": {}, "journal": {}, "notes": {}, "left": [],
                   "inspect": {"slices": []}}}}

    def test_reports_nothing_when_nothing_is_left(self):
        self.assertEqual(views.check_nothing(self.cluster), [])

    def test_reports_every_view_of_a_cluster_in_use(self):
        text = "\n".join(views.check_nothing(cluster()))
        for word in ("the GPU objects of n1 has u1", "the ledger of c1", "PodResources gives slots", "belongs to no living",
                     "the journal has a record", "carve inspect has", "is held", "has free", "the journal notes"):
            self.assertIn(word, text)

    def test_finds_each_leftover(self):
        for key, value, word in (("left", ["process 7 (ring-look) with a card"], "process 7"),
                                 ("notes", {"s-1-1": "keep=1"}, "the journal notes s-1-1"),
                                 ("devices", {read_node.KIND + "=s-1-1": []}, "belongs to no living container"),
                                 ("resources", {("d", "p", "c"): ["slot-1"]}, "which runs without a record"),
                                 ("journal", {"u": record("u", [])}, "no living pod's")):
            self.setUp()
            self.cluster["nodes"]["n1"][key] = value
            found = views.check_nothing(self.cluster)
            self.assertEqual(len(found), 1, found)
            self.assertIn(word, found[0])

    def test_finds_room_that_was_not_freed(self):
        self.cluster["gpus"][0]["status"]["free"]["c"] = "99"
        self.assertIn("has free", views.check_nothing(self.cluster)[0])


def message(*parts):
    """A protobuf message of (number, bytes) with lengths below 128."""
    return b"".join(bytes([number << 3 | 2, len(data)]) + data for number, data in parts)


class Reading(unittest.TestCase):
    def test_reads_pod_resources_over_the_kubelets_socket(self):
        """A server of a few frames: settings, a ping that needs an answer, the answer in two pieces, trailers."""
        device = [message((1, read_node.SLOT.encode()), (2, slot)) for slot in (b"slot-2", b"slot-1")]
        other = message((1, b"else.example/x"), (2, b"x-1"))
        answer = message((1, message((1, b"p"), (2, b"ns"), (3, message((1, b"main"), (2, device[0]), (2, device[1]), (2, other))),
                                     (3, message((1, b"none")))))) + bytes([5 << 3, 1])
        body = b"\0" + struct.pack(">I", len(answer)) + answer
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/socket"
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                asked = []

                def serve():
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(read_node._frame(4, 0, 0) + read_node._frame(6, 0, 0, b"12345678") +
                                           read_node._frame(1, 4, 1, b"\x88") + read_node._frame(0, 0, 1, body[:9]) +
                                           read_node._frame(0, 8, 1, b"\2" + body[9:] + b"\0\0") + read_node._frame(1, 5, 1))
                        while more := connection.recv(4096):
                            asked.append(more)
                thread = threading.Thread(target=serve)
                thread.start()
                self.assertEqual(read_node.pod_resources(path), {("ns", "p", "main"): ["slot-1", "slot-2"]})
                thread.join()
            self.assertIn(b"/v1.PodResourcesLister/List", b"".join(asked))
            self.assertIn(read_node._frame(6, 1, 0, b"12345678"), b"".join(asked))

    def test_reads_the_checkpoint(self):
        allocated = message((1, message((1, b"k"), (2, b"v"))), (5, message((1, b"carve.elasticgpu.io/slice=s-1"))))
        text = json.dumps({"Data": {"PodDeviceEntries": [
            {"PodUID": "u", "ContainerName": "c", "ResourceName": read_node.SLOT, "DeviceIDs": {"-1": ["b", "a"]},
             "AllocResp": base64.b64encode(allocated).decode()},
            {"PodUID": "u", "ContainerName": "c", "ResourceName": "else", "DeviceIDs": {"-1": ["z"]}, "AllocResp": ""}]}})
        self.assertEqual(read_node.checkpoint(text), {("u", "c"): (["a", "b"], ["carve.elasticgpu.io/slice=s-1"])})

    def journal(self, *events, number=5):
        text = f"carve-journal 1 {number} 00000000\n"
        for at, event in enumerate(events, number):
            rest = f"{len(event) + len(str(at)) + 1} {at} {event}"
            text += f"{read_node._crc32c(rest.encode()):08x} {rest}\n"
        return text

    def test_reads_the_journal(self):
        self.assertEqual(read_node._crc32c(b"123456789"), 0xe3069283)       # the published check value
        text = self.journal(f"put {record('u1', [])}\tnote s-1 a b", f"put {record('u2', [])}", "drop pod u1\tnote s-1",
                            "count device 7\tnote s-2 x")
        self.assertEqual(read_node.journal(text), ({"u2": record("u2", [])}, {"s-2": "x"}))
        self.assertEqual(read_node.journal(text + "torn"), read_node.journal(text))
        with self.assertRaises(ValueError):
            read_node.journal(text.replace("count", "kount"))
        lines = text.splitlines(True)
        with self.assertRaises(ValueError):
            read_node.journal("".join(lines[:2] + lines[3:]))

    def test_reads_notes(self):
        words = {"keep": "1", "uid": "0", "owner": "pod/u1", "part": "main", "pods": ["u1", "u2"], "name": "d/p/a b=c "}
        rest = "owner=pod/u1 part=main pods=u1,u2 env=A=%20%3B%25%C3%A9=,;B= name=d/p/a b=c "
        self.assertEqual(read_node.note("keep=1 uid=0 " + rest), {**words, "env": {"A": "%20%3B%25%C3%A9=,", "B": ""}})
        self.assertEqual(read_node.note("keep=1 uid=0 v=1 " + rest), {**words, "v": "1", "env": {"A": " ;%é=,", "B": ""}})
        self.assertEqual(read_node.note("keep=0 uid=7 v=1 name="),
                         {"keep": "0", "uid": "7", "v": "1", "pods": [], "env": {}, "name": ""})
        with self.assertRaises(ValueError):
            read_node.note("keep=1 uid=0 v=2 name=x")

    def test_reads_the_notes_of_the_golden_journals(self):
        folder = Path(__file__).parents[2] / "fixtures/journal/v1"
        notes = read_node.journal((folder / "three_owners.txt").read_text())[1]
        self.assertEqual(read_node.owners(notes), {"s-1-0": ("c-1", "gpu"),
                                                   "s-1-1": ("3b1f5c1e-7a55-4d2e-9d6e-4f8f1d1f0a11", "train")})
        self.assertEqual(read_node.note(notes["s-1-1"])["env"]["ESCAPED"], " ;%\né=,")
        notes = read_node.journal((folder / "unversioned_notes.txt").read_text())[1]
        self.assertEqual(sorted(read_node.owners(notes)), ["s-08492c-0", "s-08492c-3"])

    def test_reads_cdi_files(self):
        with tempfile.TemporaryDirectory() as folder:
            spec = {"kind": read_node.KIND, "devices": [{"name": "s-1", "containerEdits": {"deviceNodes": [{"path": "/dev/b"}]}}],
                    "containerEdits": {"deviceNodes": [{"path": "/dev/a"}]}}
            (Path(folder) / "one.json").write_text(json.dumps(spec))
            (Path(folder) / "two.json").write_text(json.dumps({**copy.deepcopy(spec), "kind": "else/x"}))
            self.assertEqual(read_node.devices(folder), {read_node.KIND + "=s-1": ["/dev/a", "/dev/b"]})


if __name__ == "__main__":
    unittest.main()
