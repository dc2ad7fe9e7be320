"""check.py finds planted faults, and reports nothing when nothing is wrong."""
import copy
import json
import re
import struct
import tempfile
import unittest
from pathlib import Path

import check
import read_node

A, B = "GPU-00000000-0000-4000-8000-00000000000a", "GPU-00000000-0000-4000-8000-00000000000b"


def device(uuid):
    return {"name": "gpu-" + uuid[4:], "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": uuid}},
            "capacity": {"memory": {"value": "141Gi"}, "cores": {"value": "100"}}}


SLICES = [{"spec": {"driver": check.DRIVER, "nodeName": "n1", "pool": {"name": "n1", "generation": 2,
                                                                     "resourceSliceCount": 1},
                    "devices": [device(A), device(B)]}}]


def claim(name, pod_uid, uuid, memory="4Gi", cores="30"):
    return {"metadata": {"name": name, "namespace": "default"}, "status": {
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod_uid}],
        "allocation": {"devices": {"results": [{
            "request": "gpu", "driver": check.DRIVER, "pool": "n1", "device": "gpu-" + uuid[4:],
            "consumedCapacity": {"memory": memory, "cores": cores}}]}}}}


def pod(name, uid, claim_name, annotations=None):
    return {"metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": annotations or {}},
            "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": claim_name}],
                     "containers": [{"name": "main", "resources": {"claims": [{"name": "c"}]}}]},
            "status": {}}


def look(*cards):
    part = {"init": 0, "cards": [{"uuid": uuid, "memory": memory} for uuid, memory in cards]}
    return {"cuda": part, "nvml": copy.deepcopy(part)}


class Checker(unittest.TestCase):
    def setUp(self):
        self.pods = [pod("p1", "u1", "c1"), pod("p2", "u2", "c2")]
        self.claims = [claim("c1", "u1", A), claim("c2", "u2", B, memory="8Gi")]
        self.seen = {("default", "p1", "main"): look((A, 4 << 30)), ("default", "p2", "main"): look((B, 8 << 30))}

    def check(self):
        return check.check(self.pods, self.claims, SLICES, self.seen)

    def test_reports_nothing_when_nothing_is_wrong(self):
        self.assertEqual(self.check(), [])

    def test_finds_swapped_slices(self):
        """Two containers see each other's slices."""
        one, two = list(self.seen)
        self.seen[one], self.seen[two] = self.seen[two], self.seen[one]
        self.assertEqual(len(self.check()), 8)      # one missing and one too many, per API and container

    def test_finds_a_wrong_memory_limit(self):
        self.seen[("default", "p1", "main")] = look((A, (4 << 30) + 1))
        self.assertIn("bytes of " + A, self.check()[0])

    def test_finds_a_card_that_was_not_given(self):
        self.seen[("default", "p1", "main")] = look((A, 4 << 30), (B, 141 << 30))
        self.assertIn("which it was not given", self.check()[0])

    def test_finds_a_missing_limit_in_one_api(self):
        self.seen[("default", "p1", "main")]["nvml"]["cards"][0]["memory"] = 141 << 30
        self.assertEqual(len(self.check()), 1)

    def test_finds_a_claim_reserved_for_another_uid(self):
        self.pods[0]["metadata"]["uid"] = "u1-again"
        self.assertIn("not reserved", self.check()[0])

    def test_finds_an_over_committed_card(self):
        self.claims += [claim("c3", "u3", A), claim("c4", "u4", A), claim("c5", "u5", A)]
        self.assertIn("120 cores", self.check()[0])

    def test_finds_a_container_that_was_not_looked_into(self):
        del self.seen[("default", "p2", "main")]
        self.assertEqual(self.check(), ["default/p2/main: was not looked into"])

    def test_a_container_without_claims_must_see_nothing(self):
        self.pods[0]["spec"]["containers"][0].pop("resources")
        self.assertEqual(len(self.check()), 2)

    def test_nvml_shows_the_hardware_size_of_a_whole_card(self):
        self.claims[0] = claim("c1", "u1", A, memory="141Gi", cores="100")
        self.seen[("default", "p1", "main")] = look((A, 141 << 30))
        self.seen[("default", "p1", "main")]["nvml"]["cards"][0]["memory"] = 142 << 30
        physical = {A: 142 << 30, B: 142 << 30}
        self.assertEqual(check.check(self.pods, self.claims, SLICES, self.seen, physical=physical), [])
        self.assertEqual(len(self.check()), 1)

    def test_ignores_an_old_generation_of_a_resource_slice(self):
        stale = copy.deepcopy(SLICES[0])
        stale["spec"]["pool"]["generation"] = 1
        stale["spec"]["devices"][0]["attributes"]["uuid"]["string"] = B
        self.assertEqual(check.check(self.pods, self.claims, [stale, *SLICES], self.seen), [])

    def test_finds_a_record_for_another_uid(self):
        record = {"v": 1, "owner": {"kind": "pod", "uid": "u1"},
                  "parts": [{"part": "main", "cards": [{"uuid": A, "bytes": 4 << 30, "compute": 30}]}]}
        pods = [pod("p1", "u1", "c1", {check.RECORD: json.dumps(record)})]
        self.assertEqual(check.check(pods, [], [], self.seen, by="records"), [])
        record["owner"]["uid"] = "another"
        pods = [pod("p1", "u1", "c1", {check.RECORD: json.dumps(record)})]
        self.assertIn("the record is for UID another", check.check(pods, [], [], self.seen, by="records")[0])

    def test_finds_records_that_give_more_than_a_card_has(self):
        def holder(uid, size, cores, **part):
            text = json.dumps({"owner": {"uid": uid}, "parts": [{"part": "main", "share": "burst", "cards": [
                {"uuid": A, "bytes": size << 30, "compute": cores}], **part}]})
            return {"metadata": {"uid": uid, "annotations": {check.RECORD: text}}}
        physical = {A: 16 << 30}
        self.assertEqual(check.check_records([holder("u1", 8, 60), holder("u2", 8, 40)], physical), [])
        self.assertEqual(len(check.check_records([holder("u1", 8, 60), holder("u2", 9, 40)], physical)), 1)
        self.assertEqual(len(check.check_records([holder("u1", 8, 60), holder("u2", 8, 41)], physical)), 1)
        self.assertEqual(check.check_records([holder("u1", 8, 60), holder("u2", 8, 90, share="besteffort")], physical), [])

    def test_a_record_counts_the_larger_of_init_and_main_containers(self):
        parts = [{"part": "load", "init": True, "share": "burst", "cards": [{"uuid": A, "bytes": 10, "compute": 1}]},
                 {"part": "main", "share": "burst", "cards": [{"uuid": A, "bytes": 8, "compute": 90}]}]
        pods = [{"metadata": {"uid": "u", "annotations": {check.RECORD: json.dumps({"parts": parts})}}}]
        self.assertEqual(check.check_records(pods, {A: 10}), [])
        self.assertEqual(len(check.check_records(pods, {A: 9})), 1)

    def test_quantities(self):
        self.assertEqual([check.quantity(q) for q in ("4Gi", "30", 7, "1k", "1.5Gi")],
                         [4 << 30, 30, 7, 1000, 3 << 29])
        with self.assertRaises(ValueError):
            check.quantity("0.5")


def grant_page(uuid, memory, cores, share=1, priority=1, abi=read_node.PAGE_ABI):
    data = bytearray(4096)
    data[:8] = struct.pack("<4sHH", b"CAVG", abi, 0)
    data[8:8 + len(uuid)] = uuid.encode()
    data[56:64] = struct.pack("<II", share, priority)
    data[128:136] = struct.pack("<Q", memory)
    data[144:148] = struct.pack("<I", cores)
    return bytes(data)


class Pages(unittest.TestCase):
    """The limits in the arbiter's pages, against what was given."""

    def setUp(self):
        self.claims = [claim("c1", "u1", A), claim("c2", "u2", B, memory="8Gi", cores="70")]
        for number, one in enumerate(self.claims, 1):
            one["metadata"]["uid"] = f"cu{number}"
        self.claims[1]["status"]["allocation"]["devices"]["config"] = [
            {"source": "FromClass", "requests": [], "opaque": {"driver": check.DRIVER, "parameters": {
                "shareClass": "besteffort", "priorityClass": "online"}}},
            {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": check.DRIVER, "parameters": {
                "shareClass": "fixed"}}}]
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("s-1-1-0", grant_page(A, 4 << 30, 30))
        self.write("s-1-2-0", grant_page(B, 8 << 30, 70, share=0, priority=0))
        self.owners = read_node.owners({
            "s-1-1": "keep=1 uid=0 owner=claim/cu1 part=gpu pods=u1 name=default/p1/gpu",
            "s-1-2": "keep=1 uid=0 v=1 owner=claim/cu2 part=gpu pods=u2 name=a owner=claim/x"})

    def write(self, name, data):
        (Path(self.folder.name) / name).write_bytes(data)

    def found(self):
        return check.check_pages(check.granted_by_claims(self.claims, SLICES), read_node.pages(self.folder.name),
                                 self.owners)

    def test_reports_nothing_when_nothing_is_wrong(self):
        self.assertEqual(self.found(), [])

    def test_finds_wrong_compute_memory_and_classes(self):
        for data, word in ((grant_page(A, 4 << 30, 31), "says cores 31, given was 30"),
                           (grant_page(A, 4 << 29, 30), f"says memory {4 << 29}"),
                           (grant_page(A, 4 << 30, 30, share=0), "says share fixed, given was burst"),
                           (grant_page(A, 4 << 30, 30, priority=2), "says priority offline")):
            self.write("s-1-1-0", data)
            found = self.found()
            self.assertEqual(len(found), 1, found)
            self.assertIn(word, found[0])

    def test_finds_swapped_missing_and_surplus_pages(self):
        first, second = ((Path(self.folder.name) / name) for name in ("s-1-1-0", "s-1-2-0"))
        kept = first.read_bytes(), second.read_bytes()
        first.write_bytes(kept[1])
        second.write_bytes(kept[0])
        self.assertEqual(len(self.found()), 4)
        first.write_bytes(kept[0])
        second.unlink()
        self.assertEqual(self.found(), [f"cu2 gpu {B}: has no grant page"])
        second.write_bytes(kept[1])
        self.write("s-1-9-0", kept[0])
        self.assertEqual(len(self.found()), 1)
        self.assertIn("was given nothing", self.found()[0])

    def test_a_whole_card_has_no_page_and_records_give_the_same_result(self):
        self.claims[1]["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = {
            "memory": "141Gi", "cores": "100"}
        (Path(self.folder.name) / "s-1-2-0").unlink()
        self.assertEqual(self.found(), [])
        part = {"part": "gpu", "share": "burst", "priority": "standard",
                "cards": [{"uuid": A, "bytes": 4 << 30, "compute": 30}]}
        text = json.dumps({"owner": {"uid": "cu1"}, "parts": [part, {**part, "part": "all", "whole": True}]})
        pods = [{"metadata": {"uid": "cu1", "annotations": {check.RECORD: text}}}]
        self.assertEqual(check.check_pages(check.granted_by_records(pods), read_node.pages(self.folder.name),
                                           self.owners), [])

    def test_refuses_a_page_of_another_version(self):
        self.write("s-1-1-0", grant_page(A, 4 << 30, 30, abi=read_node.PAGE_ABI + 1))
        with self.assertRaises(ValueError):
            self.found()

    def test_the_offsets_are_those_of_page_h(self):
        text = (Path(__file__).resolve().parents[3] / "abi" / "page.h").read_text()
        self.assertIn(f"#define CARVE_PAGE_ABI {read_node.PAGE_ABI} ", text)
        sizes = {"std::uint64_t": 8, "std::uint32_t": 4, "std::uint16_t": 2, "std::uint8_t": 1, "char": 1, "ShareClass": 4,
                 "PriorityClass": 4, "PageClock": 4}
        body = text.partition("struct GrantPage {")[2].partition("};")[0]
        at, offsets = 0, {}
        for kind, name, count in re.findall(r"^  (?:Cell<)?([\w:]+)>? (\w+)(?:\[(\d+)\])?;", body, re.M):
            self.assertEqual(at % sizes[kind], 0, name)
            offsets[name] = (at, sizes[kind] * int(count or 1))
            at += offsets[name][1]
        self.assertEqual(at, 256)        # everything except the padding, so the pattern matched every field
        self.assertEqual({name: offsets[name] for name in read_node.PAGE}, read_node.PAGE)


if __name__ == "__main__":
    unittest.main()
