#!/usr/bin/env python3
"""Every option of the command line must have a row of bad input in tests/integration/node/bad_input.tsv; its effect
is tested there."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def options_in(source):
    """Long options in the form of flags.cc: "--force" or "-n,--namespace"."""
    return set(re.findall(r'"(?:-[a-z],)?(--[a-z][a-z-]*)"', source))


def tried_in(table):
    """Options in the arguments of the rows."""
    words = set()
    for line in table.splitlines():
        if not line.startswith("#"):
            words.update(word.partition("=")[0] for word in line.split("\t")[0].split())
    return words | ({"--output"} if "-o" in words else set())


class BadInput(unittest.TestCase):
    def test_every_option_has_a_row(self):
        options = options_in((ROOT / "src/cmd/flags.cc").read_text(encoding="utf-8"))
        self.assertGreater(len(options), 45)
        tried = tried_in((ROOT / "tests/integration/node/bad_input.tsv").read_text(encoding="utf-8"))
        self.assertEqual(sorted(options - tried), [])

    def test_a_missing_option_is_found(self):
        options = options_in('add_flag("--old", x); add_option("-n,--new-one", y); text("--not an option")')
        self.assertEqual(options, {"--old", "--new-one"})
        self.assertEqual(options - tried_in("# --new-one\nrun --old=maybe -- true\t--new-one\n"), {"--new-one"})


if __name__ == "__main__":
    unittest.main()
