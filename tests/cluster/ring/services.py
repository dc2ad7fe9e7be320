"""Services of the ring: what kube-proxy and the cluster's DNS do in production, small and in user space.

usage: python3 services.py AUTHORITY CERTIFICATE KEY
Runs in the ring's network namespace. Adds each Service's cluster address to the loopback interface and forwards its TCP
ports to an endpoint that is ready at that moment. NAME.NAMESPACE.svc[.DOMAIN] resolves to that address (one A record;
other names get NXDOMAIN). Not supported: UDP, session affinity, node ports, headless services.
"""
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

if __package__ is None:                 # started as a program: the package is the folder above
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    __package__ = "ring"
from . import port_forward, network             # noqa: E402
from .kube import ApiError, Kube        # noqa: E402

FRESH = 0.3         # seconds for which a list of endpoints is used again
SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io/service-name%3D{}"


class Endpoints:
    """The ready addresses behind one port of a Service."""

    def __init__(self, kube, service, port):
        self.kube = kube
        meta = service["metadata"]
        self.path = SLICES.format(meta["namespace"], meta["name"])
        self.port_name = port.get("name", "")
        self.known, self.asked = [], 0.0

    def ready(self):
        if time.monotonic() - self.asked > FRESH:
            found = []
            for item in self.kube.request("GET", self.path, timeout=5)["items"]:
                ports = [p["port"] for p in item.get("ports") or [] if (p.get("name") or "") == self.port_name]
                found += [(address, port) for port in ports for one in item.get("endpoints") or []
                          if one.get("conditions", {}).get("ready") for address in one["addresses"]]
            self.known, self.asked = found, time.monotonic()
        return random.sample(self.known, len(self.known))


def serve(client, endpoints):
    """Forwards one connection to the first endpoint that accepts it."""
    try:
        candidates = endpoints.ready()
    except (OSError, ApiError):
        candidates = endpoints.known
    for address in candidates:
        try:
            server = socket.create_connection(address, timeout=2)
        except OSError:
            continue
        server.settimeout(None)
        port_forward.join(client, server)
        return
    client.close()


def accept(listener, endpoints):
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return              # the Service is gone
        threading.Thread(target=serve, args=(client, endpoints), daemon=True).start()


class Proxy:
    """Keeps one listener per port of each Service."""

    def __init__(self, kube):
        self.kube = kube
        self.addresses = {}     # (namespace, name) -> cluster address
        self.listeners = {}     # (address, port) -> socket

    def follow(self, services):
        wanted = {}
        self.addresses = {}
        for service in services:
            meta, address = service["metadata"], service["spec"].get("clusterIP")
            if address in (None, "None"):
                continue
            self.addresses[(meta["namespace"], meta["name"])] = address
            if address == network.API_SERVICE:
                continue        # the API server listens there itself
            for port in service["spec"].get("ports") or []:
                if port.get("protocol", "TCP") == "TCP":
                    wanted[(address, port["port"])] = (service, port)
        for key in list(self.listeners):
            if key not in wanted:
                listener = self.listeners.pop(key)
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()
        for key, (service, port) in wanted.items():
            if key not in self.listeners:
                subprocess.run(["ip", "addr", "replace", f"{key[0]}/32", "dev", "lo"], check=True)
                self.listeners[key] = socket.create_server(key, backlog=128)
                threading.Thread(target=accept, daemon=True,
                                 args=(self.listeners[key], Endpoints(self.kube, service, port))).start()


def answer(query, addresses):
    """A DNS answer to one question; None when the query is not one question."""
    if len(query) < 12 or struct.unpack(">H", query[4:6])[0] != 1:
        return None
    labels, at = [], 12
    while at < len(query) and query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("ascii", "replace").lower())
        at += 1 + query[at]
    question = query[12:at + 5]
    if len(question) != at - 7:
        return None
    tail = network.CLUSTER_DOMAIN.split(".")
    address = None
    if labels[2:] in (["svc"], ["svc"] + tail):
        address = addresses.get((labels[1], labels[0]))
    wants_a = question[-4:-2] == b"\0\1"
    records = b""
    if address and wants_a:
        records = b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 1, 4) + socket.inet_aton(address)
    code = 0 if address else 3          # 3: NXDOMAIN
    return query[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, 1 if records else 0, 0, 0) + question + records


def serve_names(proxy):
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asked.bind((network.DNS_SERVICE, 53))
    while True:
        query, sender = asked.recvfrom(4096)
        reply = answer(query, proxy.addresses)
        if reply:
            asked.sendto(reply, sender)


def main():
    authority, certificate, key = sys.argv[1:4]
    kube = Kube(network.API_PORT, authority, certificate, key)
    proxy = Proxy(kube)
    threading.Thread(target=serve_names, args=(proxy,), daemon=True).start()
    while True:
        try:
            known = kube.request("GET", kube.path("Service", namespace=None))
            proxy.follow(known["items"])
            kube.wait_for_change("Service", known["metadata"]["resourceVersion"])
        except (OSError, ApiError) as error:
            print(f"services unchanged: {error}", flush=True)
            time.sleep(0.3)


if __name__ == "__main__":
    main()
