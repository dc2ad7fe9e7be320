#!/usr/bin/env python3
"""Commands by which the docs change the manifests, run on a copy of deploy/: each leaves nothing out. What needs a
cluster is run on one, by tests/cluster/scenario."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(page, needle):
    """The lines of a page's fenced blocks that begin with `$ ` and name `needle`, without that."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [line[2:] for line in text.splitlines() if line.startswith("$ ") and needle in line]


class Manifests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "deploy", self.root / "deploy", symlinks=True)

    def run_here(self, command):
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.root, check=True, timeout=60)

    def lines(self, pattern):
        """[(file, line)] of all manifests."""
        return [(str(path.relative_to(self.root)), line.strip()) for path in sorted(self.root.rglob("*.yaml"))
                for line in path.read_text(encoding="utf-8").splitlines() if re.search(pattern, line)]

    def test_a_registry_of_ones_own_is_named_everywhere(self):
        command, = commands("docs/kubernetes.md", "elasticgpu.io/carve:0.1.0|")
        before = self.lines(r"image: elasticgpu\.io/carve:")
        self.assertGreaterEqual(len({path for path, _ in before}), 7)
        self.run_here(command)
        self.assertEqual(self.lines(r"image: elasticgpu\.io/carve:"), [])
        self.assertEqual(len(self.lines(r"image: registry\.example/carve:0\.1\.0$")), len(before))


if __name__ == "__main__":
    unittest.main()
