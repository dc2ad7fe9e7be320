"""A thin client of the API server for tests: JSON over HTTPS, one connection per thread, no cache."""
import base64
import http.client
import json
import ssl
import threading
from urllib.parse import urlencode

from .process import until

CORE = "/api/v1"
RESOURCES = {       # kind -> (group and version, plural, namespaced); the kinds that the ring and its tests use
    "Pod": (CORE, "pods", True),
    "Node": (CORE, "nodes", False),
    "Namespace": (CORE, "namespaces", False),
    "Event": (CORE, "events", True),
    "ResourceQuota": (CORE, "resourcequotas", True),
    "ServiceAccount": (CORE, "serviceaccounts", True),
    "Service": (CORE, "services", True),
    "ConfigMap": (CORE, "configmaps", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "Deployment": ("/apis/apps/v1", "deployments", True),
    "ControllerRevision": ("/apis/apps/v1", "controllerrevisions", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "ResourceSlice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
    "ResourceClaim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("/apis/resource.k8s.io/v1", "resourceclaimtemplates", True),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "ValidatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding":
        ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", False),
    "MutatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", False),
    "MutatingAdmissionPolicyBinding":
        ("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", False),
    "MutatingWebhookConfiguration":
        ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration":
        ("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases", True),
    "Secret": (CORE, "secrets", True),
    "PriorityClass": ("/apis/scheduling.k8s.io/v1", "priorityclasses", False),
    "GPU": ("/apis/elasticgpu.io/v1alpha1", "gpus", False),
    "ElasticGPU": ("/apis/elasticgpu.io/v1alpha1", "elasticgpus", False),
    "ElasticGPUClaim": ("/apis/elasticgpu.io/v1alpha1", "elasticgpuclaims", True),
}


class ApiError(Exception):
    def __init__(self, method, path, status, body):
        try:
            message = json.loads(body)["message"]
        except (ValueError, KeyError, TypeError):
            message = body[:500].decode(errors="replace")
        super().__init__(f"{method} {path}: {status} {message}")
        self.status = status


class Kube:
    """Talks to https://127.0.0.1:PORT as the user of the certificate or token."""

    def __init__(self, port, authority, certificate=None, key=None, token=None):
        self.port = port
        self.context = ssl.create_default_context(cafile=str(authority))
        if certificate:
            self.context.load_cert_chain(str(certificate), str(key))
        self.token = token
        self.headers = {}       # additional headers of every request
        self.local = threading.local()

    def request(self, method, path, body=None, content="application/json", timeout=60, raw=False):
        """Returns the answer as JSON (raw: text). ApiError when the status is not 2xx; OSError when the server is
        unreachable."""
        # Compact, as kubectl writes it: the server keeps opaque parameters byte by byte. When they are not compact, it
        # treats every later patch of the claim's status as a change of its allocation.
        data = None if body is None else json.dumps(body, separators=(",", ":"))
        headers = {"Accept": "application/json", "Content-Type": content, **self.headers}
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        for attempt in (1, 2):
            connection = getattr(self.local, "connection", None)
            fresh = connection is None
            if fresh:
                connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=timeout)
                self.local.connection = connection
            elif connection.sock is not None:
                connection.sock.settimeout(timeout)
            try:
                connection.request(method, path, body=data, headers=headers)
                answer = connection.getresponse()
                content_read = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if fresh or attempt == 2:       # not fresh: the server had closed the kept connection, so try again
                    raise
        if answer.status >= 300:
            raise ApiError(method, path, answer.status, content_read)
        return content_read.decode(errors="replace") if raw else json.loads(content_read)

    def wait_for_change(self, kind, version, seconds=240):
        """Waits until an object of the kind is not as in a list of that resource version, for this time at most. Errors as
        for request()."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=seconds + 30)
        path = self.path(kind, namespace=None, watch="true", resourceVersion=version, timeoutSeconds=seconds)
        try:
            connection.request("GET", path, headers={"Authorization": "Bearer " + self.token} if self.token else {})
            answer = connection.getresponse()
            if answer.status >= 300:
                raise ApiError("GET", path, answer.status, answer.read())
            answer.readline()
        except http.client.HTTPException as error:
            raise OSError(f"GET {path}: {error}") from error
        finally:
            connection.close()

    @staticmethod
    def path(kind, name=None, namespace="default", sub=None, **query):
        base, plural, namespaced = RESOURCES[kind]
        parts = [base] + ([f"namespaces/{namespace}"] if namespaced and namespace else []) + [plural]
        parts += [part for part in (name, sub) if part]
        return "/".join(parts) + ("?" + urlencode(query) if query else "")

    def get(self, kind, name, namespace="default"):
        """The object, or None when there is none."""
        try:
            return self.request("GET", self.path(kind, name, namespace))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def secret(self, name, namespace="default"):
        """The data of a Secret, as bytes; None when there is no such Secret."""
        found = self.get("Secret", name, namespace)
        return found and {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}

    def list(self, kind, namespace="default", **query):
        return self.request("GET", self.path(kind, None, namespace, **query))["items"]

    def create(self, object_):
        meta = object_["metadata"]
        return self.request("POST", self.path(object_["kind"], None, meta.get("namespace", "default")), object_)

    def apply(self, object_):
        """Creates or changes the object by server-side apply."""
        meta = object_["metadata"]
        path = self.path(object_["kind"], meta["name"], meta.get("namespace", "default"),
                         fieldManager="ring", force="true")
        return self.request("PATCH", path, object_, "application/apply-patch+yaml")

    def patch(self, kind, name, change, namespace="default", sub=None, content="application/merge-patch+json"):
        return self.request("PATCH", self.path(kind, name, namespace, sub), change, content)

    def delete(self, kind, name, namespace="default", grace=None):
        """Returns False when there was no such object."""
        query = {} if grace is None else {"gracePeriodSeconds": grace}
        try:
            self.request("DELETE", self.path(kind, name, namespace, **query))
            return True
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def events_of(self, object_):
        """[(type, reason, message)] of the events about an object, oldest first."""
        uid = object_["metadata"]["uid"]
        found = self.list("Event", object_["metadata"].get("namespace", "default"),
                          fieldSelector=f"involvedObject.uid={uid}")
        found.sort(key=lambda e: e["metadata"]["creationTimestamp"])
        return [(e["type"], e["reason"], e.get("message", "")) for e in found]

    def logs(self, pod, container=None, namespace="default", previous=False):
        query = {"container": container} if container else {}
        if previous:
            query["previous"] = "true"
        path = self.path("Pod", pod, namespace, "log", **query)
        return self.request("GET", path, raw=True)

    def version(self) -> str:
        """The server's version, for example "v1.36.3"."""
        return self.request("GET", "/version")["gitVersion"]

    def ready(self):
        try:
            self.request("GET", "/readyz", timeout=5, raw=True)
            return True
        except (OSError, ApiError, http.client.HTTPException):
            return False


def wait_for(what, seconds, condition, every=0.1):
    """Polls the API. Returns the condition's value; the AssertionError says what was waited for."""
    try:
        return until(what, seconds, condition, every)
    except TimeoutError as error:
        raise AssertionError(str(error)) from None
