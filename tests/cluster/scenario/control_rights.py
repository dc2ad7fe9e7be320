"""What control's account may write: only its decisions, and no other field of a pod or a Node. By RBAC
(control-rbac.yaml) it may patch all of them; the policies narrow that. Tested with dry runs: nothing is written.
"""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring.binder import RECORD  # noqa: E402
from ring.carve import NAMESPACE  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

DEPLOY = HERE.parent.parent / "deploy"
CONTROL = f"system:serviceaccount:{NAMESPACE}:carve-control"
STRATEGIC = "application/strategic-merge-patch+json"
LABELS = {"metadata": {"labels": {"a": "b"}}}
FINALIZERS = {"metadata": {"finalizers": ["a.io/b"]}}


def annotate(key, value="x"):
    return {"metadata": {"annotations": {key: value}}}


# (what, allowed, kind, subresource, patch)
TABLE = [
    ("its record", True, "Pod", None, annotate(RECORD, '{"v":1,"epoch":9999999999,"owner":{}}')),
    ("an annotation of a dialect", True, "Pod", None, annotate("ALIYUN_COM_GPU_MEM_IDX", "0")),
    ("a nomination", True, "Pod", "status", {"status": {"nominatedNodeName": "n1"}}),
    ("another annotation", False, "Pod", None, annotate("mine")),
    ("removal of another annotation", False, "Pod", None, annotate("kept", None)),
    ("another annotation through the status", False, "Pod", "status", annotate("mine")),
    ("a label", False, "Pod", None, LABELS),
    ("a finalizer", False, "Pod", None, FINALIZERS),
    ("the image", False, "Pod", None, {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
    ("the phase", False, "Pod", "status", {"status": {"phase": "Succeeded"}}),
    ("a condition", False, "Pod", "status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    ("the pod's address", False, "Pod", "status", {"status": {"podIP": "192.0.2.9", "podIPs": [{"ip": "192.0.2.9"}]}}),
    ("the observed generation", False, "Pod", "status", {"status": {"observedGeneration": 1}}),  # a recent field
    ("its Binding", True, "Pod", "binding", annotate(RECORD, '{"v":1,"epoch":9999999999,"owner":{}}')),
    ("a Binding with another annotation", False, "Pod", "binding", annotate("mine")),
    ("a Binding with a label", False, "Pod", "binding", LABELS),
    ("the annotation that room is free", True, "Node", None, annotate("elasticgpu.io/slices-free", "7")),
    ("a node's other annotation", False, "Node", None, annotate("elasticgpu.io/slices-freed")),
    ("a node's label", False, "Node", None, LABELS),
    ("a node's finalizer", False, "Node", None, FINALIZERS),
    ("a cordon", False, "Node", None, {"spec": {"unschedulable": True}}),
    ("a taint", False, "Node", None, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
]


class ControlRights(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.kube.get("Namespace", NAMESPACE) is None:
            cls.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            cls.addClassCleanup(wait_for, "the namespace gone", 60, lambda: cls.kube.get("Namespace", NAMESPACE) is None)
            cls.addClassCleanup(cls.kube.delete, "Namespace", NAMESPACE)
        for file in ("control-rbac.yaml", "record-policy.yaml", "control-policy.yaml", "../agent-policy.yaml"):
            cls.addClassCleanup(cls.ring.kubectl, "delete", "--ignore-not-found", "-f", DEPLOY / "control" / file)
            cls.ring.kubectl("apply", "-f", DEPLOY / "control" / file)
        cls.control = cls.ring.kube()
        cls.control.headers = {"Impersonate-User": CONTROL}

    def outcome(self, kube, kind, name, sub, patch):
        """'done', or the text of the refusal. Any error other than a refusal of rights is an error of the test."""
        path = kube.path(kind, name, None if kind == "Node" else "default", sub) + "?dryRun=All"
        try:
            if sub == "binding":
                meta = {"name": name, **patch["metadata"]}
                kube.request("POST", path, {"apiVersion": "v1", "kind": "Binding", "metadata": meta,
                                            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}})
            else:
                kube.request("PATCH", path, patch, STRATEGIC)
            return "done"
        except ApiError as error:
            if error.status == 403:
                return str(error)
            raise

    def test_control_may_write_only_its_decisions(self):
        name = self.create(pod(self.name(), schedulerName="nobody", annotations={"kept": "1"}))["metadata"]["name"]
        names = {"Pod": name, "Node": "n1"}
        # The policies take effect some moments after they were created.
        wait_for("the policies are in force", 30, lambda: "done" not in [self.outcome(
            self.control, kind, names[kind], sub, LABELS) for kind, sub in (
                ("Pod", None), ("Pod", "binding"), ("Node", None))], every=0.5)
        for what, legal, kind, sub, patch in TABLE:
            with self.subTest(what):
                outcome = self.outcome(self.control, kind, names[kind], sub, patch)
                if legal:
                    self.assertEqual(outcome, "done")
                else:
                    self.assertRegex(outcome, "ValidatingAdmissionPolicy 'carve-(pods|bindings|control-nodes).*carve-control may")
        # What is refused to control is a legal write as such: an administrator may do it.
        for what, legal, kind, sub, patch in TABLE:
            if not legal:
                with self.subTest(what):
                    self.assertEqual(self.outcome(self.kube, kind, names[kind], sub, patch), "done")

    def event(self, kube, component, change=None):
        """'done', or the text of the refusal, for an event on node n1 in that component's name; `change`: the name of
        an existing event to patch."""
        path = kube.path("Event", change, "default") + "?dryRun=All"
        body = {"source": {"component": component}, "message": "x", "reason": "Rights"}
        try:
            if change:
                kube.request("PATCH", path, body, "application/merge-patch+json")
            else:
                kube.request("POST", path, {"apiVersion": "v1", "kind": "Event", **body, "type": "Normal",
                                            "metadata": {"generateName": "rights-", "namespace": "default"},
                                            "involvedObject": {"kind": "Node", "name": "n1", "namespace": "default"}})
            return "done"
        except ApiError as error:
            if error.status == 403:
                return str(error)
            raise

    def test_control_may_write_events_only_in_its_own_name(self):
        name = self.create({"apiVersion": "v1", "kind": "Event", "metadata": {"name": self.name()}, "type": "Normal",
                            "source": {"component": "kubelet"}, "message": "x", "reason": "Rights",
                            "involvedObject": {"kind": "Node", "name": "n1", "namespace": "default"}})["metadata"]["name"]
        refused = "carve-control may write only events with itself as the source"
        wait_for("the policy is in force", 30, lambda: refused in self.event(self.control, "kubelet"), every=0.5)
        self.assertEqual(self.event(self.control, "carve-control"), "done")
        self.assertIn(refused, self.event(self.control, "carve-control", name), "another component's event")
        self.assertEqual(self.event(self.kube, "kubelet", name), "done")


if __name__ == "__main__":
    main()
