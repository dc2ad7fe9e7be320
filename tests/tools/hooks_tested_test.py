#!/usr/bin/env python3
"""Every hooked call that takes device memory or creates a context, and that the simulated driver implements, must be
tested through the library: named in tests/isolation."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {"kAlloc", "kFree", "kPool", "kVmm", "kGraph", "kContext", "kArray", "kImport"}
# An update keeps the allocations of a graph: these calls take no memory.
NOTHING_TAKEN = {"cuGraphExecUpdate", "cuGraphExecUpdate_v2"}


def hooked():
    table = (ROOT / "preload/hooks_cuda.def").read_text(encoding="utf-8")
    return {name for name, kind in re.findall(r"^HOOK\((\w+),\s+(k\w+)\)", table, re.M) if kind in KINDS}


def simulated():
    """The calls that the simulated driver implements; a macro's argument counts as well (cuMemAllocAsync and its
    twin)."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "sim/cuda").glob("*.cc")
                   if not path.name.endswith("_test.cc"))
    return set(re.findall(r"CU_EXPORT\s+CUresult\s+(\w+)\(", text)) | set(re.findall(r"^\s*[A-Z_]+\((cu\w+)\b", text, re.M))


def named():
    return set(re.findall(r'"(cu\w+)"', "".join(path.read_text(encoding="utf-8")
                                                for path in (ROOT / "tests/isolation").iterdir()
                                                if path.suffix in (".cc", ".h"))))


class HooksTested(unittest.TestCase):
    def test_every_call_that_takes_memory_is_tested(self):
        must = hooked() & simulated()
        self.assertGreater(len(must), 30)
        self.assertEqual(sorted(must - named() - NOTHING_TAKEN), [])

    def test_every_exception_is_hooked(self):
        self.assertEqual(NOTHING_TAKEN - (hooked() & simulated()), set())


if __name__ == "__main__":
    unittest.main()
