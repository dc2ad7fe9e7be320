"""Nodes that exist only at the API server: a Node and its GPU objects as an agent would write them, no kubelet.

Control and the scheduler place pods there as on any node. Such a pod stays Pending and is deleted with grace 0.
"""
import copy
import uuid

LABEL = "ring.test/bare"


def make(kube, like: str, count: int, mebibytes: int | None = None) -> list:
    """Creates nodes, each with cards of its own, as copies of the real node `like`; returns their names. `mebibytes`:
    the memory of each card, when it differs from the original's."""
    model = kube.get("Node", like)
    cards = [gpu for gpu in kube.list("GPU", None) if gpu["spec"]["nodeName"] == like]
    names = [f"bare-{i}" for i in range(1, count + 1)]
    for name in names:
        sizes = {key: copy.deepcopy(model["status"][key]) for key in ("capacity", "allocatable")}
        # Without a label for the operating system, so that no DaemonSet selects the node.
        made = kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, LABEL: "true"}}, "spec": {}, "status": {
                **sizes, "conditions": [{"type": "Ready", "status": "True", "reason": "Ring"}]}})
        for number, card in enumerate(cards):
            own = "GPU-" + str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{number}"))
            gpu = {"apiVersion": card["apiVersion"], "kind": "GPU",
                   "metadata": {"name": f"{name}.{own.lower()}", "ownerReferences": [{
                       "apiVersion": "v1", "kind": "Node", "name": name, "uid": made["metadata"]["uid"]}]},
                   "spec": {**card["spec"], "nodeName": name, "uuid": own}}
            status = {**card["status"], "holders": [], "allocated": {}, "free": card["status"]["capacity"]}
            if mebibytes is not None:
                gpu["spec"]["memory"] = mebibytes << 20
                size = {**status["capacity"], "elasticgpu.io/gpu-memory": str(mebibytes)}
                status |= {"capacity": size, "allocatable": size, "free": size}
            kube.create(gpu)
            kube.patch("GPU", gpu["metadata"]["name"], {"status": status}, sub="status")
    return names


def with_card(create, kube, name: str, holders=(), gib=16) -> None:
    """Creates a node with one card of `gib` GiB, served by the device plugin. `create` creates and remembers
    objects."""
    size = {"elasticgpu.io/gpu-memory": str(gib << 10), "elasticgpu.io/gpu-core": "100"}
    create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}})
    own = f"GPU-{name}"
    create({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": f"{name}.{own.lower()}"},
            "spec": {"index": 0, "uuid": own, "memory": gib << 30, "nodeName": name, "vendor": "nvidia", "plugins": ["slots"]}})
    kube.patch("GPU", f"{name}.{own.lower()}", {"status": {"state": "Healthy", "capacity": size, "allocatable": size,
                                                           "free": size, "holders": list(holders)}}, sub="status")


def remove(kube, names) -> None:
    for gpu in kube.list("GPU", None):
        if gpu["spec"]["nodeName"] in names:
            kube.delete("GPU", gpu["metadata"]["name"])
    for name in names:
        kube.delete("Node", name)
