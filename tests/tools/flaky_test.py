#!/usr/bin/env python3
"""Each row of docs/flaky.md must name a test of this build, with a label of that test. Usage: flaky_test.py BUILD"""
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/dev"


def rows_of(text):
    """Test and label of each row, with the pattern of scripts/lib/stages.sh."""
    return re.findall(r"^\| `([^`]+)` \| ([^|]*?) \|", text, re.MULTILINE)


def labels_of(build):
    """The labels of each test that ctest knows in this build."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True)
    return {test["name"]: next((one["value"] for one in test.get("properties", []) if one["name"] == "LABELS"), [])
            for test in json.loads(shown.stdout)["tests"]}


def wrong(rows, labels):
    """The rows that name no test with that label. A name that ends with `*` stands for all tests with that prefix."""
    def known(name, label):
        if name.endswith("*"):
            return any(label in of for test, of in labels.items() if test.startswith(name[:-1]))
        return label in labels.get(name, [])
    return [name for name, label in rows if not known(name, label)]


class Flaky(unittest.TestCase):
    def test_each_name_is_a_test(self):
        text = (ROOT / "docs/flaky.md").read_text(encoding="utf-8")
        rows = rows_of(text)
        self.assertEqual(len(rows), text.count("\n|") - 2, "each row except the head begins with `a name` and a label")
        self.assertEqual(wrong(rows, labels_of(BUILD)), [])

    def test_a_row_without_a_test_is_found(self):
        labels = {"a/b": ["alone", "integration"], "c": []}
        rows = rows_of("| test | label |\n| --- | --- |\n| `a/b` | alone | x |\n| `a/b` | unit | x |\n| `a` | alone | x |\n"
                       "| `c` | alone | x |\n| `a*` | alone | x |\n| `b*` | alone | x |\n")
        self.assertEqual(wrong(rows, labels), ["a/b", "a", "c", "b*"])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1))
    unittest.main()
