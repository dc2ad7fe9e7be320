"""Security: what the agent's token may write, what containers can reach of each other and of the node, file modes.

Rights are tested at the API server with dry runs: admission runs completely, nothing is written.
"""
import contextlib
import copy
import errno
import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import images  # noqa: E402
from ring.carve import ACCOUNT, DRIVER, NAMESPACE  # noqa: E402
from ring.kube import ApiError, Kube  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
OTHER = "another-node"


def on(node):
    """The agent's writes for `node`, allowed and forbidden ones: [(name, allowed, method, path, body, content
    type)]."""
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
    claim = path("ResourceClaim", f"claim-on-{node}", sub="status")
    applied = path("ResourceClaim", f"claim-on-{node}", sub="status", fieldManager="carve-agent", force="true")
    prepared = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": f"claim-on-{node}", "namespace": "default"},
                "status": {"devices": [{"driver": DRIVER, "pool": node, "device": "gpu-0", "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Prepared", "message": "test",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]}}
    others = copy.deepcopy(prepared)
    others["status"]["devices"][0].update(driver="gpu.example.com", device="other-0")
    user = {"resource": "pods", "name": "thief", "uid": "u-thief"}

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
        ("removal of a foreign label", False, "PATCH", node_path, {"metadata": {"labels": {"kubernetes.io/os": None}}},
         MERGE),
        ("its annotation", True, "PATCH", node_path, {"metadata": {"annotations": {"elasticgpu.io/freed": "2"}}}, MERGE),
        ("a foreign annotation", False, "PATCH", node_path, {"metadata": {"annotations": {"x.io/freed": "2"}}}, MERGE),
        ("a taint", False, "PATCH", node_path, {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, MERGE),
        ("a cordon", False, "PATCH", node_path, {"spec": {"unschedulable": True}}, MERGE),
        ("a finalizer", False, "PATCH", node_path, {"metadata": {"finalizers": ["a.io/b"]}}, MERGE),
        ("its condition", True, "PATCH", status, condition("RuntimeWithoutCDI"), strategic),
        ("its condition that it is leaving", True, "PATCH", status, condition("GPUAgentLeaving"), strategic),
        ("the kubelet's condition", False, "PATCH", status, condition("Ready"), strategic),
        ("no conditions at all", False, "PATCH", status, {"status": {"conditions": None}}, MERGE),
        ("a total", True, "PATCH", status, {"status": {"capacity": {"elasticgpu.io/gpu-core": "200"}}}, MERGE),
        ("a total of slots", False, "PATCH", status, {"status": {"capacity": {"elasticgpu.io/slot": "2000"}}}, MERGE),
        ("a dialect's total", True, "PATCH", status, {"status": {"capacity": {"nvidia.com/gpu": "8"}}}, MERGE),
        ("a foreign total", False, "PATCH", status, {"status": {"capacity": {"amd.com/gpu": "8"}}}, MERGE),
        ("the node's address", False, "PATCH", status, {"status": {"addresses": [
            {"type": "InternalIP", "address": "10.95.0.99"}]}}, MERGE),
        ("removal of an allocatable amount", False, "PATCH", status, {"status": {"allocatable": {"cpu": None}}}, MERGE),
        ("the node's images", False, "PATCH", status, {"status": {"images": [{"names": ["x"]}]}}, MERGE),
        ("a volume that it had attached", False, "PATCH", status, {"status": {"volumesAttached": [
            {"name": "v", "devicePath": "/dev/v"}]}}, MERGE),
        ("what the runtime can do", False, "PATCH", status, {"status": {"runtimeHandlers": [{"name": "x"}]}}, MERGE),
        ("an event in its name", True, "POST", path("Event"), event, None),
        ("an event in the kubelet's name", False, "POST", path("Event"), forged, None),
        ("a claim's devices on it", True, "PATCH", applied, prepared, APPLY),
        ("a claim's allocation", False, "PATCH", claim, {"status": {"allocation": None}}, MERGE),
        ("a claim's reservation", False, "PATCH", claim, {"status": {"reservedFor": [user]}}, MERGE),
        ("a claim's devices of another driver", False, "PATCH", applied, others, APPLY),
        ("deletion of the node", False, "DELETE", node_path, None, None),
        ("a pod", False, "DELETE", path("Pod", "any"), None, None),
        ("a pod's record", False, "PATCH", path("Pod", "any"), {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        ("a secret", False, "GET", "/api/v1/namespaces/kube-system/secrets", None, None),
    ]


class Rights(CarveTest):
    plugins = "dra"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}})
        for node in ("n1", OTHER):
            cls.allocated(node)
        cls.own = cls.ring.kube(token=cls.carve.token())
        cls.other = cls.ring.kube(token=cls.carve.token(node=OTHER))
        unbound = cls.kube.request("POST", cls.kube.path("ServiceAccount", ACCOUNT, NAMESPACE, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}})
        cls.unbound = cls.ring.kube(token=unbound["status"]["token"])

    @classmethod
    def allocated(cls, node):
        """Creates a claim with a card of this node, as the scheduler leaves it."""
        name = f"claim-on-{node}"
        cls.addClassCleanup(cls.kube.delete, "ResourceClaim", name)
        cls.kube.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                         "metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [
                             {"name": "gpu", "exactly": {"deviceClassName": "gpu.elasticgpu.io"}}]}}})
        here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
        cls.kube.patch("ResourceClaim", name, {"status": {"allocation": {"nodeSelector": here, "devices": {"results": [
            {"request": "gpu", "driver": driver, "pool": node, "device": device}
            for driver, device in ((DRIVER, "gpu-0"), ("gpu.example.com", "other-0"))]}}}}, sub="status")

    @classmethod
    def tearDownClass(cls):
        cls.kube.delete("Node", OTHER)
        super().tearDownClass()

    @staticmethod
    def verdict(kube, method, path, body, content):
        """'done', or the text of the refusal. Any error other than a refusal of rights is an error of the test."""
        if method != "GET":
            path += ("&" if "?" in path else "?") + "dryRun=All"
        try:
            kube.request(method, path, body, content or "application/json")
            return "done"
        except ApiError as error:
            # The server refuses parts of a claim's status as an invalid field.
            if error.status == 403 or error.status == 422 and 'requires resource="resourceclaims/' in str(error):
                return str(error)
            raise

    def test_an_agent_may_write_only_its_own_nodes_objects(self):
        # The policies take effect some moments after they were created.
        wait_for("the policies are in force", 30, lambda: self.verdict(
            self.other, *on("n1")[0][2:]) != "done", every=0.5)
        for name, legal, *call in on("n1"):
            with self.subTest(name):
                outcome = self.verdict(self.own, *call)
                self.assertEqual(outcome == "done", legal, outcome)

    def test_the_token_of_another_node_may_write_nothing_here(self):
        for name, _, *call in on("n1"):
            with self.subTest(name):
                self.assertNotEqual(self.verdict(self.other, *call), "done")

    def test_the_token_of_another_node_has_the_same_rights_on_its_own_node(self):
        """The refusals above depend on the node, not on the token: the same table with the roles exchanged."""
        for name, legal, *call in on(OTHER):
            with self.subTest(name):
                if legal:
                    self.assertEqual(self.verdict(self.other, *call), "done")
                self.assertNotEqual(self.verdict(self.own, *call), "done")

    def test_the_policy_on_claims_suffices_without_rbac(self):
        """Before Kubernetes 1.36 a user that may patch a claim's status may write all of it; here the agent's account
        may."""
        name, rbac = "carve-test-all-of-a-claim", {"apiVersion": "rbac.authorization.k8s.io/v1"}
        self.create({**rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [
            {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding", "resourceclaims/driver"],
             "verbs": ["*"]}]})
        self.create({**rbac, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                     "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]})
        mine, others = ({row[0]: row[2:] for row in on(node) if "claim" in row[0]} for node in ("n1", OTHER))
        forbidden = {what: mine[what] for what in mine if what != "a claim's devices on it"}
        forbidden["a claim's devices on another node"] = others["a claim's devices on it"]
        self.assertEqual(len(forbidden), 4)
        for what, call in forbidden.items():
            with self.subTest(what):
                wait_for("the policy's refusal", 20, lambda c=call: "carve-agent-claims.elasticgpu.io" in
                         self.verdict(self.own, *c), every=0.5)
        self.assertEqual(self.verdict(self.own, *mine["a claim's devices on it"]), "done")

    def test_a_token_that_names_no_node_may_write_nothing(self):
        for name, _, *call in on("n1"):
            with self.subTest(name):
                self.assertNotEqual(self.verdict(self.unbound, *call), "done")

    def test_existing_resource_slices_may_be_changed_only_with_the_nodes_token(self):
        """The node's real ResourceSlices, written by its agent."""
        (slice_,) = self.carve.published()
        path = Kube.path("ResourceSlice", slice_["metadata"]["name"])
        stolen = copy.deepcopy(slice_)
        stolen["spec"]["devices"] = []
        for method, body in (("PUT", stolen), ("DELETE", None)):
            with self.subTest(method):
                self.assertIn("may not write ResourceSlices of node n1", self.verdict(self.other, method, path, body, None))
                self.assertIn("names no node", self.verdict(self.unbound, method, path, body, None))
                self.assertEqual(self.verdict(self.own, method, path, body, None), "done")


HOLD = ["ring-look", "allocate", "1048576", "hold", "3600"]


class Fractions(CarveTest):
    """Pods with a slice each, shared by the tests; `reach` runs ring-reach (images/reach.c) in one of them."""
    plugins = "dra,slots"

    @classmethod
    def setUpClass(cls):
        cls.kept = {}
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        for name in cls.kept.values():
            cls.kube.delete("Pod", name, grace=0)
        for name in cls.kept.values():
            wait_for(f"{name} gone", 60, lambda n=name: cls.kube.get("Pod", n) is None)
        super().tearDownClass()

    def running(self, what="a", device_class="gpu.elasticgpu.io", **spec):
        """The class's shared pod of this name, created at first use; it has printed its look, so its pages are
        mapped."""
        if what not in self.kept:
            whole = device_class != "gpu.elasticgpu.io"
            template = self.template(device_class=device_class, **({} if whole else {"cores": "10", "memory": "4Gi"}))
            made = pod(self.name(), images.PROGRAMS, HOLD, claims={"gpu": template}, **spec)
            self.kept[what] = self.kube.create(made)["metadata"]["name"]
        self.wait_ready(self.kept[what])
        self.look(self.kept[what])
        return self.kept[what]

    def users(self):
        """[(user, pod)]: root in its container, and an ordinary user."""
        return [("root", self.running("b")),
                ("an ordinary user", self.running("user", securityContext={"runAsUser": 1000}))]

    def slice_of(self, name):
        """The name of the pod's slice, as its container sees it."""
        return self.ring.kubectl("exec", name, "--", "ls", "/run/carve/slices").stdout.strip()

    def reach(self, name, *arguments):
        return json.loads(self.ring.kubectl("exec", name, "--", "ring-reach", *arguments).stdout)


class Neighbours(Fractions):
    """From inside a container nothing of another one and nothing of the node is reachable. SECURITY.md says for which
    pods this is promised, and why not for privileged ones."""

    NODE = ("/run/carve/agent.sock", "/run/carve/arbiter/control", "/run/carve/arbiter/pages", "/run/carve/arbiter/lifelines", "/var/lib/carve",
            "/var/lib/carve/journal.d/journal", "/var/run/cdi", "/var/lib/kubelet/device-plugins/kubelet.sock",
            "/var/lib/kubelet/plugins/gpu.elasticgpu.io/dra-agent.sock")

    def assert_out_of_reach(self, name, victim):
        """The pod `name` must not reach the slice `victim`."""
        own = self.slice_of(name)
        paths = [f"/run/carve/slices/{victim}/s", f"/run/carve/slices/{own}/../{victim}/s", *self.NODE]
        self.assertEqual(self.reach(name, "paths", *paths), {path: [errno.ENOENT] * 3 for path in paths})
        self.assertEqual(self.reach(name, "paths", f"/run/carve/slices/{own}/s")[f"/run/carve/slices/{own}/s"][2], 0)
        listed = self.ring.kubectl("exec", name, "--", "find", "/run/carve").stdout.split()
        self.assertEqual(sorted(listed), ["/run/carve", "/run/carve/slices", f"/run/carve/slices/{own}",
                                          f"/run/carve/slices/{own}/s"])
        self.assertEqual(self.reach(name, "abstract"), {})
        looked = self.reach(name, "pages", victim)
        self.assertEqual(looked["found"], [])
        self.assertLessEqual(looked["processes"], 3)     # only its own
        self.assertTrue(self.reach(name, "pages", own)["found"])    # the search works: it finds its own pages

    def test_nothing_of_a_neighbour_or_of_the_node_is_reachable(self):
        victim = self.slice_of(self.running())
        for user, name in self.users():
            with self.subTest(user):
                self.assert_out_of_reach(name, victim)

    def test_no_socket_is_reachable_through_the_hosts_network(self):
        """The host's network namespace has the abstract sockets of all its processes; Carve has none there."""
        victim = self.slice_of(self.running())
        self.assert_out_of_reach(self.running("network", hostNetwork=True), victim)
        names = self.node_sockets()
        self.assertTrue(any(name.startswith("/run/carve/") for name in names))
        carves = [self.ring.node(1).pid("agent"), self.carve.agent(), self.ring.node(1).pid("arbiter")]
        inodes = {re.sub(r"\D", "", str(link.readlink())) for pid in carves for link in Path(f"/proc/{pid}/fd").iterdir()
                  if str(link.readlink()).startswith("socket:")}
        self.assertEqual([name for name, inode in names.items() if inode in inodes and name.startswith("@")], [])

    def node_sockets(self):
        rows = [line.split() for line in Path(f"/proc/{self.ring.node(1).pid('agent')}/net/unix").read_text().splitlines()]
        return {row[7]: row[6] for row in rows[1:] if len(row) > 7}

    def test_with_host_pid_an_ordinary_user_reaches_no_page(self):
        """hostPID shows every process; the kernel refuses to open descriptors of another user's process."""
        victim = self.slice_of(self.running())
        name = self.running("processes", hostPID=True, securityContext={"runAsUser": 1000})
        looked = self.reach(name, "pages", victim)
        self.assertGreater(looked["processes"], 10)
        self.assertEqual(looked["found"], [])

    def test_no_page_of_one_container_is_mapped_into_another(self):
        pods = [self.running("a"), self.running("b")]
        pages = [self.pages_of(name) for name in pods]
        for found in pages:
            self.assertEqual(len(found), 2)      # one grant page, one account page
        self.assertEqual(pages[0] & pages[1], set())

    def pages_of(self, name):
        """(device, inode) of the pages that the pod's processes map, from /proc."""
        found = set()
        for status in self.kube.get("Pod", name)["status"]["containerStatuses"]:
            for pid in self.pids_of(status["containerID"].rsplit("/", 1)[1]):
                with contextlib.suppress(OSError):      # the process has ended
                    found |= {tuple(line.split()[3:5]) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                              if re.search(r"/memfd:carve-account-|/s-[0-9a-f]+-[0-9]+-[0-9]+$", line)}
        return found

    def test_the_grant_page_cannot_be_made_writable(self):
        """By root in its container and by an ordinary user, in every known way."""
        for user, name in self.users():
            with self.subTest(user):
                found = self.reach(name, "own")
                good = {"asked": 0, "mapped": 0, "the account page reopened": 0, "limit": 4 << 30}
                self.assertEqual({key: found.pop(key) for key in good}, good)
                self.assertEqual([what for what, got in found.items() if got == 0], [])
                # root has the rights, the file system is read-only
                for through in ("/proc/self/fd", "/proc/thread-self/fd", "/dev/fd"):
                    self.assertEqual(found[f"reopened in {through}"], errno.EROFS if user == "root" else errno.EACCES)


# Carve's files on a node: path, type (as in find), mode, owner. Every file must match one row, every row at least one
# file.
FILES = [
    (r"/run/carve", "d", "755"),                       # readable: users that may query the agent run `carve inspect`
    (r"/run/carve/agent\.sock", "s", "666"),           # the agent decides by peer credentials, and says why
    (r"/run/carve/arbiter", "d", "700"),
    (r"/run/carve/arbiter/control", "s", "600"),
    (r"/run/carve/arbiter/pages", "d", "700"),
    (r"/run/carve/arbiter/pages/s-[0-9a-f]+-\d+-\d+", "f", "600"),
    (r"/run/carve/arbiter/lifelines", "d", "700"),
    (r"/run/carve/arbiter/lifelines/s-[0-9a-f]+-\d+\.\d+\.\d+\.\d+\.held", "f", "600"),
    (r"/run/carve/slices", "d", "700"),                # closed to users of the node; runtimes mount its subfolders
    (r"/run/carve/slices/s-[0-9a-f]+-\d+", "d", "755"),   # visible in the container to any of its users
    (r"/run/carve/slices/s-[0-9a-f]+-\d+/s", "s", "666"),
    (r"/run/carve/whole", "d", "555"),
    (r"/run/carve/whole/s-[0-9a-f]+-\d+", "d", "555"),    # empty: the mark of a whole card's container
    (r"/var/lib/carve", "d", "755"),
    (r"/var/lib/carve/cards\.json", "f", "600"),
    (r"/var/lib/carve/history", "d", "700"),
    (r"/var/lib/carve/history/(fine|coarse)-\d{12}", "f", "600"),
    (r"/var/lib/carve/journal\.d", "d", "700"),
    (r"/var/lib/carve/journal\.d/(lock|journal)", "f", "600"),
    (r"/var/lib/carve/lib(/[0-9a-f]{16}(/links-[\d.]+)?)?", "d", "755"),     # mapped by every container's processes
    (r"/var/lib/carve/lib/[0-9a-f]{16}/carve-hook", "f", "755"),       # executed by the container runtime
    (r"/var/lib/carve/lib/[0-9a-f]{16}/(links-[\d.]+/)?lib(carve-cuda|carve-nvml|cuda|nvidia-ml)\.so(\.[\d.]+)?", "f", "755"),
    (r"/var/lib/carve/lib/[0-9a-f]{16}/links-[\d.]+/lib(cuda|nvidia-ml)\.so(\.1)?", "l", "777"),
    (r"/var/run/cdi", "d", "755"),
    (r"/var/run/cdi/carve-slice-s-[0-9a-f]+-\d+\.json", "f", "644"),      # names of devices and paths, no secret
    # 755: created by the kubelet, for the agent's pod
    (r"/var/lib/kubelet/plugins/gpu\.elasticgpu\.io", "d", "75[05]"),
    (r"/var/lib/kubelet/plugins/gpu\.elasticgpu\.io/[^/]+\.sock", "s", "600"),
    (r"/var/lib/kubelet/plugins_registry/gpu\.elasticgpu\.io-[^/]+\.sock", "s", "600"),
    (r"/var/lib/kubelet/device-plugins/carve-slots\.sock", "s", "600"),
]
PLACES = ["/run/carve", "/var/lib/carve", "/var/run/cdi", "/var/lib/kubelet/plugins/gpu.elasticgpu.io",
          "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/device-plugins"]
KUBELETS = re.compile(r"/var/lib/kubelet/(plugins_registry|device-plugins(/(kubelet\.sock|kubelet_internal_checkpoint|DEPRECATION))?)$")


class NodeFiles(Fractions):
    def setUp(self):
        super().setUp()
        self.fraction = self.running()
        self.running("whole", "whole.gpu.elasticgpu.io")

    def test_modes_and_owners_of_carves_files_on_a_node(self):
        wait_for("the agent has recorded", 30, lambda: self.ring.node(1).run(["find", "/var/lib/carve", "-name", "fine-*"]).stdout)
        listed = self.ring.node(1).run(["find", *PLACES, "-printf", "%p %y %m %u:%g\\n"]).stdout.split("\n")
        matched = set()
        for line in filter(None, listed):
            path, kind, mode, owner = line.rsplit(" ", 3)
            if KUBELETS.match(path):
                continue
            with self.subTest(path):
                rows = [row for row in FILES if re.fullmatch(row[0], path) and row[1] == kind]
                self.assertEqual(len(rows), 1, f"{path} ({kind}): must match one row of the table")
                self.assertRegex(mode, f"^{rows[0][2]}$")
                self.assertEqual(owner, "root:root")
                matched.add(rows[0][0])
        self.assertEqual([row[0] for row in FILES if row[0] not in matched], [])

    def test_users_of_the_node_cannot_connect_to_a_slice(self):
        """Only root reaches a slice's socket: a connection would make the caller a member of the slice."""
        socket = f"/run/carve/slices/{self.slice_of(self.fraction)}/s"
        printed = self.ring.node(1).run([sys.executable, "-c", (
            "import os, socket, sys\n"
            "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "print(s.connect_ex(sys.argv[1]))"), socket]).stdout
        self.assertEqual(int(printed), errno.EACCES)


if __name__ == "__main__":
    main()
