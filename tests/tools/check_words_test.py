#!/usr/bin/env python3
"""tools/check_words must find each planted word, and nothing in plain text."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_words"

PLAIN = ("The operator who wants shares sets them. None of the pods waits; the new one is standing by. "
         "An overlooked node is named until it is full. Notices, holds and expected values are words. "
         "Some 4 GiB cards are full. carve-system heals; a lesson, a tilled field, mendacious.\n")

# Split, so that this file does not contain what it plants.
PLANTED = ("the file is made a" "new", "Who" "ever calls", "to wh" "om it belongs", "it is no" "ne of ours",
           "named in va" "in", "some 1" "0 ms", "class Wa" "ker {", "KnownP" "od pod;",
           '#include "app/control/turned_a' 'way.h"')


class CheckWords(unittest.TestCase):
    def run_on(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "."], check=True)
            return subprocess.run([sys.executable, str(TOOL), folder], capture_output=True, text=True, check=False)

    def test_plain_text_passes(self):
        done = self.run_on("docs/page.md", PLAIN)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 files read, 0 findings", done.stdout)

    def test_every_planted_word_is_found(self):
        for text in PLANTED:
            with self.subTest(text):
                done = self.run_on("docs/page.md", f"plain\n{text}\n")
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertRegex(done.stdout, r"(?m)^docs/page\.md:2: .* -> ")

    def test_other_files_are_not_read(self):
        self.assertEqual(self.run_on("docs/page.txt", PLANTED[0]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
