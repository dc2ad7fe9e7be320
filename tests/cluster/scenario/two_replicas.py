"""kube-scheduler's connection ends at the replica of control that does not lead: its answers are the leader's.

Two replicas as processes, two nodes with one card each, which exist only as objects. The test sends kube-scheduler's
calls itself, with its certificate. Only the leader knows which pods it sent to a node.
"""
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import burst, placing  # noqa: E402
from ring.cluster import timer  # noqa: E402
from ring.disaster import stop_threads  # noqa: E402
from ring.kube import wait_for  # noqa: E402
from ring.testing import RingTest, main  # noqa: E402

NODES = ["sim-0000", "sim-0001"]
GIVES_UP_S = 2              # after that a follower answers itself
SCHEDULER_WAITS_S = 5       # httpTimeout of the scheduler's configuration
ASSUMED_S = 5               # for which a pod that is never bound counts (core/cluster/assumed_pods.h)


class TwoReplicas(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ring.control.enter()
        cls.placing = placing.Placing(cls.ring, timer("two replicas"))
        cls.kube = cls.placing.kube
        cls.addClassCleanup(cls.placing.uninstall)
        cls.placing.install()
        cls.placing.make_nodes(len(NODES), 1)
        cls.placing.start_control(follower=True)
        cls.replicas = {name: placing.ControlConnection(cls.placing.ports[port], cls.placing.scheduler_certificates())
                        for name, port in (("leader", "tls"), ("follower", "follower"))}

    def setUp(self):
        super().setUp()
        self.wait_for_assumptions()

    @staticmethod
    def wait_for_assumptions():
        """Until no replica assumes the pods of earlier calls any more: nothing shows that."""
        end = time.monotonic() + ASSUMED_S + 1
        wait_for("earlier assumptions have ended", ASSUMED_S + 5, lambda: time.monotonic() > end)

    def choose(self, replica, nodes=NODES):
        """The node that this replica names for a new pod with a whole card; None: none fits."""
        made = burst.pod(f"pod-{uuid.uuid4().hex[:8]}", burst.ASKS["carve"])
        made["metadata"]["uid"] = str(uuid.uuid4())
        connection = self.replicas[replica]
        connection.request("POST", "/scheduler/choose", json.dumps({"Pod": made, "NodeNames": nodes}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        self.assertEqual((answer.status, found["Error"]), (200, ""), found)
        return (found["NodeNames"] or [None])[0]

    def test_a_follower_knows_the_pods_that_the_leader_sent_to_a_node(self):
        self.assertEqual(self.choose("leader", NODES[:1]), NODES[0])
        self.assertEqual(self.choose("follower"), NODES[1])
        # Assumptions change only the ranking of nodes: with both cards assumed, a further pod is still sent.
        self.assertIn(self.choose("follower"), NODES)

    def test_a_follower_answers_itself_while_the_leader_hangs(self):
        leader = self.ring.state.pid(placing.CONTROL)
        self.choose("follower")
        stop_threads(leader)
        self.addCleanup(os.kill, leader, signal.SIGCONT)
        began = time.monotonic()
        self.assertIn(self.choose("follower"), NODES)
        self.assertLess(time.monotonic() - began, SCHEDULER_WAITS_S)
        began = time.monotonic()
        self.assertIn(self.choose("follower"), NODES)
        # A call of the leader would take GIVES_UP_S.
        self.assertLess(time.monotonic() - began, GIVES_UP_S, "a leader that did not answer is not called again at once")
        wait_for("the follower leads", 60, lambda: "carve_control_leader 1" in
                 self.placing.metrics("follower-plain").splitlines(), every=0.5)
        os.kill(leader, signal.SIGCONT)
        wait_for("the former leader follows", 30, lambda: "carve_control_leader 0" in
                 self.placing.metrics().splitlines(), every=0.5)
        self.wait_for_assumptions()
        # The kept connection to the former leader goes on, and its answers are the new leader's.
        self.assertEqual(self.choose("follower", NODES[:1]), NODES[0])
        self.assertEqual(self.choose("leader"), NODES[1])


if __name__ == "__main__":
    main()
