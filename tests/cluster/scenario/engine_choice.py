"""Compares placements by the real kube-scheduler and control with the engine's offline choices for the same state.

Nodes with 8 cards that exist only as objects; pods in all dialects, until the cluster is well filled: 250 pods on 30
nodes. Four workers create them concurrently: kube-scheduler asks about the next pod while the previous Binding is on its
way. With CARVE_SOAK 500 pods on 60 nodes, each created when the previous one is bound. A recorder between kube-scheduler
and control records every filter call and every bind call. Afterwards the engine (tests/cluster/engine) reads the objects
in that order and names a node and cards for each filter call: the last one of each pod is compared with its Binding. A
pod's cards are read from the pod at the API server.

State at a filter call: every pod with an earlier call that named a node counts as placed, because control expects a pod
where it sent it until it is bound (core/cluster/assumed_pods.h). kube-scheduler repeats a call if the answer
is late. The seed is printed; CARVE_SEED sets it. With CARVE_FOLLOWER kube-scheduler asks a second replica, which does
not lead and forwards the bind calls.

The same with fewer pods through the configuration of the cluster's own scheduler (deploy/control/scheduler/default),
which calls filter and prioritize, and weighs the answer.
"""
import http.server
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import binder, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import in_soak, main  # noqa: E402

SOAK = bool(os.environ.get("CARVE_SOAK"))
NODES, CARDS, PODS, LEAST = (60, 8, 500, 0.99) if SOAK else (30, 8, 250, 0.99)
BY_DEFAULT = PODS * 3 // 10     # pods through the default scheduler, one after the other


class Recorder(http.server.ThreadingHTTPServer):
    """Between kube-scheduler (plain HTTP) and control (its own TLS): forwards everything and records it."""
    daemon_threads = True

    def __init__(self, port, certificates):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = port
        self.certificates = certificates
        self.events = []        # [verb, body, answer or None] in the order in which they were forwarded
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream = None

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        event = [self.path.rsplit("/", 1)[-1], body, None]
        self.server.events.append(event)        # append is atomic, so this is the recorded order
        if self.upstream is None:
            self.upstream = placing.ControlConnection(self.server.port, self.server.certificates)
        self.upstream.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = self.upstream.getresponse()
        event[2] = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(event[2])))
        self.end_headers()
        self.wfile.write(event[2])


def limits_of(random_):
    """What one container requests."""
    kind = random_.random()
    if kind < 0.45:
        return {"elasticgpu.io/gpu-memory": random_.choice((2048, 4096, 8192, 16384, 24576)),
                "elasticgpu.io/gpu-core": random_.choice((5, 10, 20, 30, 50))}
    if kind < 0.6:
        return {"elasticgpu.io/gpu-memory": random_.choice((1024, 3000, 10240))}
    if kind < 0.85:
        return {"aliyun.com/gpu-mem": random_.choice((1, 3, 7, 20))}
    return {"nvidia.com/gpu": random_.choice((1, 1, 1, 2, 4))}


def pod_of(index, random_):
    containers = [{"name": f"c{i}", "image": "none",
                   "resources": {"limits": {binder.SLOT: "1",
                                            **{key: str(value) for key, value in limits_of(random_).items()}}}}
                  for i in range(2 if random_.random() < 0.1 else 1)]
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"choice-{index:03}", "namespace": "default", "labels": {placing.LABEL: "true"}},
            "spec": {"schedulerName": "carve-scheduler", "automountServiceAccountToken": False,
                     "nodeSelector": {placing.LABEL: "true"},        # the ring's own node may have cards, too
                     "containers": containers, "tolerations": [{"operator": "Exists"}]}}


class EngineChoice(unittest.TestCase):
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.ring = Ring.load()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("engine choice"))
        cls.addClassCleanup(cls.placing.uninstall)
        cls.placing.install()
        cls.placing.make_nodes(NODES, CARDS)
        cls.placing.start_control(follower=bool(os.environ.get("CARVE_FOLLOWER")))

    def test_bindings_are_the_engines_choice(self):
        self.judge("choose", PODS)

    def test_bindings_through_the_default_scheduler_are_the_engines_choice(self):
        self.judge("filter", BY_DEFAULT)

    @in_soak
    def test_bindings_are_the_engines_choice_when_whole_nodes_are_sent(self):
        calls = self.judge("filter", BY_DEFAULT, whole_nodes=True)
        self.assertTrue(all("Items" in (call.get("Nodes") or call.get("nodes") or {}) or
                            "items" in (call.get("Nodes") or call.get("nodes") or {}) for call in calls), calls[:1])

    def clear(self):
        self.placing.stop(placing.SCHEDULER)
        names = [one["metadata"]["name"] for one in self.placing.kube.list("Pod", labelSelector=placing.LABEL)]
        self.placing.each(names, lambda kube, name: kube.delete("Pod", name, grace=0))

        def no_slices():    # control counts deleted pods for some seconds: no agent has reported their end
            lines = [line for line in self.placing.metrics().splitlines() if line.startswith('carve_control_card_slices{node="sim-')]
            return lines and all(line.endswith(" 0") for line in lines)
        wait_for("control counts no slices on these nodes", 30, no_slices, every=0.5)

    def judge(self, verb, count, whole_nodes=False):
        """Places the pods and compares. Returns kube-scheduler's calls of that verb."""
        seed = int(os.environ.get("CARVE_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"\nCARVE_SEED={seed}", flush=True)
        port = "follower" if os.environ.get("CARVE_FOLLOWER") else "tls"
        recorder = Recorder(self.placing.ports[port], self.placing.scheduler_certificates())
        self.addCleanup(recorder.shutdown)
        self.addCleanup(self.clear)
        self.placing.start_scheduler(through=recorder.address, default=verb == "filter", whole_nodes=whole_nodes)
        burst = verb == "choose" and not SOAK
        pods = self.place(random.Random(seed), burst, count)
        named = self.offline([(called == verb, *rest) for called, *rest in recorder.events], pods)
        right, wrong = 0, []
        for uid, pod in pods.items():
            got = (pod["spec"]["nodeName"], self.cards(pod))
            if named.get(uid) == got:
                right += 1
            else:
                wrong.append(f"{pod['metadata']['name']}: bound {got}, the engine names {named.get(uid)}")
        print(f"{right} of {len(pods)} Bindings are the node and cards that the engine names; "
              + ", ".join(f"{sum(e[0] == one for e in recorder.events)} {one} calls"
                          for one in ("choose", "filter", "prioritize", "bind")), flush=True)
        print("\n".join(wrong), flush=True)
        self.assertGreaterEqual(right, LEAST * count)
        self.assertEqual(len(pods), count)
        return [json.loads(body) for called, body, _ in recorder.events if called == verb]

    def bound_one(self, kube, pod):
        kube.create(pod)
        name = pod["metadata"]["name"]
        wait_for(f"{name} is bound", 60, lambda: kube.get("Pod", name)["spec"].get("nodeName"), every=0.005)

    def place(self, random_, burst, count):
        """Creates all pods and waits until all are bound. Returns uid -> pod."""
        made = [pod_of(index, random_) for index in range(count)]
        begun = time.monotonic()
        if burst:
            self.placing.each(made, lambda kube, pod: kube.create(pod), workers=4)
        else:
            self.placing.each(made, self.bound_one, workers=1)

        def bound():
            found = self.placing.kube.list("Pod", labelSelector=placing.LABEL)
            return found if all(pod["spec"].get("nodeName") for pod in found) else None
        found = wait_for("every pod is bound", 120, bound, every=0.5)
        print(f"{len(found)} pods in {time.monotonic() - begun:.1f} s", flush=True)
        return {pod["metadata"]["uid"]: pod for pod in found}

    @staticmethod
    def cards(pod):
        record = json.loads(pod["metadata"]["annotations"][binder.RECORD])
        return {part["part"]: sorted(card["uuid"] for card in part["cards"]) for part in record["parts"]}

    @staticmethod
    def names_a_node(answer):
        return bool(answer.get("NodeNames") or (answer.get("Nodes") or {}).get("items"))

    def offline(self, events, pods):
        """uid -> (node, container -> cards), the engine's choice at the pod's last filter call."""
        lines = []
        for kind in ("Node", "GPU"):
            lines += [f"{kind.lower()} {json.dumps(one)}"
                      for one in self.placing.kube.list(kind, None, labelSelector=placing.LABEL)]
        on_its_way = set()
        for asks, body, answer in events:
            if not asks:
                continue
            call = json.loads(body)
            lines.append("filter " + json.dumps(call))
            uid = (call.get("Pod") or call.get("pod"))["metadata"]["uid"]
            if uid not in on_its_way and self.names_a_node(json.loads(answer or "{}")):
                on_its_way.add(uid)      # and later bound
                lines.append("pod " + json.dumps(pods[uid]))
        with tempfile.TemporaryFile("w+") as given:
            given.write("\n".join(lines) + "\n")
            given.seek(0)
            done = subprocess.run([self.ring.build / "bin" / "engine-probe"], stdin=given, text=True,
                                  capture_output=True, check=True)
        named = {}
        for line in done.stdout.splitlines():
            choice = json.loads(line)
            named[choice["uid"]] = (choice["node"], {part: sorted(cards) for part, cards in choice["cards"].items()})
        return named


if __name__ == "__main__":
    main()
