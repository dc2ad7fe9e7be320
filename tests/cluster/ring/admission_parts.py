"""The objects of Carve's admission (webhooks and policies), one by one, for control as a process (placing.py).

Each part is what one object costs or does: a webhook configuration, or a policy with its binding. The API server calls
control's own port: the Service is an ExternalName for the loopback address, so no proxy is in the path.
"""
import json

from . import carve, placing
from .kube import ApiError, wait_for

WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
FILES = ("control/webhook.yaml", "control/record-policy.yaml", "control/leader-policy.yaml",
         "control/control-policy.yaml", "agent-policy.yaml")
IN_FORCE_S = 2.5        # the API server compiles changed policies once a second


def read(where, deploy=placing.DEPLOY):
    """name -> the objects of that part, in the order of the files."""
    found = {}
    for file in FILES:
        text = where.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", deploy / file).stdout
        decoder, at = json.JSONDecoder(), 0
        items = []
        while at < len(text.rstrip()):
            item, at = decoder.raw_decode(text, at)
            items += item.get("items", [item])
            while at < len(text) and text[at].isspace():
                at += 1
        for item in items:
            name = item["metadata"]["name"]
            if item["kind"] in WEBHOOKS:
                name = item["kind"].removesuffix("WebhookConfiguration").lower() + " webhook"
                for hook in item["webhooks"]:
                    hook["clientConfig"]["service"]["port"] = where.ports["tls"]
            found.setdefault(name.removesuffix(".elasticgpu.io"), []).append(item)
    return found


def make_service(where):
    where.kube.create({"apiVersion": "v1", "kind": "Service",
                       "metadata": {"name": "carve-control", "namespace": carve.NAMESPACE},
                       "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}})


def has_authority(where, kind):
    found = where.kube.get(kind, "carve-admission", None)
    return all(hook["clientConfig"].get("caBundle") for hook in found["webhooks"])


def put(where, objects):
    """Creates the objects. They are in force a moment later: wait_in_force()."""
    for item in objects:
        where.kube.create(item)
    for item in objects:
        if item["kind"] in WEBHOOKS:
            wait_for("control has written its authority", 30, lambda kind=item["kind"]: has_authority(where, kind))


def remove(where, objects):
    for item in reversed(objects):
        where.kube.delete(item["kind"], item["metadata"]["name"], None)


def install(where, parts=None, only=None):
    """All parts (or `parts`, or the part `only` of them). Returns when the API server calls the mutating webhook."""
    parts = parts or read(where)
    if where.kube.get("Service", "carve-control", carve.NAMESPACE) is None:
        make_service(where)
    for name, objects in parts.items():
        if only in (None, name):
            put(where, objects)
    asks = {"elasticgpu.io/gpu-memory": "8192"}

    def mutated():
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"},
                "spec": {"automountServiceAccountToken": False,
                         "containers": [{"name": "main", "image": "none", "resources": {"limits": asks}}]}}
        try:
            stored = where.kube.request("POST", where.kube.path("Pod", None, "default", dryRun="All"), made)
        except ApiError:
            return False
        return "elasticgpu.io/slot" in stored["spec"]["containers"][0]["resources"]["limits"]
    wait_for("the webhook is in force", 30, mutated)
