#!/usr/bin/env python3
"""Every call of the table of hooks that takes device memory or makes a context, and that the simulated driver plays, is
tried through the library: named in tests/isolation."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"kAlloc", "kFree", "kPool", "kVmm", "kGraph", "kContext", "kArray", "kImport"}
# What is updated keeps its allocations: these take none.
NOTHING_TAKEN = {"cuGraphExecUpdate", "cuGraphExecUpdate_v2"}


def hooked():
    table = (ROOT / "preload/hooks_cuda.def").read_text(encoding="utf-8")
    return {name for name, kind in re.findall(r"^HOOK\((\w+),\s+(k\w+)\)", table, re.M) if kind in KINDS}


def played():
    """What the simulated driver has code for; a macro's argument counts as well (cuMemAllocAsync and its twin)."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sim/cuda").glob("*.cc")
                   if not path.name.endswith("_test.cc"))
    return set(re.findall(r"CU_EXPORT\s+CUresult\s+(\w+)\(", text)) | set(re.findall(r"^\s*[A-Z_]+\((cu\w+)\b", text, re.M))


def named():
    return set(re.findall(r'"(cu\w+)"', "".join(path.read_text(encoding="utf-8")
                                                for path in (ROOT / "tests/isolation").iterdir()
                                                if path.suffix in (".cc", ".h"))))


class HooksTested(unittest.TestCase):
    def test_every_way_to_memory_is_tried(self):
        must = hooked() & played()
        self.assertGreater(len(must), 30)
        self.assertEqual(sorted(must - named() - NOTHING_TAKEN), [])

    def test_what_is_left_out_is_hooked(self):
        self.assertEqual(NOTHING_TAKEN - (hooked() & played()), set())


if __name__ == "__main__":
    unittest.main()
