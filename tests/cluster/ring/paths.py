"""Where files are: the repository, the cache of built binaries, and the state folder of a running ring."""
import os
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent        # tests/cluster
REPOSITORY = HERE.parent.parent
MODULES = HERE / "modules"


def cache() -> Path:
    """The folder for files that are slow to build and safe to delete (env CARVE_CACHE, else ~/.cache/carve)."""
    return Path(os.environ.get("CARVE_CACHE") or Path.home() / ".cache" / "carve") / "cluster"


def name() -> str:
    """The ring's name (env CARVE_RING): rings of different names run next to each other and share nothing."""
    return os.environ.get("CARVE_RING") or "carve-ring"


def state() -> Path:
    """The state folder of the ring of that name. It is not below /run or /var/lib, because the nodes mount over
    those."""
    return Path("/var/cache") / name()


def kept_logs() -> Path:
    """Where the logs of a ring that failed are kept; the next failure replaces them."""
    return Path(os.environ.get("CARVE_RING_LOGS") or f"/var/tmp/{name()}-logs")
