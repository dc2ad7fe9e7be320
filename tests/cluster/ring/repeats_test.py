"""repeats.py: a scenario that is tried again runs only the tests that have not passed. Needs no ring."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
SCENARIO = """
import os, sys, unittest
sys.path.insert(0, {tests!r})
from ring.testing import main

class Fails(unittest.TestCase):
    def test_passes(self):
        pass
    def test_fails_while_the_file_exists(self):
        assert not os.path.exists({file!r})

class Fixture(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert not os.path.exists({file!r})
    def test_after_the_fixture(self):
        pass

class Killed(unittest.TestCase):
    def test_ends_the_process_while_the_file_exists(self):
        if os.path.exists({file!r}):
            os._exit(3)

if __name__ == "__main__":
    main()
"""


class Tries(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="carve-repeats-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.broken = self.folder / "broken"
        self.broken.touch()
        (self.folder / "repeats").mkdir()
        (self.folder / "scenario.py").write_text(SCENARIO.format(tests=str(TESTS), file=str(self.broken)))
        self.environment = {**os.environ, "CARVE_REPEATS": str(self.folder / "repeats"), "CARVE_RING": "none"}
        self.environment.pop("CARVE_RING_SHARED", None)

    def run_once(self, *words):
        """Whether the scenario passed, and the tests that it ran."""
        done = subprocess.run([sys.executable, self.folder / "scenario.py", *words], env=self.environment, text=True,
                              capture_output=True, check=False, timeout=60)
        self.output = done.stdout + done.stderr
        return done.returncode == 0, {line.split()[0] for line in done.stderr.splitlines() if line.startswith("test_")}

    def test_only_the_failed_test_runs_again(self):
        both = {"test_passes", "test_fails_while_the_file_exists"}
        self.assertEqual(self.run_once("Fails"), (False, both))
        self.assertEqual(self.run_once("Fails"), (False, {"test_fails_while_the_file_exists"}))
        self.assertIn("tried again: 1 of 2 tests, which have not passed yet: Fails.test_fails_while", self.output)
        self.broken.unlink()
        for _ in range(2):      # the last two tries of scripts/test must run it both times
            self.assertEqual(self.run_once("Fails"), (True, {"test_fails_while_the_file_exists"}))

    def test_other_arguments_or_another_ring_are_another_scenario(self):
        self.run_once("Fails")
        self.assertEqual(len(self.run_once("Fails", "Fixture")[1]), 2)
        self.environment["CARVE_RING"] = "other"
        self.assertEqual(len(self.run_once("Fails")[1]), 2)

    def test_tests_whose_fixture_failed_run_again(self):
        self.assertEqual(self.run_once("Fixture"), (False, set()))
        self.broken.unlink()
        self.assertEqual(self.run_once("Fixture"), (True, {"test_after_the_fixture"}))

    def test_a_try_that_was_killed_counts(self):
        self.assertFalse(self.run_once("Fixture", "Killed")[0])
        self.assertFalse(self.run_once("Fails.test_passes", "Killed")[0])
        self.assertEqual(self.run_once("Fails.test_passes", "Killed")[1], {"test_ends_the_process_while_the_file_exists"})

    def test_a_scenario_that_passed_runs_completely(self):
        self.broken.unlink()
        for _ in range(2):
            self.assertEqual(len(self.run_once()[1]), 4)

    def test_without_the_folder_every_try_runs_all(self):
        del self.environment["CARVE_REPEATS"]
        for _ in range(2):
            self.assertEqual(len(self.run_once("Fails")[1]), 2)


if __name__ == "__main__":
    unittest.main()
