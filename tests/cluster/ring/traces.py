"""What an installation left behind: in the API server, on Nodes, on the nodes' disks. `Before` compares with the
start."""
import os
import time
from pathlib import Path

from . import binder, cgroups
from .kube import ApiError

WORDS = ("carve", "elasticgpu", "aliyun.com/gpu", "nvidia.com/gpu")
# The simulated driver and this ring's own.
RINGS = ("simulated-driver",)


def collections(kube) -> list:
    """[(path, resource)] of everything that can be listed, each in its group's preferred version."""
    groups = [("/api/v1", "")] + [(f"/apis/{group['preferredVersion']['groupVersion']}", group["name"])
                                  for group in kube.request("GET", "/apis")["groups"]]
    found = []
    for base, group in groups:
        for resource in kube.request("GET", base)["resources"]:
            if "/" not in resource["name"] and "list" in resource["verbs"] and resource["name"] != "events":
                found.append((f"{base}/{resource['name']}", f"{resource['name']}.{group}".rstrip(".")))
    return found


def items_of(kube, path, seconds=30) -> list:
    """The listed objects; none when the API was removed in the meantime. Waits for an API that was just added."""
    until = time.monotonic() + seconds
    while True:
        try:
            return kube.request("GET", path)["items"]
        except ApiError as error:
            if error.status in (404, 405):
                return []
            if error.status != 429 or time.monotonic() > until:     # "storage is (re)initializing"
                raise
        time.sleep(0.2)


def objects(kube) -> dict:
    """(resource, namespace, name) -> object, of the whole cluster except events."""
    found = {}
    for path, resource in collections(kube):
        for item in items_of(kube, path):
            meta = item["metadata"]
            found[(resource, meta.get("namespace", ""), meta["name"])] = item
    return found


def words_in(value, where="") -> list:
    """["path = text"] for each key and text in a JSON value that contains one of WORDS."""
    if isinstance(value, dict):
        return [line for key, below in value.items()
                for line in ([f"{where}.{key}"] if any(word in key for word in WORDS) else [])
                + words_in(below, f"{where}.{key}")]
    if isinstance(value, list):
        return [line for i, below in enumerate(value) for line in words_in(below, f"{where}[{i}]")]
    return [f"{where} = {value}"] if isinstance(value, str) and any(word in value for word in WORDS) else []


# Folders that several drivers share: everything in them counts, regardless of its name.
SHARED = ("/etc/cdi", "/run/cdi", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins",
          "/var/lib/kubelet/plugins_registry", "/usr/lib/carve")
NOT_LOOKED_INTO = ("/var/lib/containerd", "/run/containerd", "/dev/shm", "/dev/pts", "/dev/mqueue", "/dev/hugepages")
KUBELETS = ("kubelet.sock", "kubelet_internal_checkpoint")      # the kubelet's own files there


def files(node, roots=("/var/lib", "/run", "/etc", "/dev")) -> set:
    """Paths on a node that name Carve in their last part, and everything in the folders that drivers share. Of a folder
    it lists the folder's path, not its content. Not containerd's store of images, which is the runtime's, nor logs of
    pods, which the kubelet removes later (within a minute)."""
    found = {f"{folder}/{entry.name}" for folder in SHARED if node.outside(folder).is_dir()
             for entry in node.outside(folder).iterdir() if entry.name not in KUBELETS}

    def look(folder, path):
        for entry in sorted(folder.iterdir()):
            here = f"{path}/{entry.name}"
            if any(word in entry.name for word in WORDS[:2]):
                found.add(here)
            elif entry.is_dir() and not entry.is_symlink() and here not in NOT_LOOKED_INTO \
                    and not entry.name.startswith(RINGS):
                look(entry, here)

    for root in roots:
        look(node.outside(root), root)
    return found


def mounts(node) -> set:
    """Mounts of a node that name Carve in source or mount point: "PLACE (SOURCE)"."""
    found = set()
    for line in Path(f"/proc/{node.state.pid(f'{node.name}-namespace')}/mountinfo").read_text().splitlines():
        left, right = line.split(" - ")
        place, source = left.split()[4], right.split()[1]
        if any(word in part for word in WORDS[:2] for part in (source, *place.split("/"))):
            found.add(f"{place} ({source})")
    return found


def groups(node) -> set:
    """Cgroups of a node, in any hierarchy, with Carve's name in their own."""
    return {f"{above}/{name}" for root in cgroups.roots_of(node.name) for above, below, _ in os.walk(root)
            for name in below if any(word in name for word in WORDS[:2])}


def on_node(node) -> set:
    """All of these, each prefixed with its kind."""
    return {f"{kind} {one}" for kind, look in (("file", files), ("mount", mounts), ("cgroup", groups)) for one in look(node)}


def names_on(node) -> list:
    """["field name"] of what components wrote to a Node."""
    meta, status = node["metadata"], node["status"]
    fields = {"labels": meta.get("labels", {}), "annotations": meta.get("annotations", {}),
              "finalizers": meta.get("finalizers", []), "taints": [one["key"] for one in node["spec"].get("taints", [])],
              "conditions": [one["type"] for one in status.get("conditions", [])],
              "capacity": status.get("capacity", {}), "allocatable": status.get("allocatable", {})}
    return [f"{field} {name}" for field, names in fields.items() for name in names]


class Before:
    """Everything on a ring at construction. left() tells later what was added."""

    def __init__(self, ring):
        self.ring, self.kube = ring, ring.kube()
        self.objects = objects(self.kube)
        self.nodes = {node.name: on_node(node) for node in ring.nodes}

    def left(self) -> list:
        """Added objects, fields of Nodes, files, mounts, cgroups. Ignores a node's own coordination.k8s.io Lease, which
        is created some seconds after its kubelet started."""
        found = [" ".join(key) for key in set(objects(self.kube)) - set(self.objects) if key[1] != "kube-node-lease"]
        found += [f"{node}: {line}" for node, lines in self.left_on_nodes().items() for line in lines]
        found += [f"{node.name}: {one}" for node in self.ring.nodes for one in on_node(node) - self.nodes[node.name]]
        return sorted(found)

    def left_on_nodes(self) -> dict:
        """Node -> what it has that it did not have before: names of labels, conditions, totals and similar fields, and
        other places that name Carve or one of its resources."""
        found = {}
        for name in self.nodes:
            now = self.kube.get("Node", name)
            now["status"].pop("images", None)       # what the runtime has in its store
            before = self.objects[("nodes", "", name)]
            was = [*words_in(before), *names_on(before)]
            # The kubelet counts slots: it keeps 0 of a resource that a plugin once served.
            if lines := [line for line in [*words_in(now), *names_on(now)] if line not in was and not line.endswith(binder.SLOT)]:
                found[name] = lines
        return found
