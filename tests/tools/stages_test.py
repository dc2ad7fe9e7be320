#!/usr/bin/env python3
"""scripts/lib/stages.sh counts what its tests did: a failure stays one, and a test that needed more than one try is reported
with its rate, or fails the run."""
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

    def list_as_flaky(self, *names):
        (self.root / "docs").mkdir()
        rows = "".join(f"| `{name}` | label | 1 of 9 runs | cause | plan |\n" for name in names)
        (self.root / "docs/flaky.md").write_text("# Flaky\n\n| test | label |\n| --- | --- |\n" + rows, encoding="utf-8")

    def add(self, name, command, **properties):
        script = self.root / f"t{len(self.lines)}.sh"
        script.write_text(command + "\n", encoding="utf-8")
        self.lines.append(f'add_test([=[{name}]=] /bin/sh {script})')
        for key, value in properties.items():
            self.lines.append(f'set_tests_properties([=[{name}]=] PROPERTIES {key} "{value}")')

    def passes_from(self, name, tries, **properties):
        """Fails until the try of that number."""
        self.fails_at(name, *range(1, tries), **properties)

    def fails_at(self, name, *tries, **properties):
        count = self.root / f"count{len(self.lines)}"
        at = "|".join(str(one) for one in tries)
        self.add(name, f"echo x >>{count}; case $(wc -l <{count}) in {at}) exit 1 ;; esac", **properties)

    def stage(self, tries, more=""):
        (self.root / "build/dev/CTestTestfile.cmake").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", f'set -u; say() {{ echo "== $1"; }}; die() {{ echo "$1"; exit 2; }}\n'
                           f'. "{ROOT}/scripts/lib/stages.sh"; ctest_stage dev {tries} ""; {more}\nsummary 61'],
            env={**os.environ, "CARVE_ROOT": str(self.root)}, capture_output=True, text=True, timeout=100, check=False)
        self.said = done.stdout
        return done.returncode

    def closing(self):
        """What the run says after its last call of ctest."""
        return self.said[self.said.rindex("Total Test time"):]

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
        self.list_as_flaky("up")
        self.passes_from("up", 3, FIXTURES_SETUP="ring")
        self.add("on_it", "true", FIXTURES_REQUIRED="ring")
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("passed, but not at each try:\n  dev: up: passed 2 of 4 tries, docs/flaky.md:5\n", self.said)
        self.assertNotIn("dev: on_it", self.closing(), "it failed at no try")

    def test_none_ran(self):
        self.assertNotEqual(self.stage("once"), 0, self.said)

    def test_one_that_fails_once_fails_where_there_is_one_try(self):
        self.passes_from("flaky", 2)
        self.assertNotEqual(self.stage("once"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.said)

    def test_one_that_fails_at_times_is_named(self):
        self.list_as_flaky("other", "in/Turn.a+b (x)")
        self.passes_from("in/Turn.a+b (x)", 2)
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("1 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("passed, but not at each try:\n  dev: in/Turn.a+b (x): passed 1 of 2 tries, docs/flaky.md:6\n", self.said)

    def test_one_that_fails_at_times_and_is_not_listed_fails_the_run(self):
        self.list_as_flaky("in/Turn.a+b", "in/Turn")
        self.passes_from("in/Turn.a+b (x)", 2)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("failed:\n  dev: in/Turn.a+b (x): passed 1 of 2 tries, not listed in docs/flaky.md\n", self.said)

    def test_without_a_list_none_is_listed(self):
        self.passes_from("flaky", 2)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 1 of 2 tries, not listed in docs/flaky.md\n", self.said)

    def test_one_in_real_time_may_lack_a_row(self):
        self.passes_from("share (a+b)", 2, LABELS="integration;alone")
        self.passes_from("cluster/slots", 2, LABELS="cluster")
        self.passes_from("cluster-newest/races", 2, LABELS="soak")
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("3 passed, 0 failed, 0 skipped", self.said)
        for name in ("share (a+b)", "cluster/slots", "cluster-newest/races"):
            self.assertIn(f"  dev: {name}: passed 1 of 2 tries, not listed in docs/flaky.md\n", self.said)

    def test_a_label_that_only_begins_so_excuses_nothing(self):
        self.passes_from("flaky", 2, LABELS="alone_not")
        self.assertNotEqual(self.stage("again"), 0)

    def test_the_words_of_a_name_are_not_taken_for_results(self):
        self.add("Failed.WhatTimeout_was (Passed)", "true")
        self.add("Skipped.Passed", "false")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("failed:\n  dev: Skipped.Passed: passed 0 of 3 tries\n", self.said)

    def test_a_crash_and_a_timeout_are_failed_tries(self):
        self.list_as_flaky("crash", "hang")
        once = self.root / "once"
        self.add("crash", f"test -e {once} && exit 0; touch {once}; kill -SEGV $$")
        self.add("hang", f"test -e {once}2 && exit 0; touch {once}2; sleep 60", TIMEOUT=1)
        self.assertEqual(self.stage("again"), 0, self.said)
        for name in ("crash", "hang"):
            self.assertIn(f"dev: {name}: passed 1 of 2 tries", self.closing())

    def test_one_that_fails_and_then_skips_failed(self):
        once = self.root / "once"
        self.add("no_card_left", f"test -e {once} && exit 77; touch {once}; exit 1", SKIP_RETURN_CODE=77)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.said)

    def test_one_that_passes_at_the_end_is_named(self):
        self.list_as_flaky("in/Turn.a+b (x)")
        self.add("a", "true")
        self.passes_from("in/Turn.a+b (x)", 3)
        self.assertEqual(self.stage("again"), 0, self.said)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.said)
        self.assertIn("dev: in/Turn.a+b (x): passed 2 of 4 tries, docs/flaky.md:5", self.closing())

    def test_one_that_passes_at_the_end_and_is_not_listed_fails_the_run(self):
        self.passes_from("flaky", 3)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 2 of 4 tries, not listed in docs/flaky.md\n", self.said)

    def test_one_that_fails_at_the_end_too_failed(self):
        self.list_as_flaky("broken")
        self.add("a", "true")
        self.passes_from("broken", 5)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("the end of what dev: broken printed", self.said)
        self.assertIn("failed:\n  dev: broken: passed 0 of 3 tries\n", self.said)

    def test_one_that_passes_less_than_half_of_its_tries_failed(self):
        self.list_as_flaky("broken")
        self.fails_at("broken", 1, 2, 4, LABELS="alone")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: broken: passed 1 of 4 tries\n", self.said)

    def test_tries_of_two_stages_count_together(self):
        self.list_as_flaky("flaky")
        self.fails_at("flaky", 1, 3)
        self.assertEqual(self.stage("again", 'ctest_stage dev again ""'), 0, self.said)
        self.assertIn("dev: flaky: passed 2 of 4 tries", self.closing())

    def test_many_that_fail_have_no_try_at_the_end(self):
        self.list_as_flaky(*(f"broken{i}" for i in range(7)))
        for i in range(7):
            self.passes_from(f"broken{i}", 3)
        self.assertNotEqual(self.stage("again", 'ctest_stage dev once "-R none"'), 0)
        self.assertIn("0 passed, 7 failed, 0 skipped", self.said)
        self.assertIn("dev: broken6: passed 0 of 2 tries", self.closing())

    def test_where_all_of_three_tries_must_pass_one_failure_is_one(self):
        self.list_as_flaky("flaky")
        self.fails_at("flaky", 3)
        self.assertNotEqual(self.stage("three-times"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 2 of 3 tries\n", self.said)

    def test_half_of_the_tries_must_pass(self):
        self.list_as_flaky("flaky")
        self.add("a", "true")
        count = """key="dev"$'\\t'"flaky"; passes[$key]=1 tries[$key]=%d; count_pass dev flaky"""
        self.assertNotEqual(self.stage("once", count % 3), 0)
        self.assertIn("failed:\n  dev: flaky: passed 1 of 3 tries, docs/flaky.md:5\n", self.said)
        self.assertEqual(self.stage("once", count % 2), 0, self.said)

    def test_what_a_checker_found_stays_found(self):
        self.list_as_flaky("race")
        self.passes_from("race", 2)
        self.assertNotEqual(self.stage("again", 'echo "a slice leaked" >>"$convictions"'), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("a checker found: a slice leaked", self.said)

    def test_a_race_that_is_not_repeated_stays_found(self):
        self.list_as_flaky("race")
        once = self.root / "once"
        self.add("race", f"test -e {once} && exit 0; touch {once}; echo SUMMARY: ThreadSanitizer: data race in f; exit 66")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.said)
        self.assertIn("a checker found: dev: SUMMARY: ThreadSanitizer: data race in f", self.said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
