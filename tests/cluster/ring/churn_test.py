"""churn.py records what goes wrong with its pods. The API server is a dictionary here. Needs no ring."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring.churn import Churn  # noqa: E402
from ring.kube import ApiError  # noqa: E402


class Server:
    def __init__(self):
        self.pods, self.log = {}, '{"cuda": null}\n'

    def put(self, name, phase="Running", codes=(), **meta):
        self.pods[name] = {"metadata": {"name": name, "uid": name, **meta}, "spec": {"containers": [{"name": "main"}]},
                           "status": {"phase": phase, "containerStatuses": [
                               {"state": {"running": {}} if code is None else {"terminated": {"exitCode": code}}}
                               for code in codes]}}

    def create(self, pod):
        self.put(pod["metadata"]["name"])

    def get(self, _, name):
        return self.pods.get(name)

    def list(self, _, **__):
        return list(self.pods.values())

    def delete(self, _, name, grace):
        del self.pods[name]

    def logs(self, *_):
        if self.log is None:
            raise ApiError("GET", "/log", 502, b"no kubelet")
        return self.log


class Records(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.churn = Churn(self.server, "c", 1)
        self.churn._create()
        self.name = "c-0"

    def ended(self):
        return [pod["metadata"]["name"] for pod, _, _ in self.churn.ended]

    def test_a_failed_pod_and_a_pod_with_a_failed_container_are_recorded_as_ended(self):
        for phase, codes in (("Failed", ()), ("Running", (None, 128)), ("Pending", (128,))):
            self.setUp()
            self.server.put(self.name, phase, codes)
            self.churn._collect()
            self.assertEqual((self.ended(), self.server.pods), ([self.name], {}), (phase, codes))

    def test_a_pod_that_failed_just_before_its_deletion_is_recorded(self):
        self.server.put(self.name, "Failed")
        self.churn.delete(self.name)
        self.assertEqual(self.ended(), [self.name])

    def test_a_pod_that_failed_after_the_generator_stopped_is_recorded_once(self):
        self.server.put(self.name, "Failed")
        self.churn.collect_the_rest()
        self.churn.collect_the_rest()
        self.assertEqual((self.ended(), list(self.server.pods)), ([self.name], [self.name]))

    def test_a_living_pod_and_a_pod_in_deletion_have_not_ended_badly(self):
        self.server.put(self.name, "Running", (None, 0))
        self.churn._collect()
        self.server.put(self.name, "Failed", (137,), deletionTimestamp="2026-01-01T00:00:00Z")
        self.churn._collect()
        self.assertEqual(self.ended(), [])

    def test_an_unstarted_pod_a_vanished_pod_and_a_lost_log_are_recorded(self):
        self.server.put(self.name, "Pending")
        self.churn.delete(self.name)
        self.assertEqual([pod["metadata"]["name"] for pod, _ in self.churn.unstarted], [self.name])
        self.churn.delete(self.name)
        self.assertEqual(self.churn.vanished, [])       # the pod is gone because of the delete request
        for log, status in (("", 200), ('{"cuda"', 200), (None, 502)):
            self.setUp()
            self.server.log = log
            self.server.put(self.name, "Succeeded")
            self.churn._collect()
            self.assertEqual([lost.status for _, _, lost in self.churn.lost_logs], [status])
        self.setUp()
        self.server.pods.clear()
        self.churn.delete(self.name)
        self.assertEqual([name for name, _ in self.churn.vanished], [self.name])


if __name__ == "__main__":
    unittest.main()
