"""Collects what all parts of a ring report about the cards, for the checker (../checker/views.py), and looks into
containers."""
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "checker"))
import read_node  # noqa: E402
import views  # noqa: E402

from . import binder, carve  # noqa: E402
from .process import run  # noqa: E402

# Queries one replica with the scheduler's certificate, from inside the ring's network. Standard input: a list of
# [method, path, body or null]. Standard output: the answers.
ASK = """
import http.client, json, socket, ssl, sys
folder, address = sys.argv[1:]
context = ssl.create_default_context(cafile=folder + "/ca.crt")
context.load_cert_chain(folder + "/tls.crt", folder + "/tls.key")
answers = []
for method, path, body in json.load(sys.stdin):
    connection = http.client.HTTPConnection("unused")
    connection.sock = context.wrap_socket(socket.create_connection((address, 8443), timeout=10),
                                          server_hostname="carve-control.carve-system.svc")
    connection.request(method, path, json.dumps(body) if body else None)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        sys.exit(text)
    answers.append(json.loads(text))
print(json.dumps(answers))
"""


def _filter(node, mebibytes):
    """kube-scheduler's filter call for a pod that requests this much of one card's memory."""
    return ["POST", "/scheduler/filter", {"NodeNames": [node], "Pod": {
        "metadata": {"name": "asked", "namespace": "default", "uid": "asked"}, "spec": {"containers": [
            {"name": "main", "resources": {"limits": {"elasticgpu.io/gpu-memory": str(mebibytes), binder.SLOT: "1"}}}]}}}]


def replicas(ring, room) -> tuple:
    """Of each living replica of control: its ledger, and what it would place given `room` (from the checker: node ->
    MiB)."""
    kube, nodes = ring.kube(), sorted(room)
    secret = kube.secret("carve-scheduler-tls", carve.NAMESPACE)
    folder = ring.state.folder / "scheduler-tls"
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        (folder / name).write_bytes(secret[name])
    questions = [["GET", "/v1/cluster", None]]
    for node in nodes:
        questions += [_filter(node, max(1, room[node])), _filter(node, room[node] + 1)]
    ledgers, fits = {}, {}
    for pod in kube.list("Pod", carve.NAMESPACE):
        name = pod["metadata"]["name"]
        if not name.startswith("carve-control-") or "deletionTimestamp" in pod["metadata"]:
            continue
        answers = json.loads(run([sys.executable, "-c", ASK, folder, pod["status"]["podIP"]], ring.control,
                                 input=json.dumps(questions)).stdout)
        ledgers[name] = answers[0]
        yes = [bool(answer.get("NodeNames")) for answer in answers[1:]]
        fits[name] = {node: (yes[2 * i], yes[2 * i + 1]) for i, node in enumerate(nodes)}
    return ledgers, fits


def of_node(one) -> dict:
    """What the node of `one` (a Carve) reports itself, in the checker's form."""
    node = one.node
    records, notes = read_node.journal((node.folder / "var-lib/carve/journal.d/journal").read_text())
    file = node.folder / "var-lib/kubelet/device-plugins/kubelet_internal_checkpoint"
    return {"resources": read_node.pod_resources(node.outside("/var/lib/kubelet/pod-resources/kubelet.sock")),
            "checkpoint": read_node.checkpoint(file.read_text()), "journal": records, "notes": notes,
            "devices": read_node.devices(node.outside("/run/cdi")), "inspect": one.inspect(), "left": left(one)}


def left(one) -> list:
    """What a node keeps for slices apart from the journal: folders, pages, processes with a card open."""
    found = [f"process {p['pid']} ({p['name']}) with a card" for p in one.living()]
    for folder in ("/run/carve/slices", "/run/carve/arbiter/pages", "/run/carve/arbiter/lifelines", "/run/carve/whole"):
        path = one.node.outside(folder)
        found += [f"{folder}/{entry.name}" for entry in (path.iterdir() if path.is_dir() else ())]
    return found


def physical(carves) -> dict:
    """card -> bytes, as the driver reports them."""
    return {card["uuid"]: card["total_bytes"] for one in carves for card in one.truth("cards")["cards"]}


def everything(ring, carves) -> dict:
    """All reports, in the form that checker/views.py needs."""
    kube = ring.kube()
    gpus = kube.list("GPU", None)
    sizes = {gpu["spec"]["uuid"]: gpu["spec"]["memory"] for gpu in gpus}    # the only source for nodes without a driver
    pods = kube.list("Pod")
    ledgers, room = replicas(ring, views.room_of(pods, gpus))
    return {"nodes": {one.node.name: of_node(one) for one in carves}, "ledgers": ledgers, "room": room, "gpus": gpus,
            "pods": pods, "physical": {**sizes, **physical(carves)}}


def look_now(ring, pod, part, allocate) -> dict:
    """What a new process in a running container sees, and the driver's answer to an allocation of so many bytes."""
    done = ring.kubectl("exec", "-n", pod["metadata"]["namespace"], pod["metadata"]["name"], "-c", part, "--",
                        "ring-look", "allocate", allocate)
    return json.loads(done.stdout.strip().splitlines()[-1])


def look_into_all(ring, wanted) -> list:
    """[(pod, container, bytes to allocate)] -> the results of look_now(), in the same order."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda one: look_now(ring, *one), wanted))
