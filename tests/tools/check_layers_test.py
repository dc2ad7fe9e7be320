#!/usr/bin/env python3
"""tools/check_layers must find each planted violation, and nothing in a clean tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers"

CLEAN = {
    "src/base/a.h": "#pragma once\n#include <tl/expected.hpp>\n",
    "src/core/b.h": '#pragma once\n#include "base/a.h"\n',
    "src/adapter/x/c.cc": '#include "core/b.h"\n#include <boost/json.hpp>\n',
    "lease/gate.h": '#pragma once\n#include <cstdint>\n#include "abi/page.h"\n',
    "abi/page.h": "#pragma once\n// the simulated driver is named in a comment only\n",
}

INCLUDED = ("src/adapter/x/c.h", "src/app/control/api/routes.h", "src/app/agent/agent.h")

PLANTED = {
    "core includes an adapter": ("src/core/bad.cc", '#include "adapter/x/c.h"\n'),
    "app includes an adapter": ("src/app/bad.cc", '#include "adapter/x/c.h"\n'),
    "base includes core": ("src/base/bad.cc", '#include "core/b.h"\n'),
    "Boost outside its owner": ("src/core/bad.cc", "#include <boost/json.hpp>\n"),
    "CLI11 outside cmd": ("src/app/bad.cc", "#include <CLI/CLI.hpp>\n"),
    "libc in lease": ("lease/bad.cc", "#include <time.h>\n"),
    "C++ runtime in preload": ("preload/bad.cc", "#include <string>\n"),
    "a branch on simulated": ("src/adapter/nvml/bad.cc", "bool f() { return is_simulated(); }\n"),
    "a branch on simulated in cmd": ("src/cmd/run.cc", "bool f() { return is_simulated(); }\n"),
    "simulated in preload": ("preload/bad.cc", 'const char* p = "/run/nvidia-sim";\n'),
    "control's state includes its api": ("src/app/control/state/bad.cc", '#include "app/control/api/routes.h"\n'),
    "control's api includes the agent": ("src/app/control/api/bad.cc", '#include "app/agent/agent.h"\n'),
    "a header of 201 lines": ("src/core/long.h", "#pragma once\n" * 201),
}


class CheckLayers(unittest.TestCase):
    def run_on(self, extra):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = dict(CLEAN, **{name: "#pragma once\n" for name in INCLUDED}, **dict([extra] if extra else []))
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            subprocess.run(["git", "init", "-q", folder], check=True)
            return subprocess.run([sys.executable, str(TOOL), folder], capture_output=True, text=True)

    def test_a_clean_tree_passes(self):
        done = self.run_on(None)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_planted_violation_is_found(self):
        for what, extra in PLANTED.items():
            with self.subTest(what):
                done = self.run_on(extra)
                self.assertEqual(done.returncode, 1, f"{what}: not found\n{done.stdout}")
                self.assertIn(extra[0], done.stdout)


if __name__ == "__main__":
    unittest.main()
