"""A pod's record may be written only by control, on every path by which annotations reach a pod.

A tenant with every right in its namespace tries to forge one at create, update, status, binding and the older bindings.
Each try is a real request, not a dry run, and the pod is read afterwards.
"""
import contextlib
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring.binder import RECORD, SLOT  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

POLICY = HERE.parent.parent / "deploy" / "control" / "record-policy.yaml"
MERGE = "application/merge-patch+json"
CONTROL = "system:serviceaccount:carve-system:carve-control"
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
FORGED = '{"v":1,"epoch":1,"owner":{"kind":"pod","uid":"x"},"parts":[]}'


class Records(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.space = "records"
        cls.had_policy = cls.kube.get("ValidatingAdmissionPolicy", "carve-pods.elasticgpu.io") is not None
        cls.ring.kubectl("apply", "-f", POLICY)
        cls.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cls.space}})
        cls.kube.create({"apiVersion": "v1", "kind": "ServiceAccount",
                         "metadata": {"name": "tenant", "namespace": cls.space}})
        cls.kube.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                         "metadata": {"name": "everything", "namespace": cls.space},
                         "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
        cls.kube.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                         "metadata": {"name": "everything", "namespace": cls.space},
                         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "everything"},
                         "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": cls.space},
                                      {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": CONTROL}]})
        made = cls.kube.request("POST", cls.kube.path("ServiceAccount", "tenant", cls.space, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}})
        cls.tenant = cls.ring.kube(token=made["status"]["token"])
        cls.control = cls.ring.kube()
        cls.control.headers = {"Impersonate-User": CONTROL}
        wait_for("the default account", 30, lambda: cls.kube.get("ServiceAccount", "default", cls.space))
        # The policies take effect some moments after they were created.
        wait_for("the policies are in force", 30, lambda: "only carve-control" in cls.outcome(
            cls.tenant, "POST", cls.pods() + "?dryRun=All", cls.of("probe", {RECORD: FORGED})), every=0.5)
        wait_for("the policy of bindings is in force", 30, lambda: "only" in cls.outcome(
            cls.tenant, "POST", f"/api/v1/namespaces/{cls.space}/pods/none/binding?dryRun=All",
            cls.binding("none", {RECORD: FORGED})), every=0.5)

    @classmethod
    def tearDownClass(cls):
        if not cls.had_policy:
            cls.ring.kubectl("delete", "--ignore-not-found", "-f", POLICY)
            # The next scenario's binder is an administrator who writes records.
            wait_for("the policies are out of force", 30, lambda: cls.outcome(
                cls.kube, "POST", cls.pods() + "?dryRun=All",
                cls.of("probe", {RECORD: FORGED})) == "done" and cls.outcome(
                    cls.kube, "POST", f"/api/v1/namespaces/{cls.space}/pods/none/binding?dryRun=All",
                    cls.binding("none", {RECORD: FORGED})).startswith("404"), every=0.5)
        cls.kube.delete("Namespace", cls.space)
        wait_for("the namespace gone", 60, lambda: cls.kube.get("Namespace", cls.space) is None)
        super().tearDownClass()

    # --- helpers -------------------------------------------------------------------------------------------------

    @classmethod
    def pods(cls, name=None, sub=None):
        return cls.kube.path("Pod", name, cls.space, sub)

    @classmethod
    def of(cls, name, annotations=None, slots=True, labels=None, resource=None):
        """A pod that no scheduler serves."""
        made = pod(name, schedulerName="nobody", annotations=annotations)
        made["metadata"]["namespace"] = cls.space
        if labels:
            made["metadata"]["labels"] = labels
        limits = {SLOT: "1"} if slots else {}
        if resource:
            limits[resource] = "4"
        made["spec"]["containers"][0]["resources"] = {"limits": limits}
        return made

    @classmethod
    def binding(cls, name, annotations):
        return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": cls.space,
                                                                    "annotations": annotations},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}}

    @staticmethod
    def outcome(kube, method, path, body, content="application/json"):
        """'done', or the text of the API server's refusal."""
        try:
            kube.request(method, path, body, content)
            return "done"
        except ApiError as error:
            return f"{error.status} {error}"

    def annotate(self, kube, name, annotations, sub=None):
        return self.outcome(kube, "PATCH", self.pods(name, sub), {"metadata": {"annotations": annotations}}, MERGE)

    def make(self, annotations=None, **more):
        name = self.name()
        self.kube.request("POST", self.pods(), self.of(name, annotations, **more))
        # Immediately: some are bound to a node that does not exist, where no kubelet would end them.
        self.addCleanup(self.kube.delete, "Pod", name, self.space, grace=0)
        return name

    def annotations(self, name):
        return self.kube.get("Pod", name, self.space)["metadata"].get("annotations", {})

    # --- tests ---------------------------------------------------------------------------------------------------

    def test_a_record_is_refused_at_create(self):
        for key in (RECORD, INDEX, "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "scheduler.framework.gpushare.allocation"):
            with self.subTest(key):
                name = self.name()
                outcome = self.outcome(self.tenant, "POST", self.pods(), self.of(name, {key: FORGED}))
                self.assertRegex(outcome, f"^403 .*annotation {key} .*only carve-control")
                self.assertIsNone(self.kube.get("Pod", name, self.space))
        self.assertEqual(self.outcome(self.tenant, "POST", self.pods() + "?dryRun=All", self.of("fine", {"a": "b"})),
                         "done")

    def test_a_record_is_refused_at_update_and_status(self):
        name = self.make()
        for sub in (None, "status"):
            for key in (RECORD, INDEX):
                with self.subTest(sub=sub, key=key):
                    outcome = self.annotate(self.tenant, name, {key: FORGED}, sub)
                    self.assertRegex(outcome, f"^403 .*annotation {key} .*only carve-control")
        self.assertEqual(self.annotations(name), {})
        self.assertEqual(self.annotate(self.tenant, name, {"mine": "1"}), "done")

    def test_an_existing_record_is_neither_changed_nor_removed(self):
        name = self.make()
        standing = {RECORD: "the record", INDEX: "1"}
        self.assertEqual(self.annotate(self.control, name, standing), "done")
        for sub in (None, "status"):
            for change in ({RECORD: FORGED}, {RECORD: None}, {INDEX: "0"}, {INDEX: None}):
                with self.subTest(sub=sub, change=change):
                    self.assertRegex(self.annotate(self.tenant, name, change, sub), "^403 .*only carve-control")
        whole = self.kube.get("Pod", name, self.space)
        del whole["metadata"]["annotations"]
        self.assertRegex(self.outcome(self.tenant, "PUT", self.pods(name), whole), "^403 .*only carve-control")
        self.assertEqual(self.annotations(name), standing)
        # Other annotations of the tenant can still be changed.
        self.assertEqual(self.annotate(self.tenant, name, {"mine": "1"}), "done")
        self.assertEqual(self.annotate(self.tenant, name, {"mine": "2"}, "status"), "done")

    def test_a_cluster_administrator_is_refused_too(self):
        name = self.make()
        self.assertRegex(self.annotate(self.kube, name, {RECORD: FORGED}), "^403 .*only carve-control")

    def test_subresources_that_drop_annotations_write_no_record(self):
        """Refused or not: the pod has no record afterwards."""
        name = self.make()
        for sub in ("ephemeralcontainers", "resize"):
            with self.subTest(sub):
                self.annotate(self.tenant, name, {RECORD: FORGED}, sub)
                self.assertEqual(self.annotations(name), {})

    def test_a_record_is_refused_at_binding_and_the_older_bindings(self):
        name = self.make()
        for path in (self.pods(name, "binding"), f"/api/v1/namespaces/{self.space}/bindings"):
            for key in (RECORD, INDEX):
                with self.subTest(path=path, key=key):
                    outcome = self.outcome(self.tenant, "POST", path, self.binding(name, {key: FORGED}))
                    self.assertRegex(outcome, f"^403 .*only carve-control may create a Binding with annotation {key}")
        found = self.kube.get("Pod", name, self.space)
        self.assertEqual(found["metadata"].get("annotations", {}), {})
        self.assertNotIn("nodeName", found["spec"])

    def test_control_writes_the_record_with_the_binding(self):
        """The refusals depend on the user: the same Binding by control is accepted, and its annotations are on the
        pod."""
        name = self.make()
        self.assertEqual(self.outcome(self.control, "POST", self.pods(name, "binding"),
                                   self.binding(name, {RECORD: "decided", INDEX: "0"})), "done")
        self.assertEqual(self.annotations(name), {RECORD: "decided", INDEX: "0"})

    def test_any_user_may_create_a_binding_without_a_record(self):
        name = self.make()
        self.assertEqual(self.outcome(self.tenant, "POST", self.pods(name, "binding"), self.binding(name, {"a": "b"})),
                         "done")

    def test_pods_of_another_system_keep_their_annotations(self):
        """gpushare's own extender writes these on pods that are not Carve's, as long as both systems are in the
        cluster."""
        name = self.make(slots=False, resource="aliyun.com/gpu-mem")
        self.assertEqual(self.annotate(self.tenant, name, {INDEX: "0"}), "done")
        self.assertRegex(self.annotate(self.tenant, name, {RECORD: FORGED}), "^403 ")

    def test_the_label_with_the_number_of_cards_is_immutable(self):
        name = self.make(resource="aliyun.com/gpu-mem", labels={"aliyun.com/gpu-count": "1"})
        for change in ({"aliyun.com/gpu-count": "2"}, {"aliyun.com/gpu-count": None}):
            for sub in (None, "status"):
                outcome = self.outcome(self.tenant, "PATCH", self.pods(name, sub), {"metadata": {"labels": change}},
                                       MERGE)
                self.assertRegex(outcome, "^403 .*may not change; create a new pod")
        self.assertEqual(self.outcome(self.tenant, "PATCH", self.pods(name), {"metadata": {"labels": {"a": "b"}}},
                                      MERGE),
                         "done")

    def test_a_status_update_without_annotations_and_labels_does_not_reach_the_policies(self):
        """Kubelets write the status of every pod of the cluster all the time. The API server does not count what match
        conditions exclude, so a rule that refuses everything is installed with the constraints and conditions of
        Carve's."""
        name = self.make({"mine": "1"}, resource="aliyun.com/gpu-mem", labels={"mine": "1"})
        def change(sub=None, field="annotations"):
            return self.outcome(self.tenant, "PATCH", self.pods(name, sub) + "?dryRun=All",
                                {"metadata": {field: {"mine": "2"}}}, MERGE)
        with self.refusing_all("carve-pods", change):
            for field in ("annotations", "labels"):
                self.assertIn("looked at", change("status", field))
            update = {"status": {"message": "looked at by no policy"}}
            self.assertEqual(self.outcome(self.tenant, "PATCH", self.pods(name, "status"), update, MERGE), "done")

    @contextlib.contextmanager
    def refusing_all(self, policy, probe):
        """Installs a copy of that policy, in this namespace, with one rule that refuses everything. `probe` must be
        refused by it, and not any more when the block has ended."""
        copy = "refuses-" + policy
        spec = self.kube.get("ValidatingAdmissionPolicy", f"{policy}.elasticgpu.io")["spec"]
        spec.pop("variables", None)
        spec["validations"] = [{"expression": "false", "message": "looked at"}]
        kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": copy}}
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.space}}}
        made = [{**kind, "kind": "ValidatingAdmissionPolicy", "spec": spec},
                {**kind, "kind": "ValidatingAdmissionPolicyBinding",
                 "spec": {"policyName": copy, "validationActions": ["Deny"], "matchResources": here}}]
        try:
            for one in made:
                self.kube.create(one)
            wait_for("the policy is in force", 30, lambda: "looked at" in probe(), every=0.5)
            yield
        finally:
            for one in made[::-1]:
                self.kube.delete(one["kind"], copy)
            wait_for("the policy is out of force", 30, lambda: probe() == "done", every=0.5)

    def test_amounts_are_immutable_for_every_user(self):
        """A rule of the API server itself, which is why no webhook is needed at UPDATE."""
        name = self.make(resource="aliyun.com/gpu-mem")
        change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "8"},
                                                                         "requests": {"aliyun.com/gpu-mem": "8"}}}]}}
        for sub in (None, "resize"):
            outcome = self.outcome(self.kube, "PATCH", self.pods(name, sub), change,
                                   "application/strategic-merge-patch+json")
            self.assertRegex(outcome, "^422 ")


if __name__ == "__main__":
    main()
