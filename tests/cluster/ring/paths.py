"""Where things lie: the repository, the cache of built binaries, and the state folder of a running ring."""
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent        # tests/cluster
REPOSITORY = HERE.parent.parent
MODULES = HERE / "modules"


def cache() -> Path:
    """The folder for what is slow to make and safe to delete (env CARVE_CACHE, else ~/.cache/carve)."""
    return Path(os.environ.get("CARVE_CACHE") or Path.home() / ".cache" / "carve") / "cluster"


def state() -> Path:
    """The state folder of the one ring of this machine. Short: socket paths below it must fit in 107 bytes."""
    return Path(os.environ.get("CARVE_RING_STATE") or "/run/carve-ring")
