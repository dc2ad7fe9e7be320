#!/usr/bin/env python3
"""scripts/lib/stages.sh counts what its tests did: a failure stays one, and what passed only when run again is named."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Stages(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="carve-stages-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "build/dev").mkdir(parents=True)
        (self.root / "tools").symlink_to(ROOT / "tools")
        self.lines = []

    def add(self, name, command, **properties):
        script = self.root / f"t{len(self.lines)}.sh"
        script.write_text(command + "\n", encoding="utf-8")
        self.lines.append(f'add_test([=[{name}]=] /bin/sh {script})')
        for key, value in properties.items():
            self.lines.append(f'set_tests_properties([=[{name}]=] PROPERTIES {key} "{value}")')

    def passes_from(self, name, tries):
        """Fails until the try of that number."""
        count = self.root / f"count{len(self.lines)}"
        self.add(name, f"echo x >>{count}; test $(wc -l <{count}) -ge {tries}")

    def stage(self, tries, more=""):
        (self.root / "build/dev/CTestTestfile.cmake").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", f'set -u; say() {{ echo "== $1"; }}; die() {{ echo "$1"; exit 2; }}\n'
                           f'. "{ROOT}/scripts/lib/stages.sh"; ctest_stage dev {tries} ""; {more}\nsummary 61'],
            env={**os.environ, "CARVE_ROOT": str(self.root)}, capture_output=True, text=True, timeout=100, check=False)
        self.said = done.stdout
        return done.returncode

    def test_all_pass(self):
        self.add("a", "true")
        self.add("b", "echo SKIP: no card; exit 77", SKIP_RETURN_CODE=77)
        self.assertEqual(self.stage("once"), 0, self.said)
        self.assertIn("1 passed, 0 failed, 1 skipped", self.said)
        self.assertIn("dev: b: no card", self.said)

    def test_one_that_could_not_begin_failed(self):
        self.add("up", "false", FIXTURES_SETUP="ring")
        self.add("on_it", "true", FIXTURES_REQUIRED="ring")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 2 failed, 0 skipped", self.said)

    def test_one_whose_fixture_comes_at_the_end_runs_then(self):
        self.passes_from("up", 4)
        self.lines.append('set_tests_properties(up PROPERTIES FIXTURES_SETUP ring)')
        self.add("on_it", "true", FIXTURES_REQUIRED="ring")
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("dev: on_it, only at the end, alone", self.said)

    def test_none_ran(self):
        self.assertNotEqual(self.stage("once"), 0, self.said)

    def test_one_that_fails_once_fails_where_there_is_one_try(self):
        self.passes_from("flaky", 2)
        self.assertNotEqual(self.stage("once"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.said)

    def test_one_that_fails_at_times_is_named(self):
        self.passes_from("in/Turn.a+b (x)", 2)
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("1 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("passed only when run again:\n  dev: in/Turn.a+b (x)\n", self.said)

    def test_one_that_passes_at_the_end_is_named(self):
        self.add("a", "true")
        self.passes_from("in/Turn.a+b (x)", 4)
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("dev: in/Turn.a+b (x), only at the end, alone", self.said)

    def test_one_that_fails_at_the_end_too_failed(self):
        self.add("a", "true")
        self.passes_from("broken", 5)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("the end of what dev: broken printed", self.said)

    def test_many_that_fail_have_no_try_at_the_end(self):
        for i in range(7):
            self.passes_from(f"broken{i}", 4)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 7 failed, 0 skipped", self.said)

    def test_what_a_checker_found_stays_found(self):
        self.passes_from("race", 2)
        self.assertNotEqual(self.stage("again", 'echo "a slice leaked" >>"$convictions"'), 0)
        self.assertIn("a checker found: a slice leaked", self.said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
