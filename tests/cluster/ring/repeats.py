"""Which tests of a scenario have passed in this run of scripts/test, so that the next try runs only the others.

The run names a folder in CARVE_REPEATS. Each scenario has a file there with the tests that passed in its tries so far,
and another one for the try that is running: a try that is killed counts, too. Without CARVE_REPEATS every try runs all
tests."""
import hashlib
import os
import sys
import unittest
from pathlib import Path

from . import paths


class Repeats:
    """The record of one scenario: the same file, arguments and ring."""

    def __init__(self):
        folder = os.environ.get("CARVE_REPEATS")
        key = hashlib.sha256("\0".join((paths.name(), *sys.argv)).encode()).hexdigest()[:16]
        self._passed = Path(folder) / key if folder else None
        self._running = Path(folder) / f"{key}.running" if folder else None

    def begin(self, suite: unittest.TestSuite) -> unittest.TestSuite:
        """The tests of `suite` that have not passed in an earlier try that failed. Prints which, if any test is left
        out."""
        if self._passed is None:
            return suite
        with open(self._passed, "a", encoding="utf-8") as passed:
            if self._running.exists():
                passed.write(self._running.read_text(encoding="utf-8"))
        self._running.write_text("", encoding="utf-8")
        done, tests = set(self._passed.read_text(encoding="utf-8").split("\n")), list(_tests(suite))
        left = [test for test in tests if test.id() not in done]
        if len(left) < len(tests):
            print(f"tried again: {len(left)} of {len(tests)} tests, which have not passed yet: "
                  + ", ".join(test.id().partition(".")[2] for test in left), flush=True)
        return unittest.TestSuite(left)

    def passed(self, test: unittest.TestCase) -> None:
        """Records that a test of this try has passed."""
        if self._running is not None:
            with open(self._running, "a", encoding="utf-8") as running:
                running.write(f"{test.id()}\n")

    def end(self, successful: bool) -> None:
        """Ends a try. A successful one is forgotten: if the scenario is tried once more, it runs the same tests
        again."""
        if self._running is not None and successful:
            self._running.unlink()


def _tests(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from _tests(one)
        else:
            yield one
