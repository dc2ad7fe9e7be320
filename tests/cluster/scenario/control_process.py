"""`carve control` as a process, with the real API server and only the rights of its manifest.

Two replicas in a namespace of their own agree on the certificates. One leads; the other leads when the first ends or is
killed. A past leader's decision is refused, no matter how late it arrives. Settings that cannot be read change nothing.
Callers are tested with certificates through openssl and Python's ssl; a certificate near its end is replaced while the
replicas serve. Either replica accepts a bind, and gpushare's routes answer where they are enabled. Running pods are
left to other scenarios.
"""
import base64
import contextlib
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
from ring import bare_nodes, certs  # noqa: E402
from ring.binder import RECORD, SLOT  # noqa: E402
from ring.kube import ApiError, wait_for  # noqa: E402
from ring.stall import Stall  # noqa: E402
from ring.testing import Background, RingTest, main, pod  # noqa: E402

DEPLOY = HERE.parent.parent / "deploy"
SPACE = "control-process"
def call(*nodes):
    return json.dumps({"Pod": {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [
        {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": "3", SLOT: "1"}}}]}}, "NodeNames": nodes})


CALL = call("nowhere")


class Replica:
    """One process, with ports of its own."""

    def __init__(self, program, kubeconfig, folder, name, *more):
        self.log = folder / f"{name}.log"
        with socket.socket() as a, socket.socket() as b:
            a.bind(("127.0.0.1", 0))
            b.bind(("127.0.0.1", 0))
            self.port, self.plain = a.getsockname()[1], b.getsockname()[1]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [program, "control", "--kubeconfig", kubeconfig, "--namespace", SPACE, "--identity", name, "--listen",
                 f"127.0.0.1:{self.port}", "--advertise", f"127.0.0.1:{self.port}", "--plain-listen",
                 f"127.0.0.1:{self.plain}", *more], stderr=log)

    def get(self, path, method="GET", body=None):
        """(status, text) from the plain port; None when there is no answer."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.plain, timeout=5)
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None

    def ready(self):
        return self.get("/readyz") == (200, "ok\n")

    def leads(self):
        answer = self.get("/metrics")
        return answer is not None and "\ncarve_control_leader 1\n" in answer[1]

    def served(self):
        """The certificate with which it serves now, as PEM."""
        return ssl.get_server_certificate(("127.0.0.1", self.port))

    def ask(self, context, method, path, body=None):
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection = http.client.HTTPConnection("unused")
        connection.sock = context.wrap_socket(raw, server_hostname=f"carve-control.{SPACE}.svc")
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


class SchedulerCalls(Background):
    """kube-scheduler's calls before a bind, one after the other to one replica, until the end of the block: about a
    node with room, one with a card that is too small, and one without cards."""
    VERBS = ("filter", "prioritize", "choose")

    def __init__(self, replica, context, room, small):
        super().__init__()
        self.replica, self.context, self.room, self.small = replica, context, room, small
        self.seconds, self.wrong = [], []

    def right(self, verb, answer):
        if verb == "prioritize":
            return answer == [{"Host": self.room, "Score": 10}]
        refused = answer["FailedAndUnresolvableNodes"]
        return (answer["Error"] == "" and answer["NodeNames"] == [self.room] and
                (verb == "choose" or ("2 GiB < 3 GiB" in refused[self.small] and "no card" in refused["nowhere"])))

    def run(self):
        while not self.end.is_set():
            verb, begun = self.VERBS[len(self.seconds) % len(self.VERBS)], time.monotonic()
            try:
                status, text = self.replica.ask(self.context, "POST", f"/scheduler/{verb}",
                                                call(self.room, self.small, "nowhere"))
                if status != 200 or not self.right(verb, json.loads(text)):
                    self.wrong.append(f"{verb}: {status} {text}")
            except (OSError, ValueError, KeyError) as error:
                self.wrong.append(f"{verb}: {error}")
            self.seconds.append(time.monotonic() - begun)
            self.end.wait(0.02)


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
        for kind in ("RoleBinding", "Role"):
            cls.kube.delete(kind, SPACE, "kube-system")
        cls.kube.delete("Namespace", SPACE)
        wait_for("the namespace gone", 60, lambda: cls.kube.get("Namespace", SPACE) is None)

    @classmethod
    def rights(cls):
        """The manifest's rights, in another namespace and with another name."""
        text = cls.ring.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                DEPLOY / "control" / "control-rbac.yaml").stdout
        at = 0
        while text[at:].strip():
            found, end = json.JSONDecoder().raw_decode(text[at:].lstrip())
            at = len(text) - len(text[at:].lstrip()) + end
            for object_ in found.get("items", [found]):
                if object_["metadata"].get("namespace") == "carve-system":
                    object_["metadata"]["namespace"] = SPACE
                else:                                   # cluster-wide, or in kube-system
                    object_["metadata"]["name"] = SPACE
                    if "roleRef" in object_:
                        object_["roleRef"]["name"] = SPACE
                for subject in object_.get("subjects", []):
                    subject["namespace"] = SPACE
                cls.kube.create(object_)

    @classmethod
    def access(cls, port=None):
        """A kubeconfig of control's account. port: of the loopback, instead of the ring's own forwarder."""
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

    def start(self, name, kubeconfig=None, settings=None):
        more = []
        if settings is not None:
            more = ["--cluster-config", self.folder / f"{name}.conf"]
            more[1].write_text(settings)
        replica = Replica(self.ring.build / "bin" / "carve", kubeconfig or self.kubeconfig, self.folder,
                          f"{name}-{self.name()}", *more)

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
        return self.kube.secret(secret, SPACE)

    def context(self, client=True):
        found = wait_for("the scheduler's certificate", 20, lambda: self.data("carve-scheduler-tls"))
        for name, text in found.items():
            (self.folder / name).write_bytes(text)
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if client:
            context.load_cert_chain(self.folder / "tls.crt", self.folder / "tls.key")
        return context

    def lease(self):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/carve-control"
        return self.kube.request("GET", path)["spec"]

    def holder(self):
        return self.lease()["holderIdentity"]

    def epoch(self):
        return self.lease()["leaseTransitions"]

    def test_two_replicas_agree_on_certificates_and_on_the_leader(self):
        leader, other = self.two_ready()
        self.assertIn(leader.log.stem, self.holder())
        context, stranger = self.context(), self.context(client=False)
        done = subprocess.run(["openssl", "verify", "-CAfile", self.folder / "ca.crt", "-purpose", "sslclient",
                               self.folder / "tls.crt"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("ca.key", self.data("carve-scheduler-tls"))
        for one in (leader, other):         # one authority, one serving certificate, from either replica
            status, text = one.ask(context, "POST", "/scheduler/filter", CALL)
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["FailedAndUnresolvableNodes"], {"nowhere": "no card managed by Carve"})
            self.assertEqual(one.ask(stranger, "POST", "/scheduler/filter", CALL)[0], 403)
            self.assertEqual(one.ask(stranger, "GET", "/v1/cluster")[0], 403)
            self.assertEqual(one.ask(context, "GET", "/v1/cluster")[0], 200)
            self.assertEqual(one.ask(stranger, "POST", "/webhook/mutate", "{}")[0], 200)
            self.assertNotIn("PRIVATE", one.log.read_text(encoding="utf-8"))
            self.assertNotIn("certificates cannot be maintained", one.log.read_text(encoding="utf-8"))
        with self.assertRaises(ssl.SSLError):
            leader.ask(ssl.create_default_context(), "GET", "/v1/cluster")

    def test_after_sigterm_the_leader_still_answers_and_releases_the_lease(self):
        leader, other = self.two_ready()
        context = self.context()
        leader.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        wait_for("not ready any more", 2, lambda: (leader.get("/readyz") or (0,))[0] == 503, every=0.02)
        self.assertEqual(leader.ask(context, "POST", "/scheduler/filter", CALL)[0], 200)
        wait_for("the other leads", 12, other.leads)        # five of these seconds are the notice
        print(f"the other led {time.monotonic() - begin:.1f} s after SIGTERM")
        self.assertEqual(leader.process.wait(10), 0)
        self.assertIn(other.log.stem, self.holder())

    def test_when_the_leader_is_killed_the_other_leads_after_the_lease_expires(self):
        leader, other = self.two_ready()
        self.lead_by_another(leader, other, signal.SIGKILL)
        again = self.start("c")
        wait_for("a new replica ready", 20, again.ready)
        self.assertFalse(again.leads())

    def test_when_the_leader_is_stopped_the_other_answers_and_leads(self):
        leader, other = self.two_ready()
        self.lead_by_another(leader, other, signal.SIGSTOP)
        leader.process.send_signal(signal.SIGCONT)
        wait_for("the old one knows that it does not lead", 10, lambda: leader.ready() and not leader.leads())

    def lead_by_another(self, leader, other, by):
        room, small = self.card(), self.card(gib=2)
        context = self.context()
        for node in (room, small):
            self.known_to((leader, other), context, node)
        with SchedulerCalls(other, context, room, small) as calls:
            wait_for("calls are answered", 10, lambda: len(calls.seconds) > 3)
            leader.process.send_signal(by)
            begin = time.monotonic()
            wait_for("the other leads", 15, other.leads)      # the lease, 10 s, and 5
            print(f"the other led {time.monotonic() - begin:.1f} s after {signal.Signals(by).name}")
        self.assertEqual(calls.wrong, [], "filter, prioritize and choose need no leader")
        self.assertGreaterEqual(len(calls.seconds), 3 + 2)    # before; then for 10 s, each in less than 5
        print(f"{len(calls.seconds)} calls during that time, the slowest took {max(calls.seconds) * 1000:.0f} ms")
        self.assertLess(max(calls.seconds), 5, "kube-scheduler's httpTimeout")

    # --- certificates near their end ---------------------------------------------------------------------------------

    def put(self, name):
        """Stores that certificate in control's Secret, as if it had been there for long."""
        pair = {"ca": ("ca.crt", "ca.key")}.get(name, ("tls.crt", "tls.key"))
        texts = [base64.b64encode((self.folder / f"{name}.{kind}").read_bytes()).decode() for kind in ("crt", "key")]
        self.kube.patch("Secret", "carve-control-tls", {"data": dict(zip(pair, texts))}, SPACE)
        return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert((self.folder / f"{name}.crt").read_text()))

    def leaf(self, name, days):
        """A serving certificate like control's, but with another validity."""
        full = f"carve-control.{SPACE}"
        names = ",".join("DNS:" + one for one in ("carve-control", full, full + ".svc", full + ".svc.cluster.local", "localhost"))
        kept = self.data("carve-control-tls")
        for kind in ("crt", "key"):
            (self.folder / f"now.{kind}").write_bytes(kept[f"ca.{kind}"])
        certs.dated(self.folder, name, "/CN=carve-control", days,
                    f"basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"
                    f"subjectAltName={names}\n", "now")
        return self.put(name)

    @staticmethod
    def days_left(pem):
        """Days until a certificate expires, as openssl reads it."""
        done = subprocess.run(["openssl", "x509", "-noout", "-enddate"], input=pem, text=True, capture_output=True, check=True)
        return (ssl.cert_time_to_seconds(done.stdout.strip().partition("=")[2]) - time.time()) / 86400

    def test_a_serving_certificate_near_its_end_is_replaced_without_a_restart(self):
        pair = self.two_ready()
        context = self.context()
        young = self.leaf("young", (-10, 80))
        for one in pair:        # age is the only reason for the replacement
            wait_for(f"{one.log.name} serves with the certificate in the Secret", 10, lambda o=one: o.served() == young)
        due = self.leaf("due", (-80, 10))
        for one in pair:
            wait_for(f"{one.log.name} serves with a new one", 10, lambda o=one: o.served() not in (young, due))
        self.assertEqual(pair[0].served(), pair[1].served())
        self.assertGreater(self.days_left(pair[0].served()), 85)
        for one in pair:
            self.assertEqual(one.ask(context, "GET", "/v1/cluster")[0], 200, "existing clients still trust it")
            self.assertIsNone(one.process.poll(), "the same process")

    def published_authorities(self):
        """The authorities by which the API server knows control, from the webhook's configuration."""
        hook, = self.kube.get("MutatingWebhookConfiguration", "carve-admission")["webhooks"]
        return base64.b64decode(hook["clientConfig"].get("caBundle", ""))

    def test_an_authority_near_its_end_is_replaced_and_published_in_the_webhook(self):
        self.create({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                     # it has no rules: it is never called
                     "metadata": {"name": "carve-admission"}, "webhooks": [{
                         "name": "pods.carve.elasticgpu.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                         "clientConfig": {"service": {"namespace": SPACE, "name": "carve-control", "port": 8443}}}]})
        pair = self.two_ready()
        wait_for("the webhook has the authority", 10,
                 lambda: self.published_authorities() == self.data("carve-control-tls")["ca.crt"])
        certs.dated(self.folder, "ca", "/CN=carve-control authority 1", (-3340, 310),
                    "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"
                    "subjectKeyIdentifier=hash\n")
        old = self.put("ca").encode()

        def replaced():
            published = self.published_authorities()
            return published.count(b"BEGIN CERT") == 2 and published.endswith(old) and \
                all(self.data(one)["ca.crt"] == published for one in ("carve-control-tls", "carve-scheduler-tls"))
        wait_for("old and new authority are published everywhere", 15, replaced)
        new = self.published_authorities()[:-len(old)].decode()
        self.assertGreater(self.days_left(new), 3640)
        only_new = ssl.create_default_context(cadata=new)
        for one in pair:
            def signed_by_the_new_one(replica=one):
                with contextlib.suppress(ssl.SSLCertVerificationError):
                    return replica.ask(only_new, "POST", "/webhook/mutate", "{}")[0] == 200
            wait_for(f"{one.log.name} serves with a certificate of the new authority", 10, signed_by_the_new_one)
            wait_for("and accepts client certificates of the new authority", 10,
                     lambda o=one: o.ask(self.context(), "GET", "/v1/cluster")[0] == 200, every=0.5)
            self.assertIsNone(one.process.poll(), "the same process")

    # --- which replica may bind ----------------------------------------------------------------------------------

    def known_to(self, replicas, context, node):
        for one in replicas:
            wait_for(f"{node} is known to {one.log.name}", 20, lambda o=one: node in o.ask(context, "GET", "/v1/cluster")[1])

    def bound_to(self, meta):
        return self.kube.get("Pod", meta["name"])["spec"].get("nodeName")

    def test_either_replica_accepts_a_bind_and_without_a_leader_asks_for_a_retry(self):
        leader, other = self.two_ready()
        context, nodes, pods = self.context(), [self.card(), self.card()], [self.asking(), self.asking()]
        for node in nodes:
            self.known_to((leader, other), context, node)
        self.assertEqual(self.bind(other, context, pods[0], nodes[0]), "")
        self.assertEqual(self.bound_to(pods[0]), nodes[0])
        record = json.loads(self.kube.get("Pod", pods[0]["name"])["metadata"]["annotations"][RECORD])
        self.assertEqual(record["epoch"], self.kube.get("Lease", "carve-control", SPACE)["spec"]["leaseTransitions"])
        leader.process.kill()
        leader.process.wait()
        said = self.bind(other, context, pods[1], nodes[1])
        self.assertFalse(other.leads(), "the lease of the dead one has not ended")
        self.assertIn("kube-scheduler retries", said)
        self.assertIsNone(self.bound_to(pods[1]))
        wait_for("the other leads", 15, other.leads)
        self.assertEqual(self.bind(other, context, pods[1], nodes[1]), "")
        self.assertEqual(self.bound_to(pods[1]), nodes[1])

    def test_a_binding_without_an_answer_is_found_by_reading_the_pod(self):
        stall = Stall(self.ring, lambda line: "/binding" in line, lost=True)
        self.addCleanup(stall.close)
        one = self.start("one", self.access(stall.port))
        wait_for("the replica leads", 30, lambda: one.ready() and one.leads())
        context, node, asking = self.context(), self.card(), self.asking()
        self.known_to((one,), context, node)
        self.assertEqual(self.bind(one, context, asking, node), "", "the pod is bound, and the answer says so")
        self.assertEqual(self.bound_to(asking), node)
        self.assertEqual([answer.split("\r\n")[0] for answer in stall.answers], ["HTTP/1.1 201 Created"], "written once")
        record = json.loads(self.kube.get("Pod", asking["name"])["metadata"]["annotations"][RECORD])
        self.assertEqual(record["owner"]["uid"], asking["uid"])
        counted = {'carve_control_bindings_total{outcome="unknown"} 1', 'carve_control_bindings_total{outcome="found"} 1',
                   'carve_control_bindings_total{outcome="bound"} 0', "carve_control_reservations 0"}
        wait_for("the reservation has become the record", 10,
                 lambda: counted <= set(one.get("/metrics")[1].splitlines()))
        self.assertEqual(self.bind(one, context, asking, node), "", "kube-scheduler retries")
        self.assertEqual(len(stall.answers), 1)

    # --- settings ----------------------------------------------------------------------------------------------------

    def refusals_of_settings(self):
        return [one for one in self.kube.request("GET", f"/api/v1/namespaces/{SPACE}/events")["items"]
                if one["reason"] == "SettingsRefused"]

    def test_invalid_settings_are_reported_and_change_nothing(self):
        one = self.start("a", settings="placement.policy = binpack\n")

        def change(text):       # in one step, as the kubelet changes a mounted ConfigMap
            (self.folder / "next").write_text(text)
            (self.folder / "next").replace(self.folder / "a.conf")
        wait_for("ready and leading", 30, lambda: one.ready() and one.leads())
        change("placement.polcy = spread\n")
        events = wait_for("an event", 20, self.refusals_of_settings)
        self.assertEqual(events[0]["involvedObject"]["name"], "carve-cluster")
        self.assertIn("cluster.conf:1: placement.polcy: unknown key", events[0]["message"])
        time.sleep(3)       # control reads the file three times
        self.assertIsNone(one.process.poll(), "it would not start again")
        self.assertTrue(one.ready() and one.leads())
        change("placement.policy = spread\n")
        wait_for("it has noticed", 20, lambda: "the settings changed" in one.log.read_text(encoding="utf-8"))
        wait_for("ready and leading again", 30, lambda: one.ready() and one.leads())
        self.assertIsNone(one.process.poll(), "it starts again in its container")

    # --- gpushare's routes -------------------------------------------------------------------------------------------

    def test_gpushares_routes_answer_without_a_certificate_where_they_are_enabled(self):
        off, on = self.start("off"), self.start("on", settings="dialects.gpushare-http = on\n")
        nodes = [self.card(), self.name("bare")]
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": nodes[1]}})
        for one in (off, on):
            wait_for(f"{one.log.name} ready", 30, one.ready)
        self.assertEqual(off.get("/gpushare-scheduler/inspect")[0], 404)
        row = {"name": nodes[0], "totalGPU": 16, "usedGPU": 0, "devs": [{"id": 0, "totalGPU": 16, "usedGPU": 0, "pods": []}]}
        wait_for("its card", 20, lambda: row in json.loads(on.get("/gpushare-scheduler/inspect")[1])["nodes"])
        self.assertEqual(json.loads(on.get(f"/gpushare-scheduler/inspect/{nodes[0]}")[1]), {"nodes": [row]})
        self.assertIn("no card managed by Carve", json.loads(on.get(f"/gpushare-scheduler/inspect/{nodes[1]}")[1])["error"])
        objects = [self.kube.get("Node", name) for name in nodes]
        for size, fits in ((10, nodes[:1]), (17, [])):
            call = {"pod": {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [
                {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": str(size), SLOT: "1"}}}]}},
                "nodes": {"metadata": {}, "items": objects}, "nodenames": None}
            status, text = on.get("/gpushare-scheduler/filter", "POST", json.dumps(call))
            self.assertEqual(on.get("/scheduler/predicates", "POST", json.dumps(call)), (status, text))
            said = json.loads(text)
            self.assertEqual((status, [one["metadata"]["name"] for one in said["Nodes"]["items"]]), (200, fits), text)
            self.assertTrue(all(one in objects for one in said["Nodes"]["items"]), "complete, as they were sent")
            refused = {**said["FailedNodes"], **said["FailedAndUnresolvableNodes"]}
            self.assertEqual(sorted(refused), sorted(set(nodes) - set(fits)))
            self.assertEqual(on.get("/scheduler/filter", "POST", json.dumps(call)), (status, text))
            ranked = json.loads(on.get("/scheduler/priorities", "POST", json.dumps(call))[1])
            self.assertEqual(ranked, [{"Host": name, "Score": 10} for name in fits])
        of_elastic = json.loads(json.loads(on.get("/scheduler/status")[1])["elasticgpu.com/gpu-core"])
        self.assertEqual(of_elastic[nodes[0]], [{"CoreAvailable": 100, "MemoryAvailable": 16384, "CoreTotal": 100,
                                                 "MemoryTotal": 16384}])
        self.assertEqual(on.get("/gpushare-scheduler/bind", "POST", "{}")[0], 404, "bind needs TLS")

    # --- two leaders at one time ---------------------------------------------------------------------------------

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
                return f"a past leader of carve-control decided this record (the Lease is in epoch {self.epoch()} now)" in str(error)
        try:
            wait_for("the policy in force", 15, in_force, every=0.5)
        except AssertionError:      # it compares with the Lease of an earlier try: leader-policy.yaml explains why
            self.ring.stop_api_server()
            self.ring.start_api_server()
            self.ring.wait_api_server()
            wait_for("the policy in force in a new API server", 30, in_force, every=0.5)

    @staticmethod
    def binding(name):
        return {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
                "metadata": {"name": name, "namespace": "default", "annotations": {RECORD: '{"v":1,"epoch":0,"owner":{}}'}}}

    def card(self, gib=16):
        """A node that exists only at the API server, with one card. Returns its name."""
        node = self.name("node")
        bare_nodes.with_card(self.create, self.kube, node, gib=gib)
        return node

    def asking(self):
        """A pod for 10 GiB that no scheduler serves."""
        made = pod(self.name(), schedulerName="nobody")
        made["spec"]["containers"][0]["resources"] = {"limits": {"aliyun.com/gpu-mem": "10", SLOT: "1"}}
        made = self.kube.create(made)
        self.addCleanup(self.kube.delete, "Pod", made["metadata"]["name"], grace=0)
        return made["metadata"]

    @staticmethod
    def bind(replica, context, meta, node):
        """kube-scheduler's bind call. Returns the text of the refusal; empty when the pod was bound."""
        status, text = replica.ask(context, "POST", "/scheduler/bind", json.dumps({
            "PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}))
        return json.loads(text).get("Error", "") if status == 200 else f"{status} {text}"

    def test_a_past_leaders_decision_is_refused_no_matter_how_late_it_arrives(self):
        """A leader has decided and sent its Binding. Before the Binding arrives, the leader is stopped, and another
        leads and gives the same room to another pod."""
        stall = Stall(self.ring, lambda line: "/binding" in line)
        self.addCleanup(stall.close)
        old = self.start("old", self.access(stall.port))
        wait_for("the old one leads", 30, lambda: old.ready() and old.leads())
        self.fence()
        context, node = self.context(), self.card()
        first, second = self.asking(), self.asking()
        wait_for("the old one knows the card", 20, lambda: node in old.ask(context, "GET", "/v1/cluster")[1])
        said = []

        def ask():
            try:
                said.append(self.bind(old, context, first, node))
            except OSError as error:        # it is stopped
                said.append(str(error))

        # Under load the old one may lose its Lease for a moment and answer without a decision. It is asked again: the
        # other does not run yet, so no other process can lead.
        def sends_a_binding():
            said.clear()
            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            while asking.is_alive() and not stall.waiting.wait(0.05):
                pass
            return asking if stall.waiting.is_set() else None
        asking = wait_for("the old leader sends its Binding", 30, sends_a_binding)
        old.process.send_signal(signal.SIGSTOP)
        new = self.start("new")
        wait_for("the new one leads and knows the card", 30, lambda: new.ready() and new.leads() and
                 node in new.ask(context, "GET", "/v1/cluster")[1])
        self.assertEqual(self.bind(new, context, second, node), "")
        stall.release()
        wait_for("the API server's answer to the old Binding", 20, lambda: stall.answers)
        old.process.send_signal(signal.SIGCONT)
        asking.join(20)
        on = [self.kube.get("Pod", one["name"])["spec"].get("nodeName") for one in (first, second)]
        self.assert_no_findings([f"a past leader's Binding took effect: {on}, {stall.answers}"] if on[0] else [])
        self.assertEqual(on, [None, node], stall.answers)
        self.assertIn(" 403 ", stall.answers[0])
        self.assertIn("a past leader of carve-control", stall.answers[0])
        self.assertTrue(said and said[0], "the old leader does not say that it bound the pod")
        self.assertIn("no room", self.bind(new, context, first, node))
        wait_for("the old one knows that it does not lead", 10, lambda: not old.leads())


if __name__ == "__main__":
    main()
