"""`carve control` as a process, before the real API server, with no more rights than its manifest gives it.

Two replicas in a namespace of their own: they agree on the certificates, one leads, and another does when it ends or is
killed; what a past leader decided is refused, however late it arrives. Who asks what is tried with certificates as openssl
and Python's ssl see them. Pods that run are for other scenarios.
"""
import base64
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring.binder import RECORD  # noqa: E402
from ring.kube import ApiError, wait_for  # noqa: E402
from ring.stall import Stall  # noqa: E402
from ring.testing import RingTest, main, pod  # noqa: E402

DEPLOY = HERE.parent.parent / "deploy"
SPACE = "control-process"
CALL = json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [
    {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": "3"}}}]}}, "NodeNames": ["nowhere"]})


class Replica:
    """One process; its ports are its own."""

    def __init__(self, program, kubeconfig, folder, name):
        self.log = folder / f"{name}.log"
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0))
            b.bind(("127.0.0.1", 0))
            self.port, self.plain = a.getsockname()[1], b.getsockname()[1]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program, "control", "--kubeconfig", kubeconfig, "--namespace", SPACE, "--identity", name, "--listen",
                 f"127.0.0.1:{self.port}", "--plain-listen", f"127.0.0.1:{self.plain}"], stderr=log)

    def get(self, path):
        """Of the plain port: status and text; None while nobody answers."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.plain, timeout=5)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None

    def ready(self):
        return self.get("/readyz") == (200, "ok\n")

    def leads(self):
        answer = self.get("/metrics")
        return answer is not None and "\ncarve_control_leader 1\n" in answer[1]

    def ask(self, context, method, path, body=None):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection = http.client.HTTPConnection("unused")
        connection.sock = context.wrap_socket(raw, server_hostname=f"carve-control.{SPACE}.svc")
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class ControlProcess(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory(prefix="carve-control-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.ring.kubectl("apply", "-f", DEPLOY / "crds")
        cls.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        cls.addClassCleanup(cls.clean)
        cls.rights()
        cls.kubeconfig = cls.access()

    @classmethod
    def clean(cls):
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            cls.kube.delete(kind, SPACE)
        cls.kube.delete("Namespace", SPACE)
        wait_for("the namespace gone", 60, lambda: cls.kube.get("Namespace", SPACE) is None)

    @classmethod
    def rights(cls):
        """The manifest's own, in another namespace and under another name."""
        text = cls.ring.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                DEPLOY / "control" / "control-rbac.yaml").stdout
        at = 0
        while text[at:].strip():
            found, end = json.JSONDecoder().raw_decode(text[at:].lstrip())
            at = len(text) - len(text[at:].lstrip()) + end
            for object_ in found.get("items", [found]):
                if object_["kind"].startswith("ClusterRole"):
                    object_["metadata"]["name"] = SPACE
                    if "roleRef" in object_:
                        object_["roleRef"]["name"] = SPACE
                else:
                    object_["metadata"]["namespace"] = SPACE
                for subject in object_.get("subjects", []):
                    subject["namespace"] = SPACE
                cls.kube.create(object_)

    @classmethod
    def access(cls, port=None):
        """A kubeconfig of control's account. port: of the loopback, instead of the ring's own door."""
        token = cls.kube.request("POST", cls.kube.path("ServiceAccount", "carve-control", SPACE, "token"), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3600}})["status"]["token"]
        view = json.loads(cls.ring.kubectl("config", "view", "--raw", "--flatten", "-o", "json").stdout)
        if port:
            view["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        view["users"] = [{"name": "control", "user": {"token": token}}]
        view["contexts"] = [{"name": "x", "context": {"cluster": view["clusters"][0]["name"], "user": "control"}}]
        view["current-context"] = "x"
        file = cls.folder / f"kubeconfig-{port}"
        file.write_text(json.dumps(view), encoding="utf-8")
        return file

    def start(self, name, kubeconfig=None):
        replica = Replica(self.ring.build / "bin" / "carve", kubeconfig or self.kubeconfig, self.folder,
                          f"{name}-{self.name()}")

        def end():
            if replica.process.poll() is None:
                replica.process.kill()
            replica.process.wait()
        self.addCleanup(end)
        return replica

    def two_ready(self):
        pair = [self.start("a"), self.start("b")]
        for one in pair:
            wait_for(f"{one.log.name} ready", 30, one.ready)
        wait_for("a leader", 20, lambda: any(one.leads() for one in pair))
        pair.sort(key=lambda one: not one.leads())
        self.assertEqual([one.leads() for one in pair], [True, False])
        return pair

    def data(self, secret):
        return {name: base64.b64decode(text)
                for name, text in self.kube.request(
                    "GET", f"/api/v1/namespaces/{SPACE}/secrets/{secret}")["data"].items()}

    def context(self, client=True):
        found = self.data("carve-scheduler-tls")
        for name, text in found.items():
            (self.folder / name).write_bytes(text)
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if client:
            context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        return context

    def holder(self):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/carve-control"
        return self.kube.request("GET", path)["spec"]["holderIdentity"]

    def test_two_replicas_agree_on_certificates_and_on_who_leads(self):
        leader, other = self.two_ready()
        self.assertIn(leader.log.stem, self.holder())
        context, stranger = self.context(), self.context(client=False)
        done = subprocess.run(["openssl", "verify", "-CAfile", self.folder / "ca.crt", "-purpose", "sslclient",
                               self.folder / "tls.crt"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("ca.key", self.data("carve-scheduler-tls"))
        for one in (leader, other):         # one authority, one serving certificate, whoever is asked
            status, text = one.ask(context, "POST", "/scheduler/filter", CALL)
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["FailedAndUnresolvableNodes"], {"nowhere": "no card of ours on it"})
            self.assertEqual(one.ask(stranger, "POST", "/scheduler/filter", CALL)[0], 403)
            self.assertEqual(one.ask(stranger, "GET", "/v1/cluster")[0], 403)
            self.assertEqual(one.ask(context, "GET", "/v1/cluster")[0], 200)
            self.assertEqual(one.ask(stranger, "POST", "/webhook/mutate", "{}")[0], 200)
            self.assertNotIn("PRIVATE", one.log.read_text(encoding="utf-8"))
            self.assertNotIn("cannot be kept", one.log.read_text(encoding="utf-8"))
        with self.assertRaises(ssl.SSLError):
            leader.ask(ssl.create_default_context(), "GET", "/v1/cluster")

    def test_told_to_end_it_answers_until_others_know_and_gives_the_lease_back(self):
        leader, other = self.two_ready()
        context = self.context()
        leader.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        wait_for("not ready any more", 2, lambda: (leader.get("/readyz") or (0,))[0] == 503, every=0.02)
        self.assertEqual(leader.ask(context, "POST", "/scheduler/filter", CALL)[0], 200)
        wait_for("the other leads", 8, other.leads)
        print(f"led by the other {time.monotonic() - begin:.1f} s after SIGTERM")
        self.assertEqual(leader.process.wait(10), 0)
        self.assertIn(other.log.stem, self.holder())

    def test_killed_it_is_followed_when_its_lease_has_ended(self):
        leader, other = self.two_ready()
        leader.process.kill()
        begin = time.monotonic()
        context = self.context()
        self.assertEqual(other.ask(context, "POST", "/scheduler/filter", CALL)[0], 200, "filter needs no leader")
        wait_for("the other leads", 15, other.leads)      # the lease, 10 s, and 5
        print(f"led by the other {time.monotonic() - begin:.1f} s after SIGKILL")
        again = self.start("c")
        wait_for("a new one ready", 20, again.ready)
        self.assertFalse(again.leads())

    # --- two leaders at once -------------------------------------------------------------------------------------

    def fence(self):
        """deploy/control/leader-policy.yaml for this namespace's control."""
        rendered = self.ring.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                     DEPLOY / "control" / "leader-policy.yaml").stdout
        rendered = rendered.replace("carve-system", SPACE).replace("carve-leader.elasticgpu.io", SPACE)
        self.ring.kubectl("apply", "-f", "-", input=rendered)
        self.addCleanup(self.ring.kubectl, "delete", "--ignore-not-found", "-f", "-", input=rendered)
        control = self.ring.kube()
        control.headers = {"Impersonate-User": f"system:serviceaccount:{SPACE}:carve-control"}

        def in_force():
            try:
                control.request("POST", control.path("Pod", "none", sub="binding", dryRun="All"), self.binding("none"))
            except ApiError as error:
                return "a past leader" in str(error)
        wait_for("the policy in force", 30, in_force, every=0.5)

    @staticmethod
    def binding(name):
        return {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
                "metadata": {"name": name, "namespace": "default", "annotations": {RECORD: '{"v":1,"epoch":0,"owner":{}}'}}}

    def card(self):
        """A node that exists at the API server only, with one card of 16 GiB; its name."""
        node = self.name("node")
        size = {"elasticgpu.io/gpu-memory": "16384", "elasticgpu.io/gpu-core": "100"}
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
        uuid = f"GPU-{node}"
        self.create({"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": f"{node}.{uuid.lower()}"},
                     "spec": {"index": 0, "uuid": uuid, "memory": 16 << 30, "nodeName": node, "vendor": "nvidia",
                              "doors": ["slots"]}})
        self.kube.patch("GPU", f"{node}.{uuid.lower()}", {"status": {
            "state": "Healthy", "capacity": size, "allocatable": size, "free": size, "holders": []}}, sub="status")
        return node

    def asking(self):
        """A pod for 10 GiB that no scheduler looks at."""
        made = pod(self.name(), schedulerName="nobody")
        made["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": "10"}}
        made = self.kube.create(made)
        self.addCleanup(self.kube.delete, "Pod", made["metadata"]["name"], grace=0)
        return made["metadata"]

    @staticmethod
    def bind(replica, context, meta, node):
        """What kube-scheduler asks; the words of the refusal, empty: bound."""
        status, text = replica.ask(context, "POST", "/scheduler/bind", json.dumps({
            "PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}))
        return json.loads(text).get("Error", "") if status == 200 else f"{status} {text}"

    def test_what_a_past_leader_decided_is_refused_however_late_it_arrives(self):
        """A leader has decided and sent its Binding; before that arrives the leader stands still, another leads and
        gives the same room to another pod."""
        stall = Stall(self.ring, lambda line: "/binding" in line)
        self.addCleanup(stall.close)
        old = self.start("old", self.access(stall.port))
        wait_for("the old one leads", 30, lambda: old.ready() and old.leads())
        new = self.start("new")
        wait_for("the new one ready", 30, new.ready)
        self.fence()
        context, node = self.context(), self.card()
        first, second = self.asking(), self.asking()
        wait_for("the card is known", 20, lambda: node in new.ask(context, "GET", "/v1/cluster")[1] and
                 node in old.ask(context, "GET", "/v1/cluster")[1])
        said = []

        def ask():
            try:
                said.append(self.bind(old, context, first, node))
            except OSError as error:        # it stands still
                said.append(str(error))
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        self.assertTrue(stall.waiting.wait(10), "the old leader sends its Binding")
        old.process.send_signal(signal.SIGSTOP)
        wait_for("the new one leads", 20, new.leads)
        self.assertEqual(self.bind(new, context, second, node), "")
        stall.release()
        wait_for("the API server's answer to the old Binding", 20, lambda: stall.answers)
        old.process.send_signal(signal.SIGCONT)
        asking.join(20)
        on = [self.kube.get("Pod", one["name"])["spec"].get("nodeName") for one in (first, second)]
        self.assertEqual(on, [None, node], stall.answers)
        self.assertIn(" 403 ", stall.answers[0])
        self.assertIn("a past leader of carve-control", stall.answers[0])
        self.assertTrue(said and said[0], "the old leader does not say that it bound the pod")
        self.assertIn("no room", self.bind(new, context, first, node))
        wait_for("the old one knows that it does not lead", 10, lambda: not old.leads())


if __name__ == "__main__":
    main()
