"""excuses.py excuses only what a fault in effect explains: each row is tested inside and outside its window."""
import unittest

import excuses
from excuses import Excuse, Failure, Window

BEGUN, ENDED = 1000.0, 1020.0
PARTS = ("leader", "agent", "keeper", "arbiter", "kubelet", "containerd", "apiserver")
KINDS = (excuses.REFUSED, excuses.UNKNOWN, excuses.BROKEN_OFF, excuses.NEVER_RAN, excuses.NOT_READY, excuses.NO_LOG,
         excuses.LOST_LOG, excuses.NO_ANSWER, excuses.NO_WEBHOOK)


def failure(kind, since, until=None, node="n1"):
    return Failure(kind, "p", node, since, since if until is None else until, "")


def excused(failure, *windows):
    return not excuses.judge([failure], windows)[1]


def pod(status, node="n1"):
    return {"metadata": {"name": "p", "uid": "u", "creationTimestamp": "1970-01-01T00:15:00Z"},
            "spec": {"nodeName": node, "containers": [{"name": "main"}]}, "status": status}


class Rows(unittest.TestCase):
    def test_each_row_excuses_inside_its_window_and_grace(self):
        for row in excuses.TABLE:
            window = Window(row.what, row.part, "n1", BEGUN, ENDED)
            for at in (BEGUN, BEGUN + 10, ENDED, ENDED + row.grace):
                self.assertTrue(excused(failure(row.kind, at), window), (row, at))

    def test_no_row_excuses_before_its_fault_or_after_the_grace(self):
        for row in excuses.TABLE:
            window = Window(row.what, row.part, "n1", BEGUN, ENDED)
            for at in (BEGUN - 1, ENDED + row.grace + 1):
                self.assertFalse(excused(failure(row.kind, at), window), (row, at))

    def test_a_fault_on_one_node_excuses_nothing_on_another(self):
        for row in excuses.TABLE:
            window = Window(row.what, row.part, "n2", BEGUN, ENDED)
            self.assertEqual(excused(failure(row.kind, BEGUN + 1), window), row.part in ("leader", "apiserver"), row)

    def test_a_fault_excuses_only_the_kinds_that_have_a_row(self):
        rows = {(row.kind, row.what, row.part) for row in excuses.TABLE}
        for what in ("kill", "stop"):
            for part in PARTS:
                for kind in (*KINDS, excuses.VANISHED, "OOMKilled"):
                    self.assertEqual(excused(failure(kind, BEGUN + 1), Window(what, part, "n1", BEGUN, ENDED)),
                                     (kind, what, part) in rows, (kind, what, part))

    def test_without_faults_nothing_is_excused_and_some_kinds_never_are(self):
        every = [Window(what, part, "n1", BEGUN, ENDED) for what in ("kill", "stop") for part in PARTS]
        for kind in KINDS:
            self.assertFalse(excused(failure(kind, BEGUN + 1)), kind)
            self.assertTrue(excused(failure(kind, BEGUN + 1), *every), kind)
        for kind in (excuses.VANISHED, "OOMKilled", "answer 404", "StartError"):
            self.assertFalse(excused(failure(kind, BEGUN + 1), *every), kind)

    def test_the_table_names_known_parts_faults_and_kinds(self):
        for row in excuses.TABLE:
            self.assertIn(row.part, PARTS)
            self.assertIn(row.what, ("kill", "stop"))
            self.assertIn(row.kind, KINDS)
            self.assertTrue(row.why)

    def test_a_part_that_does_not_serve_yet_still_explains(self):
        self.assertTrue(excused(failure(excuses.REFUSED, BEGUN + 999), Window("kill", "keeper", "n1", BEGUN)))
        self.assertFalse(excused(failure(excuses.REFUSED, BEGUN - 1), Window("kill", "keeper", "n1", BEGUN)))

    def test_a_lasting_failure_is_explained_by_a_fault_during_it(self):
        window = Window("stop", "arbiter", "n1", BEGUN, ENDED)
        self.assertTrue(excused(failure(excuses.NOT_READY, BEGUN - 5, BEGUN + 1), window))
        self.assertTrue(excused(failure(excuses.NOT_READY, BEGUN - 5, ENDED + 90), window))

    def test_explaining_faults_are_counted_and_unexplained_failures_are_returned(self):
        windows = [Window("kill", "keeper", "n1", BEGUN, ENDED), Window("kill", "kubelet", "n1", BEGUN + 5, ENDED)]
        early, late = failure(excuses.REFUSED, BEGUN + 1), failure(excuses.REFUSED, BEGUN + 6)
        other = failure(excuses.REFUSED, BEGUN + 6, node="n2")
        counts, unexplained = excuses.judge([early, late, late, other], windows)
        self.assertEqual(counts, {(excuses.REFUSED, "kill keeper of n1"): 1,
                                  (excuses.REFUSED, "kill kubelet of n1"): 2})
        self.assertEqual(unexplained, [other])
        table = (Excuse(excuses.REFUSED, "stop", "keeper", 5, "none"),)
        self.assertEqual(excuses.judge([early], windows, table)[1], [early])

    def test_around_prints_faults_by_the_time_of_the_failure(self):
        windows = [Window("kill", "leader", "n1", BEGUN, ENDED), Window("stop", "agent", "n2", BEGUN + 5),
                   Window("kill", "kubelet", "n1", BEGUN - 500, BEGUN - 490)]
        self.assertEqual(excuses.around(failure("", BEGUN + 10), windows),
                         ["-10.0 to +10.0 s: kill leader", "-5.0 to not yet s: stop agent of n2"])


class Kinds(unittest.TestCase):
    def test_kinds_of_ends(self):
        unhealthy = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices a/slot"
        for reason, text, kind in (
                ("UnexpectedAdmissionError", unhealthy, excuses.REFUSED),
                ("UnexpectedAdmissionError", "Allocate failed due to rpc error: code = InvalidArgument desc = no",
                 "UnexpectedAdmissionError"),
                ("Unknown", "255 ", excuses.UNKNOWN), ("Unknown", "1 ", "Unknown"),
                ("StartError", "128 failed to create shim task: context canceled", excuses.BROKEN_OFF),
                ("StartError", "128 failed to mount /dev/nvidia0: no such file", "StartError"),
                ("Error", "139 ", "Error")):
            self.assertEqual(excuses.kind_of_end(reason, text), kind)

    def test_kinds_of_answers(self):
        for status, text, kind in ((None, "ConnectionResetError", excuses.NO_ANSWER), (503, "", excuses.NO_ANSWER),
                                   (500, 'failed calling webhook "pods"', excuses.NO_WEBHOOK), (404, "", "answer 404"),
                                   (422, "spec is wrong", "answer 422")):
            self.assertEqual(excuses.kind_of_answer(status, text), kind)


class Times(unittest.TestCase):
    """A failure counts at the time at which it happened, not at any time of the pod's life."""
    BEGUN = "1970-01-01T00:16:00Z"      # 960

    def test_a_refused_pod_failed_at_the_time_of_its_event(self):
        refused = pod({"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": self.BEGUN})
        events = [{"reason": "Scheduled", "firstTimestamp": self.BEGUN},
                  {"reason": "UnexpectedAdmissionError", "firstTimestamp": "1970-01-01T00:16:40Z"}]
        one = excuses.of_end(refused, "UnexpectedAdmissionError", "no healthy devices present", 1005, events)
        self.assertEqual((one.kind, one.node, one.since, one.until, one.uid), (excuses.REFUSED, "n1", 1000, 1001, "u"))
        # The keeper was killed when the pod started, and served again long before the kubelet refused the pod.
        self.assertFalse(excused(one, Window("kill", "keeper", "n1", 961, 965)))

    def test_a_refused_pod_without_an_event_failed_between_its_start_and_the_check(self):
        refused = pod({"phase": "Failed", "reason": "UnexpectedAdmissionError", "startTime": self.BEGUN})
        one = excuses.of_end(refused, "UnexpectedAdmissionError", "", 1005, [])
        self.assertEqual((one.since, one.until), (960, 1005))

    def test_a_container_failed_when_it_finished_if_that_time_is_known(self):
        for finished, since, until in (("1970-01-01T00:16:30Z", 990, 991), (None, 960, 1005),
                                       ("1970-01-01T00:00:00Z", 960, 1005)):
            ended = pod({"phase": "Failed", "startTime": self.BEGUN, "containerStatuses": [
                {"name": "other", "state": {"terminated": {"exitCode": 0, "finishedAt": "1970-01-01T00:16:10Z"}}},
                {"name": "main", "state": {"terminated": {"exitCode": 255, "finishedAt": finished}}}]})
            one = excuses.of_end(ended, "Unknown", "255 ", 1005, [])
            self.assertEqual((one.kind, one.since, one.until), (excuses.UNKNOWN, since, until))

    def test_a_bound_pod_that_never_ran_fails_after_start_within(self):
        bound = {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.BEGUN}]}
        one = excuses.of_unstarted(pod(bound), 960 + excuses.START_WITHIN)
        self.assertEqual((one.kind, one.since, one.until), (excuses.NEVER_RAN, 960, 960 + excuses.START_WITHIN))
        self.assertIsNone(excuses.of_unstarted(pod(bound), 960 + excuses.START_WITHIN - 1))
        ran = {**bound, "containerStatuses": [{"name": "main", "state": {"running": {}}},
                                              {"name": "other", "state": {"waiting": {}}}]}
        self.assertIsNone(excuses.of_unstarted(pod(ran), 2000))
        waits = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
        self.assertIsNone(excuses.of_unstarted(pod(waits, node=""), 2000))


if __name__ == "__main__":
    unittest.main()
