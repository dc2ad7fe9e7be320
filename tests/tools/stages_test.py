#!/usr/bin/env python3
"""scripts/lib/stages.sh must count what the tests did: a failure stays one, and a test that needed more than one try is
reported with its rate, or fails the run."""
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
        """A test that passes from the try of that number on."""
        self.fails_at(name, *range(1, tries), **properties)

    def fails_at(self, name, *tries, **properties):
        count = self.root / f"count{len(self.lines)}"
        at = "|".join(str(one) for one in tries)
        self.add(name, f"echo x >>{count}; case $(wc -l <{count}) in {at}) exit 1 ;; esac", **properties)

    def stage(self, tries, more="", before=":"):
        (self.root / "build/dev/CTestTestfile.cmake").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        done = subprocess.run(
            ["bash", "-c", f'set -u; say() {{ echo "== $1"; }}; die() {{ echo "$1"; exit 2; }}\n'
                           f'. "{ROOT}/scripts/lib/stages.sh"; {before}; ctest_stage dev {tries} ""; {more}\nsummary 61'],
            env={**os.environ, "CARVE_ROOT": str(self.root)}, capture_output=True, text=True, timeout=100, check=False)
        self.output = done.stdout
        return done.returncode

    def closing(self):
        """The output of the run after its last call of ctest."""
        return self.output[self.output.rindex("Total Test time"):]

    def test_passed_and_skipped_tests_are_counted(self):
        self.add("a", "true")
        self.add("b", "echo SKIPPED: no card; exit 77", SKIP_RETURN_CODE=77)
        self.assertEqual(self.stage("once"), 0, self.output)
        self.assertIn("1 passed, 0 failed, 1 skipped", self.output)
        self.assertIn("dev: b: no card", self.output)

    def test_a_skip_without_a_reason_has_failed(self):
        self.add("quiet", "echo nothing to do; exit 77", SKIP_RETURN_CODE=77)
        self.assertNotEqual(self.stage("once"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.output)

    def test_a_test_whose_fixture_failed_has_failed(self):
        self.add("up", "false", FIXTURES_SETUP="ring")
        self.add("on_it", "true", FIXTURES_REQUIRED="ring")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 2 failed, 0 skipped", self.output)

    def test_a_test_whose_fixture_passes_in_the_last_tries_runs_then(self):
        self.list_as_flaky("up")
        self.passes_from("up", 3, FIXTURES_SETUP="ring")
        self.add("on_it", "true", FIXTURES_REQUIRED="ring")
        self.assertEqual(self.stage("again"), 0, self.output)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.output)
        self.assertIn("passed, but not at each try:\n  dev: up: passed 2 of 4 tries, docs/flaky.md:5\n", self.output)
        self.assertNotIn("dev: on_it", self.closing(), "it never failed")

    def test_what_ran_in_the_background_is_counted_and_does_not_run_again(self):
        self.list_as_flaky("flaky")
        self.passes_from("flaky", 2)
        self.fails_at("in_the_background_only", 2)
        self.add("broken", "false")
        self.assertNotEqual(self.stage("again", before='make_report dev again "" >/dev/null & wait'), 0)
        self.assertIn("2 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("dev: flaky: passed 1 of 2 tries, docs/flaky.md:5", self.closing())
        self.assertIn("dev: broken: passed 0 of 3 tries", self.closing())

    def test_what_was_stopped_in_the_background_runs_again(self):
        begun = self.root / "begun"
        self.add("slow", f"test -e {begun} && exit 0; touch {begun}; sleep 60")
        background = (f'set -m; make_report dev once "" >/dev/null & set +m; until [ -e {begun} ]; do sleep 0.1; done; '
                      'kill -KILL -- -$!; wait')
        self.assertEqual(self.stage("once", before=background), 0, self.output)
        self.assertIn("1 passed, 0 failed, 0 skipped", self.output)

    def test_a_stage_without_tests_fails(self):
        self.assertNotEqual(self.stage("once"), 0, self.output)

    def test_with_one_try_one_failure_fails_the_run(self):
        self.passes_from("flaky", 2)
        self.assertNotEqual(self.stage("once"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.output)

    def test_a_listed_test_that_needed_a_second_try_is_reported(self):
        self.list_as_flaky("other", "in/Turn.a+b (x)")
        self.passes_from("in/Turn.a+b (x)", 2)
        self.assertEqual(self.stage("again"), 0, self.output)
        self.assertIn("1 passed, 0 failed, 0 skipped", self.output)
        self.assertIn("passed, but not at each try:\n  dev: in/Turn.a+b (x): passed 1 of 2 tries, docs/flaky.md:6\n",
                      self.output)

    def test_an_unlisted_test_that_needed_a_second_try_fails_the_run(self):
        self.list_as_flaky("in/Turn.a+b", "in/Turn")
        self.passes_from("in/Turn.a+b (x)", 2)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("failed:\n  dev: in/Turn.a+b (x): passed 1 of 2 tries, not listed in docs/flaky.md\n",
                      self.output)

    def test_without_the_document_no_test_is_listed(self):
        self.passes_from("flaky", 2)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 1 of 2 tries, not listed in docs/flaky.md\n", self.output)

    def test_a_test_in_real_time_may_be_unlisted(self):
        self.passes_from("share (a+b)", 2, LABELS="integration;alone")
        self.passes_from("cluster/slots", 2, LABELS="cluster")
        self.passes_from("cluster-newest/races", 2, LABELS="soak")
        self.assertEqual(self.stage("again"), 0, self.output)
        self.assertIn("3 passed, 0 failed, 0 skipped", self.output)
        for name in ("share (a+b)", "cluster/slots", "cluster-newest/races"):
            self.assertIn(f"  dev: {name}: passed 1 of 2 tries, not listed in docs/flaky.md\n", self.output)

    def test_a_label_with_only_the_same_prefix_excuses_nothing(self):
        self.passes_from("flaky", 2, LABELS="alone_not")
        self.assertNotEqual(self.stage("again"), 0)

    def test_words_in_a_tests_name_are_not_results(self):
        self.add("Failed.WhatTimeout_was (Passed)", "true")
        self.add("Skipped.Passed", "false")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("failed:\n  dev: Skipped.Passed: passed 0 of 3 tries\n", self.output)

    def test_a_crash_and_a_timeout_are_failed_tries(self):
        self.list_as_flaky("crash", "hang")
        once = self.root / "once"
        self.add("crash", f"test -e {once} && exit 0; touch {once}; kill -SEGV $$")
        self.add("hang", f"test -e {once}2 && exit 0; touch {once}2; sleep 60", TIMEOUT=1)
        self.assertEqual(self.stage("again"), 0, self.output)
        for name in ("crash", "hang"):
            self.assertIn(f"dev: {name}: passed 1 of 2 tries", self.closing())

    def test_a_test_that_fails_and_then_skips_has_failed(self):
        once = self.root / "once"
        self.add("no_card_left", f"test -e {once} && exit 77; touch {once}; exit 1", SKIP_RETURN_CODE=77)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("0 passed, 1 failed, 0 skipped", self.output)

    def test_a_listed_test_that_passes_in_the_last_tries_is_reported(self):
        self.list_as_flaky("in/Turn.a+b (x)")
        self.add("a", "true")
        self.passes_from("in/Turn.a+b (x)", 3)
        self.assertEqual(self.stage("again"), 0, self.output)
        self.assertIn("2 passed, 0 failed, 0 skipped", self.output)
        self.assertIn("dev: in/Turn.a+b (x): passed 2 of 4 tries, docs/flaky.md:5", self.closing())

    def test_an_unlisted_test_that_passes_in_the_last_tries_fails_the_run(self):
        self.passes_from("flaky", 3)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 2 of 4 tries, not listed in docs/flaky.md\n", self.output)

    def test_a_test_that_also_fails_in_the_last_tries_has_failed(self):
        self.list_as_flaky("broken")
        self.add("a", "true")
        self.passes_from("broken", 5)
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("the end of what dev: broken printed", self.output)
        self.assertIn("failed:\n  dev: broken: passed 0 of 3 tries\n", self.output)

    def test_a_test_that_passes_less_than_half_of_its_tries_has_failed(self):
        self.list_as_flaky("broken")
        self.fails_at("broken", 1, 2, 4, LABELS="alone")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("failed:\n  dev: broken: passed 1 of 4 tries\n", self.output)

    def test_tries_of_two_stages_count_together(self):
        self.list_as_flaky("flaky")
        self.fails_at("flaky", 1, 3)
        self.assertEqual(self.stage("again", 'ctest_stage dev again ""'), 0, self.output)
        self.assertIn("dev: flaky: passed 2 of 4 tries", self.closing())

    def test_many_failed_tests_get_no_last_tries(self):
        self.list_as_flaky(*(f"broken{i}" for i in range(7)))
        for i in range(7):
            self.passes_from(f"broken{i}", 3)
        self.assertNotEqual(self.stage("again", 'ctest_stage dev once "-R none"'), 0)
        self.assertIn("0 passed, 7 failed, 0 skipped", self.output)
        self.assertIn("dev: broken6: passed 0 of 2 tries", self.closing())

    def test_when_all_of_three_tries_must_pass_one_failure_fails_the_run(self):
        self.list_as_flaky("flaky")
        self.fails_at("flaky", 3)
        self.assertNotEqual(self.stage("three-times"), 0)
        self.assertIn("failed:\n  dev: flaky: passed 2 of 3 tries\n", self.output)

    def test_half_of_the_tries_suffice(self):
        self.list_as_flaky("flaky")
        self.add("a", "true")
        count = """key="dev"$'\\t'"flaky"; passes[$key]=1 tries[$key]=%d; count_pass dev flaky"""
        self.assertNotEqual(self.stage("once", count % 3), 0)
        self.assertIn("failed:\n  dev: flaky: passed 1 of 3 tries, docs/flaky.md:5\n", self.output)
        self.assertEqual(self.stage("once", count % 2), 0, self.output)

    def test_a_checkers_finding_is_not_undone_by_a_second_try(self):
        self.list_as_flaky("race")
        self.passes_from("race", 2)
        self.assertNotEqual(self.stage("again", 'echo "a slice leaked" >>"$convictions"'), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("a checker found: a slice leaked", self.output)

    def test_a_data_race_is_not_undone_by_a_second_try(self):
        self.list_as_flaky("race")
        once = self.root / "once"
        self.add("race", f"test -e {once} && exit 0; touch {once}; echo SUMMARY: ThreadSanitizer: data race in f; exit 66")
        self.assertNotEqual(self.stage("again"), 0)
        self.assertIn("1 passed, 1 failed, 0 skipped", self.output)
        self.assertIn("a checker found: dev: SUMMARY: ThreadSanitizer: data race in f", self.output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
