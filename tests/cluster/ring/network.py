"""The ring's network: a network namespace of its own, so that its ports and interfaces cannot collide with others.

It contains the loopback interface with the API server's service address and one address per node, and the pods' veth
pairs. The only way out is port_forward.py, a forwarder from the host's loopback to the API server.
"""
import os

from .process import CLONE_NEWNET, Place, run, spawn, unshare

SERVICE_RANGE = "10.96.0.0/24"
API_SERVICE = "10.96.0.1"
API_PORT = 443                 # the port of the service `kubernetes`: pods reach the server itself, without kube-proxy
DNS_SERVICE = "10.96.0.10"
CLUSTER_DOMAIN = "ring.test"


def node_address(index: int) -> str:
    return f"10.95.0.{index}"


def pod_subnet(index: int) -> str:
    return f"10.94.{index}.0/24"


def make(state, tracker, nodes: int) -> int:
    """Creates the namespace, which a process of its own holds. Returns its pid."""
    pid = spawn(state, "network-namespace", ["sleep", "infinity"], Place(tracker), before=lambda: unshare(CLONE_NEWNET))
    place = Place(tracker, network_of=pid)
    addresses = "".join(f"addr add {node_address(i)}/32 dev lo\n" for i in range(1, nodes + 1))
    run(["ip", "-batch", "-"], place, input="link set lo up\n"
        f"addr add {API_SERVICE}/32 dev lo\naddr add {DNS_SERVICE}/32 dev lo\n" + addresses)

    def forward():
        place.enter()
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as knob:
            knob.write("1")

    import subprocess
    subprocess.run(["true"], preexec_fn=forward, check=True)
    return pid


def namespace_id(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")
