"""The pods' network on a node: CNI's ptp with host-local addresses, both from Debian's containernetworking-plugins."""
import json
from pathlib import Path

PLUGINS = Path("/usr/lib/cni")


def configure(var_lib: Path, subnet: str) -> None:
    """Writes the configuration that the node sees as /var/lib/cni/net.d/10-ring.conflist."""
    for plugin in ("ptp", "host-local"):
        if not (PLUGINS / plugin).exists():
            raise SystemExit(f"ring: {PLUGINS / plugin} is missing: apt-get install containernetworking-plugins")
    folder = var_lib / "cni" / "net.d"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-ring.conflist").write_text(json.dumps({
        "cniVersion": "1.0.0", "name": "ring", "plugins": [{
            "type": "ptp", "ipMasq": False,
            "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/addresses",
                     "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}))
