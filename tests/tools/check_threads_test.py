#!/usr/bin/env python3
"""tools/check_threads must find each planted violation, and nothing in a clean tree."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_threads"

COUNTER = """#include "base/mutex.h"
#include "base/thread.h"
namespace carve {
struct Counter {
  int add() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return ++value_;
  }
  int peek() const;
  mutable Mutex mutex_;
  int value_ GUARDED_BY(mutex_) = 0;
};
int Counter::peek() const {%s
  return value_;
}
void run(Counter& counter) { const Thread thread("adder", [&] { counter.add(); }); }
}  // namespace carve
"""
LOCKED, UNLOCKED = "\n  const MutexLock lock(mutex_);", ""
PAGE = """| thread | does |
| --- | --- |
| `adder` | adds |

| lock | file | protects |
| --- | --- | --- |
| `mutex_` | `src/app/counter.cc` | the value |
"""
CLEAN = {"src/app/counter.cc": COUNTER % LOCKED, "docs/threads.md": PAGE}
PLANTED = {
    "std::mutex": ({"src/app/other.cc": "std::mutex mutex;\n"}, "src/app/other.cc:1: std::mutex"),
    "std::thread": ({"sim/other.cc": "\nstd::thread t([] {});\n"}, "sim/other.cc:2: std::thread"),
    "std::jthread": ({"src/cmd/other.h": "std::vector<std::jthread> all;\n"}, "src/cmd/other.h:1: std::jthread"),
    "pthread_create": ({"preload/other.cc": "pthread_create(&t, 0, f, 0);\n"}, "preload/other.cc:1: pthread_create"),
    "detach in a test": ({"src/app/other_test.cc": "std::thread([] {}).detach();\n"}, "src/app/other_test.cc:1: .detach()"),
    "a thread without a row": ({"src/app/other.cc": 'Thread t("other", [] {});\n'}, "no row for the thread `other`"),
    "a row without a thread": ({"docs/threads.md": PAGE.replace("| `adder`", "| `adder`, `gone`")},
                               "no source names a thread `gone`"),
    "a lock without a row": ({"src/app/other.h": "  Mutex names_;\n"}, "no row for the lock `names_` of `src/app/other.h`"),
    "a row without a lock": ({"docs/threads.md": PAGE + "| `gone_` | `src/app/counter.cc` | x |\n"},
                             "`src/app/counter.cc` has no lock `gone_`"),
}


class CheckThreads(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "tree")
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        (self.root / "src/base").mkdir(parents=True)
        for header in ("annotations.h", "mutex.h", "thread.h", "thread_name.h"):
            shutil.copy(ROOT / "src/base" / header, self.root / "src/base")

    def run_on(self, files, *arguments):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        return subprocess.run([sys.executable, str(TOOL), str(self.root), *arguments], capture_output=True, text=True,
                              check=False)

    def test_a_clean_tree_passes(self):
        done = self.run_on({**CLEAN, "src/app/other_test.cc": "std::thread t([] {});\n// std::mutex\n"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1 threads, 1 locks, 0 violations", done.stdout)

    def test_every_planted_violation_is_found(self):
        for what, (files, message) in PLANTED.items():
            with self.subTest(what):
                done = self.run_on({**CLEAN, **files})
                self.assertEqual(done.returncode, 1, f"{what}: not found\n{done.stdout}{done.stderr}")
                self.assertIn(message, done.stdout)
                for name in files:
                    (self.root / name).unlink()

    def test_an_access_without_the_lock_is_found_also_after_a_run_that_passed(self):
        cache = str(self.root.parent / "cache")
        for _ in range(2):
            done = self.run_on(CLEAN, "--compile", cache)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("1 sources in 1 units", done.stdout)
        done = self.run_on({"src/app/counter.cc": COUNTER % UNLOCKED}, "--compile", cache)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"counter\.cc:14:.* reading variable 'value_' requires holding mutex 'mutex_'")


if __name__ == "__main__":
    unittest.main()
