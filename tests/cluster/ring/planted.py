"""Things left on purpose, one of each kind that an uninstall could forget, to test that the check misses none."""
import contextlib
import json

from . import cgroups
from .kube import RESOURCES

LEFT = "left-behind"
# An object of each kind in the API server.
OBJECTS = [
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
     "metadata": {"name": "marks.left-behind.example"}, "spec": {
         "group": "left-behind.example", "scope": "Cluster", "names": {"plural": "marks", "kind": "Mark"}, "versions": [
             {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": LEFT},
     "spec": {"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [
         {"apiGroups": ["left-behind.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["marks"]}]}}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
     "metadata": {"name": LEFT}, "spec": {"policyName": LEFT, "validationActions": ["Audit"]}},
    *({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": LEFT}, "webhooks": []}
      for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")),
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": LEFT}, "rules": []},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": LEFT},
     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": LEFT}, "subjects": []},
    *({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": LEFT, "namespace": "kube-system"},
       **more} for kind, more in (("Role", {"rules": []}), ("RoleBinding", {"subjects": [], "roleRef": {
           "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LEFT}}))),
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEFT, "namespace": "kube-system"}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEFT}},
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": LEFT}, "value": 1},
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": LEFT}, "spec": {}},
]
FILES = ("/etc/cdi/left-behind.json", "/run/cdi/left-behind.json", "/run/carve/left-behind", "/usr/lib/carve/left-behind",
         "/var/lib/carve/left-behind", "/var/lib/kubelet/device-plugins/left-behind.sock",
         "/var/lib/kubelet/plugins_registry/left-behind.sock")
MOUNT = "/run/carve-left-mount"
GONE = {"elasticgpu.io/left-behind": None}


def write(node, path) -> None:
    """Writes a file on a node, with its folders."""
    file = node.outside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")


class Planted:
    """A context manager: plants on a ring and its first node, and removes everything at the end. `wanted`: for each
    planted thing the beginning and the end of the line that must report it."""

    def __init__(self, ring):
        self.ring, self.kube, self.node = ring, ring.kube(), ring.node(1)
        self.group = cgroups.roots_of(self.node.name)[0] / "carve-left-behind"
        self.wanted = []

    def __enter__(self):
        try:
            self.plant_objects()
            self.plant_on_node()
        except BaseException:
            self.__exit__()
            raise
        return self

    def plant_objects(self):
        for one in OBJECTS:
            self.ring.kubectl("apply", "-f", "-", input=json.dumps(one))
            self.wanted.append((RESOURCES[one["kind"]][1], " " + one["metadata"]["name"]))
        name = self.node.name
        mark = {"type": "LeftBehind", "status": "True", "reason": "Test", "message": ""}
        self.kube.patch("Node", name, {"metadata": {"labels": {"elasticgpu.io/left-behind": "yes"}}})
        self.kube.patch("Node", name, {"status": {"conditions": [mark]}}, sub="status",
                        content="application/strategic-merge-patch+json")
        self.kube.patch("Node", name, {"status": {"capacity": {"elasticgpu.io/left-behind": "7"}}}, sub="status")
        self.wanted += [(name, f" {what}") for what in ("labels elasticgpu.io/left-behind", "conditions LeftBehind",
                                                        "capacity elasticgpu.io/left-behind")]

    def plant_on_node(self):
        name = self.node.name
        for path in FILES:
            write(self.node, path)
            # In Carve's own folders the report names the folder.
            own = path.rpartition("/")[0] if path.startswith(("/run/carve/", "/var/lib/carve/")) else path
            self.wanted.append((name, f"file {own}"))
        self.group.mkdir()
        self.node.outside(MOUNT).mkdir()
        self.node.run(["mount", "-t", "tmpfs", "carve-left-mount", MOUNT])
        self.wanted += [(name, f"cgroup {self.group}"), (name, f"mount {MOUNT} (carve-left-mount)")]

    def missed(self, found) -> list:
        """The planted things that these lines do not name."""
        return [one for one in self.wanted
                if not any(line.startswith(one[0]) and line.endswith(one[1]) for line in found)]

    def __exit__(self, *_):
        self.node.run(["umount", MOUNT], check=False)
        self.node.run(["rm", "-rf", MOUNT, "/run/carve", "/var/lib/carve", "/usr/lib/carve", *FILES], check=False)
        with contextlib.suppress(OSError):
            self.group.rmdir()
        for one in OBJECTS[::-1]:
            self.ring.kubectl("delete", "--ignore-not-found", "-f", "-", input=json.dumps(one), check=False)
        self.kube.patch("Node", self.node.name, {"metadata": {"labels": GONE}})
        self.kube.patch("Node", self.node.name, {"status": {
            "conditions": [{"$patch": "delete", "type": "LeftBehind"}], "capacity": GONE, "allocatable": GONE}},
            sub="status", content="application/strategic-merge-patch+json")
