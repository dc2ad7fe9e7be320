"""Runs headlamp.test.mjs by Node.js. Exit code 77: Node.js 18 or newer is not installed."""
import pathlib
import shutil
import subprocess
import sys

node = shutil.which("node")
if node is None or int(subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout[1:].split(".")[0]) < 18:
    print("SKIPPED: Node.js 18 or newer is not installed")
    sys.exit(77)
sys.exit(subprocess.run([node, "--test", pathlib.Path(__file__).parent / "headlamp.test.mjs"], check=False).returncode)
