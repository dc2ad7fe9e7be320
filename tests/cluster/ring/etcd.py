"""etcd, the store of the API server. Without fsync, because a ring does not outlive the machine."""
from .process import spawn


def start(state, binaries, certificates, place) -> int:
    data = state.folder / "etcd"
    data.mkdir(mode=0o700, exist_ok=True)
    return spawn(state, "etcd", [
        binaries["etcd"], "--name=ring", f"--data-dir={data}", "--unsafe-no-fsync", "--log-level=warn",
        "--heartbeat-interval=1000", "--election-timeout=10000",
        "--listen-client-urls=https://127.0.0.1:2379", "--advertise-client-urls=https://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=ring=http://127.0.0.1:2380", "--client-cert-auth",
        f"--trusted-ca-file={certificates.file('ca.crt')}", f"--cert-file={certificates.file('etcd.crt')}",
        f"--key-file={certificates.file('etcd.key')}"], place)
