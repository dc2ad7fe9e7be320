"""Who may write what, reach what and read what: the agent's rights by its token, containers beside each other, modes.

Rights are asked of the API server itself, by dry runs: admission runs in full, nothing is written.
"""
import copy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring.carve import ACCOUNT, DRIVER, NAMESPACE  # noqa: E402
from ring.kube import ApiError, Kube  # noqa: E402
from ring.testing import CarveTest, main, wait_for  # noqa: E402

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
OTHER = "another-node"


def on(node):
    """What an agent of `node` writes, and what it may never: [(name, legal, method, path, body, content type)]."""
    slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
              "metadata": {"generateName": f"{node}-{DRIVER}-"},
              "spec": {"driver": DRIVER, "nodeName": node, "devices": [],
                       "pool": {"name": node, "generation": 99, "resourceSliceCount": 1}}}
    foreign = copy.deepcopy(slice_)
    foreign["spec"]["driver"] = "gpu.example.com"
    gpu_name = f"{node}.gpu-00000000-0000-0000-0000-000000000000"
    gpu = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": gpu_name},
           "spec": {"index": 0, "nodeName": node}}
    misnamed = copy.deepcopy(gpu)
    misnamed["metadata"]["name"] = "n." + gpu_name
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "carve-test-", "namespace": "default"},
             "involvedObject": {"kind": "Node", "name": node, "uid": node}, "type": "Warning", "reason": "Test",
             "message": "test", "source": {"component": "carve-agent", "host": node}, "count": 1}
    forged = copy.deepcopy(event)
    forged["source"] = {"component": "kubelet", "host": node}
    path = Kube.path

    def condition(kind):
        return {"status": {"conditions": [{"type": kind, "status": "True", "reason": "Test", "message": "test"}]}}
    strategic = "application/strategic-merge-patch+json"
    node_path, status = path("Node", node), path("Node", node, sub="status")
    return [
        ("its slices", True, "POST", path("ResourceSlice"), slice_, None),
        ("slices of another driver", False, "POST", path("ResourceSlice"), foreign, None),
        ("its GPU", True, "PATCH", path("GPU", gpu_name, fieldManager="carve-agent"), gpu, APPLY),
        ("a GPU of another name", False, "PATCH", path("GPU", "n." + gpu_name, fieldManager="carve-agent"), misnamed, APPLY),
        ("its labels", True, "PATCH", node_path, {"metadata": {"labels": {"elasticgpu.io/gpu.count": "2"}}}, MERGE),
        ("a foreign label", False, "PATCH", node_path, {"metadata": {"labels": {"kubernetes.io/hostname": "x"}}}, MERGE),
        ("a foreign label's end", False, "PATCH", node_path, {"metadata": {"labels": {"kubernetes.io/os": None}}}, MERGE),
        ("its annotation", True, "PATCH", node_path, {"metadata": {"annotations": {"elasticgpu.io/freed": "2"}}}, MERGE),
        ("a foreign annotation", False, "PATCH", node_path, {"metadata": {"annotations": {"x.io/freed": "2"}}}, MERGE),
        ("a taint", False, "PATCH", node_path, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, MERGE),
        ("a cordon", False, "PATCH", node_path, {"spec": {"unschedulable": True}}, MERGE),
        ("a finalizer", False, "PATCH", node_path, {"metadata": {"finalizers": ["a.io/b"]}}, MERGE),
        ("its condition", True, "PATCH", status, condition("RuntimeWithoutCDI"), strategic),
        ("the kubelet's condition", False, "PATCH", status, condition("Ready"), strategic),
        ("no conditions at all", False, "PATCH", status, {"status": {"conditions": None}}, MERGE),
        ("a total", True, "PATCH", status, {"status": {"capacity": {"elasticgpu.io/gpu-core": "200"}}}, MERGE),
        ("a total of slots", False, "PATCH", status, {"status": {"capacity": {"elasticgpu.io/slot": "2000"}}}, MERGE),
        ("a foreign total", False, "PATCH", status, {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, MERGE),
        ("the node's address", False, "PATCH", status, {"status": {"addresses": [
            {"type": "InternalIP", "address": "10.95.0.99"}]}}, MERGE),
        ("an event in its name", True, "POST", path("Event"), event, None),
        ("an event in the kubelet's name", False, "POST", path("Event"), forged, None),
        ("the node's end", False, "DELETE", node_path, None, None),
        ("a pod", False, "DELETE", path("Pod", "any"), None, None),
        ("a pod's record", False, "PATCH", path("Pod", "any"), {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        ("a secret", False, "GET", "/api/v1/namespaces/kube-system/secrets", None, None),
    ]


class Rights(CarveTest):
    doors = "dra"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}})
        cls.own = cls.ring.kube(token=cls.carve.token())
        cls.other = cls.ring.kube(token=cls.carve.token(node=OTHER))
        unbound = cls.kube.request("POST", cls.kube.path("ServiceAccount", ACCOUNT, NAMESPACE, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}})
        cls.unbound = cls.ring.kube(token=unbound["status"]["token"])

    @classmethod
    def tearDownClass(cls):
        cls.kube.delete("Node", OTHER)
        super().tearDownClass()

    @staticmethod
    def verdict(kube, method, path, body, content):
        """'done', or the server's words of refusal. Anything but a refusal of rights is an error of the test."""
        if method != "GET":
            path += ("&" if "?" in path else "?") + "dryRun=All"
        try:
            kube.request(method, path, body, content or "application/json")
            return "done"
        except ApiError as error:
            if error.status == 403:
                return str(error)
            raise

    def test_an_agent_writes_what_is_its_nodes_and_nothing_else(self):
        # The policies are in force some moments after they were made.
        wait_for("the policies are in force", 30, lambda: self.verdict(
            self.other, *on("n1")[0][2:]) != "done", every=0.5)
        for name, legal, *call in on("n1"):
            with self.subTest(name):
                said = self.verdict(self.own, *call)
                self.assertEqual(said == "done", legal, said)

    def test_the_token_of_another_node_is_worth_nothing_here(self):
        for name, _, *call in on("n1"):
            with self.subTest(name):
                self.assertNotEqual(self.verdict(self.other, *call), "done")

    def test_and_it_is_worth_the_same_at_home(self):
        """The refusals above are about the node, not about the token: the table again, turned round."""
        for name, legal, *call in on(OTHER):
            with self.subTest(name):
                if legal:
                    self.assertEqual(self.verdict(self.other, *call), "done")
                self.assertNotEqual(self.verdict(self.own, *call), "done")

    def test_a_token_that_names_no_node_writes_nothing(self):
        for name, _, *call in on("n1"):
            with self.subTest(name):
                said = self.verdict(self.unbound, *call)
                self.assertNotEqual(said, "done")

    def test_what_is_there_cannot_be_changed_or_removed_from_elsewhere(self):
        """The node's real slices, written by its agent: not by another node's token, by its own."""
        (slice_,) = self.carve.published()
        path = Kube.path("ResourceSlice", slice_["metadata"]["name"])
        stolen = copy.deepcopy(slice_)
        stolen["spec"]["devices"] = []
        for method, body in (("PUT", stolen), ("DELETE", None)):
            with self.subTest(method):
                self.assertIn("may not write ResourceSlices of node n1", self.verdict(self.other, method, path, body, None))
                self.assertIn("names no node", self.verdict(self.unbound, method, path, body, None))
                self.assertEqual(self.verdict(self.own, method, path, body, None), "done")


if __name__ == "__main__":
    main()
