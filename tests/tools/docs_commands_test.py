#!/usr/bin/env python3
"""Commands of the docs that change the manifests, run on a copy of deploy/: none may leave a place out. Commands that
need a cluster are run on one, by tests/cluster/scenario."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def commands(page, needle):
    """The commands of a page (lines that begin with `$ ` or are indented) that contain `needle`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [re.sub(r"^(\$ | {4})", "", line) for line in text.splitlines()
            if line.startswith(("$ ", "    ")) and needle in line]


class Manifests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "deploy", self.root / "deploy", symlinks=True)

    def run_here(self, command):
        subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.root, check=True, timeout=60)

    def lines(self, pattern):
        """[(file, line)] of the matching lines of all manifests."""
        return [(str(path.relative_to(self.root)), line.strip()) for path in sorted(self.root.rglob("*.yaml"))
                for line in path.read_text(encoding="utf-8").splitlines() if re.search(pattern, line)]

    def test_another_registry_is_used_in_all_manifests(self):
        command, = commands("docs/kubernetes.md", "elasticgpu.io/carve:0.1.0|")
        before = self.lines(r"image: elasticgpu\.io/carve:")
        self.assertGreaterEqual(len({path for path, _ in before}), 7)
        self.run_here(command)
        self.assertEqual(self.lines(r"image: elasticgpu\.io/carve:"), [])
        self.assertEqual(len(self.lines(r"image: registry\.example/carve:0\.1\.0$")), len(before))

    def test_another_namespace_is_used_in_all_jobs(self):
        command, = commands("deploy/chart/README.md", "s/carve-system/gpus/g")
        for path in sorted((self.root / "deploy/jobs").glob("*.yaml")):
            changed = subprocess.run(["bash", "-euo", "pipefail", "-c",
                                      command.replace("deploy/jobs/down.yaml", str(path))
                                   .replace("kubectl apply -f -", "cat")], cwd=self.root, check=True, timeout=60,
                                  capture_output=True, text=True).stdout
            self.assertNotIn("carve-system", changed)
            self.assertIn("\n  namespace: gpus\n", changed)


if __name__ == "__main__":
    unittest.main()
