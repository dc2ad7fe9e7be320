"""placed.py finds planted faults, and reports nothing when nothing is wrong."""
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import placed  # noqa: E402
from check import RECORD  # noqa: E402

GIB = 1 << 30
CONTROL, OTHER = "system:serviceaccount:carve-system:carve-control", "system:kube-scheduler"
NODES = [{"metadata": {"name": name}} for name in ("n1", "n2")]
GPUS = [{"spec": {"uuid": uuid, "nodeName": node, "memory": 80 * GIB}}
        for uuid, node in (("A", "n1"), ("B", "n1"), ("C", "n2"))]
WANTED = {"whole": [(80 * GIB, 100)], "part-1": [(8 * GIB, 10)], "part-2": [(8 * GIB, 10)]}


def pod(name, node, *cards):
    record = {"v": 1, "owner": {"kind": "pod", "uid": f"uid-{name}"}, "parts": [
        {"part": "main", "share": "burst",
         "cards": [{"uuid": uuid, "bytes": size, "compute": cores} for uuid, size, cores in cards]}]}
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}",
                         "annotations": {RECORD: json.dumps(record)}}, "spec": {"nodeName": node}}


class Places(unittest.TestCase):
    def setUp(self):
        self.pods = [pod("whole", "n1", ("A", 80 * GIB, 100)), pod("part-1", "n1", ("B", 8 * GIB, 10)),
                     pod("part-2", "n2", ("C", 8 * GIB, 10))]

    def found(self):
        return placed.check_places(self.pods, NODES, GPUS, WANTED)

    def assert_one(self, expected):
        self.assertEqual(len(self.found()), 1, self.found())
        self.assertIn(expected, self.found()[0])

    def test_reports_nothing_when_nothing_is_wrong(self):
        self.assertEqual(self.found(), [])

    def test_finds_a_pod_that_is_gone(self):
        del self.pods[0]
        self.assert_one("whole: is gone")

    def test_finds_a_pod_without_a_node(self):
        del self.pods[0]["spec"]["nodeName"]
        self.assert_one("whole: is on None, which does not exist")

    def test_finds_a_node_that_does_not_exist(self):
        self.pods[0]["spec"]["nodeName"] = "n3"
        self.assert_one("is on n3, which does not exist")

    def test_finds_a_pod_without_a_record(self):
        self.pods[0]["metadata"]["annotations"] = {}
        self.assert_one("whole: has no record")

    def test_finds_a_card_of_another_node(self):
        self.pods[1] = pod("part-1", "n1", ("C", 8 * GIB, 10))
        self.assert_one("part-1: is on n1 and was given C of n2")

    def test_finds_a_card_that_does_not_exist(self):
        self.pods[1] = pod("part-1", "n1", ("D", 8 * GIB, 10))
        self.assertIn("part-1: is on n1 and was given D of no node", self.found())

    def test_finds_the_record_of_another_pod(self):
        self.pods[1]["metadata"]["uid"] = "uid-again"
        self.assert_one("part-1: its record is for UID uid-part-1")

    def test_finds_a_wrong_amount(self):
        self.pods[1] = pod("part-1", "n1", ("B", 8 * GIB, 11))
        self.assert_one("part-1: was given")

    def test_finds_a_card_given_twice_to_one_pod(self):
        self.pods[1] = pod("part-1", "n1", ("B", 8 * GIB, 10), ("B", 8 * GIB, 10))
        self.assertIn("part-1: was given one card twice", self.found())

    def test_finds_a_fraction_on_a_card_given_whole(self):
        self.pods[1] = pod("part-1", "n1", ("A", 8 * GIB, 10))
        self.assert_one("A: ")


class Bindings(unittest.TestCase):
    def setUp(self):
        # The first bind of one pod was refused, which is not an error.
        self.bindings = [("whole", CONTROL, 409), ("part-1", CONTROL, 201), ("part-2", CONTROL, 201),
                         ("whole", CONTROL, 201)]

    def found(self):
        return placed.check_bindings(WANTED, self.bindings, CONTROL)

    def test_reports_nothing_when_nothing_is_wrong(self):
        self.assertEqual(self.found(), [])

    def test_finds_a_pod_that_was_never_bound(self):
        del self.bindings[1]
        self.assertEqual(self.found(), ["part-1: was never bound"])

    def test_finds_a_pod_that_was_refused_for_good(self):
        del self.bindings[3]
        self.assertEqual(self.found(), ["whole: was refused permanently, the last time with 409"])

    def test_finds_a_second_binding(self):
        self.bindings.append(("whole", CONTROL, 201))
        self.assertEqual(self.found(), ["whole: was bound 2 times"])

    def test_finds_a_binding_by_another_user(self):
        self.bindings[1] = ("part-1", OTHER, 201)
        self.assertEqual(self.found(), [f"part-1: was bound by {OTHER}, not by {CONTROL}"])

    def test_finds_a_binding_of_a_pod_that_was_not_to_be_bound(self):
        self.bindings.append(("stray", CONTROL, 201))
        self.assertEqual(self.found(), [f"stray: was bound by {CONTROL}, and was not to be bound"])


if __name__ == "__main__":
    unittest.main()
