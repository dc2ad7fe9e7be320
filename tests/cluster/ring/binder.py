"""A small binder for pods with slots: decides a pod's cards, and writes record and binding in one request.

Its pods name `schedulerName: ring-binder` (which no scheduler serves) or a node directly. The record is written from
its description, not by Carve's code.
"""
import json

from .kube import RESOURCES

SCHEDULER = "ring-binder"
RECORD = "carve.elasticgpu.io/record"
SLOT = "elasticgpu.io/slot"


def record(uid: str, parts: dict, init=(), epoch=1) -> str:
    """The record as one line. parts: container -> [(card UUID, bytes, compute)], in the pod's order."""
    written = []
    for part, cards in parts.items():
        written.append({"part": part, **({"init": True} if part in init else {}), "share": "burst",
                        "priority": "standard", "dialect": "native",
                        "cards": [{"uuid": uuid, "bytes": size, "compute": compute} for uuid, size, compute in cards]})
    return json.dumps({"v": 1, "epoch": epoch, "owner": {"kind": "pod", "uid": uid}, "parts": written},
                      separators=(",", ":"))


def bind(kube, pod, node: str, text: str | None) -> None:
    """Binds a pod. The Binding's annotations carry the record (None: no record)."""
    meta = pod["metadata"]
    body = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}}
    if text is not None:
        body["metadata"]["annotations"] = {RECORD: text}
    base = RESOURCES["Pod"][0]
    kube.request("POST", f"{base}/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", body)


def write_later(kube, pod, text: str) -> None:
    """Writes the record of a pod that has a node already (a patch of its annotations)."""
    kube.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": {RECORD: text}}},
               pod["metadata"]["namespace"])


def with_slots(container: dict, cards=1) -> dict:
    """Adds to the container the slots that the webhook would add: one per card."""
    container["resources"] = {"limits": {SLOT: cards}}
    return container
