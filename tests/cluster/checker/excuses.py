"""Which fault explains which failure: a table of rows and a function that applies it. A failure that no fault in effect
at that time explains is a defect of the product (or this table lacks a row, with its reason).

Input and output are plain data; times are seconds since the epoch.
"""
import collections
import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

REFUSED = "refused at admission"
UNKNOWN = "end unknown to the runtime"
BROKEN_OFF = "start cancelled"
NEVER_RAN = "never ran"
NOT_READY = "CUDA system not ready"
NO_LOG = "log unavailable"
LOST_LOG = "log empty or truncated"
NO_ANSWER = "request without an answer"
NO_WEBHOOK = "admission without an answer"
VANISHED = "deleted without a request"               # no row: no fault explains that

START_WITHIN = 20       # seconds after its binding within which a pod must start, regardless of the load


@dataclass
class Window:
    """One fault: from the signal until the part served again (None: not yet)."""
    what: str           # "kill" or "stop"
    part: str
    node: str
    begun: float
    ended: float | None = None

    def __str__(self):
        return f"{self.what} {self.part}" + ("" if self.part in EVERYWHERE else f" of {self.node}")


class Failure(NamedTuple):
    """Something that went wrong, at some time between since and until."""
    kind: str           # one of those above; no fault explains any other kind
    subject: str        # a pod, a container, a request
    node: str           # "": none
    since: float
    until: float
    text: str
    uid: str = ""       # the pod's


class Excuse(NamedTuple):
    kind: str
    what: str           # "kill" or "stop"
    part: str
    grace: float        # seconds after the part serves again in which the fault may still cause this
    why: str


# parts that all nodes share; faults of other parts explain failures on their node
EVERYWHERE = {"leader", "apiserver"}


def _both(kind, part, grace, why):
    return Excuse(kind, "kill", part, grace, why), Excuse(kind, "stop", part, grace, why)


TABLE = (
    # A killed agent is no excuse: its keeper holds the connections. A stopped part is none, either: its callers wait.
    Excuse(REFUSED, "kill", "keeper", 5,
           "no process serves the slots until the container runs again and has registered, and the kubelet asks once"),
    Excuse(REFUSED, "kill", "kubelet", 5,
           "a new kubelet admits its pods a second after its start, regardless of which plugins have registered"),
    Excuse(UNKNOWN, "kill", "containerd", 10,
           "a new containerd finds a container without its state: code 255; the kubelet checks each pod every 10 s"),
    # Seen only after the end of a kubelet. A containerd that is stopped at that time notices it later; therefore the
    # kubelet does not count as serving before containerd continues (ring/faults.py).
    Excuse(BROKEN_OFF, "kill", "kubelet", 5, "its calls end with it, including the call that starts a container"),
    # libcarve waits 5 s for the arbiter: a process that gets this error began before the arbiter served again.
    *_both(NOT_READY, "arbiter", 1, "no answer for the container's library; times of containers are whole seconds"),
    *_both(NEVER_RAN, "kubelet", 10, "containers are not started; the kubelet checks each pod every 10 s"),
    *_both(NEVER_RAN, "containerd", 10, "containers are not created; the kubelet retries after 10 s"),
    *_both(NEVER_RAN, "apiserver", 10, "the kubelet receives no pods, the agent no records"),
    *_both(NEVER_RAN, "agent", 10, "a start waits for the agent's answer and is retried after 10 s"),
    *_both(NEVER_RAN, "keeper", 10, "a start waits for the agent's answer and is retried after 10 s"),
    *_both(NEVER_RAN, "arbiter", 10, "an agent prepares no slice without its arbiter; retried after 10 s"),
    *_both(NO_LOG, "apiserver", 2, "logs are read through it"),
    *_both(NO_LOG, "kubelet", 2, "logs are read from it"),
    *_both(NO_LOG, "containerd", 2, "the kubelet asks it for the log's path"),
    *_both(LOST_LOG, "containerd", 2, "it copies a container's output into the log"),
    *_both(NO_ANSWER, "apiserver", 2, "no answer; earlier connections break at the next request"),
    *_both(NO_WEBHOOK, "leader", 10,
           "it also answers admission, and is called until it is known not to be ready: probes of 2 s, a webhook's "
           "timeout of 5 s, existing connections"),
    *_both(NO_WEBHOOK, "apiserver", 5,
           "its calls from before a stop time out (a webhook has 5 s); a new API server knows no Services yet"),
)

# How the kubelet reports a pod's end: its reason, a pattern for its text (of a container: exit code first), the kind
# here.
ENDS = (
    ("UnexpectedAdmissionError", "no healthy devices present|number of devices unavailable|unregistered device|"
                                 "code = (Unavailable|Canceled)|EOF", REFUSED),
    ("Unknown", "^255 ", UNKNOWN),
    ("StartError", "^128 .*context canceled", BROKEN_OFF),
)


def kind_of_end(reason, text):
    for word, pattern, kind in ENDS:
        if reason == word and re.search(pattern, text, re.DOTALL):
            return kind
    return reason


def kind_of_answer(status, text):
    """The kind of a failed request. status: the HTTP status; None: there was no answer."""
    if "failed calling webhook" in text:
        return NO_WEBHOOK
    # 401, 403: a new API server has not read the RBAC objects yet.
    return NO_ANSWER if status in (None, 401, 403, 429, 500, 503, 504) else f"answer {status}"


def moment(text):
    """2026-01-31T23:59:59Z as seconds; None for a time that is not set."""
    at = datetime.fromisoformat(text).timestamp() if text else 0
    return at if at > 0 else None


def _ended_at(pod, events):
    """When the kubelet refused the pod, or its container ended; None when that is not reported."""
    reason = pod["status"].get("reason")
    reported = [event.get("firstTimestamp") or event.get("eventTime") for event in events if event["reason"] == reason]
    states = [one["state"].get("terminated", {}) for one in pod["status"].get("containerStatuses", [])]
    if reason:
        return moment(min(filter(None, reported), default=None))
    finished = [one["finishedAt"] for one in states if one.get("exitCode") and one.get("finishedAt")]
    return moment(min(finished, default=None))


def of_end(pod, reason, text, seen, events):
    """The Failure of a pod that has failed. seen: when that was noticed; events: those about the pod."""
    at = _ended_at(pod, events)
    begun = moment(pod["status"].get("startTime")) or moment(pod["metadata"]["creationTimestamp"])
    since, until = (begun, seen) if at is None else (at, at + 1)        # reported in whole seconds
    return Failure(kind_of_end(reason, text), pod["metadata"]["name"], pod["spec"].get("nodeName", ""), since, until,
                   f"{reason}: {text}", pod["metadata"]["uid"])


def of_unstarted(pod, seen):
    """The Failure of a pod that was bound long ago and of which no container has run; None when it is no failure."""
    bound = next((moment(c.get("lastTransitionTime")) for c in pod["status"].get("conditions", [])
                  if c["type"] == "PodScheduled" and c["status"] == "True"), None)
    ran = any(set(one.get(when, {})) & {"running", "terminated"} for one in pod["status"].get("containerStatuses", [])
              for when in ("state", "lastState"))
    if bound is None or ran or pod["status"].get("phase") != "Pending" or seen < bound + START_WITHIN:
        return None
    return Failure(NEVER_RAN, pod["metadata"]["name"], pod["spec"]["nodeName"], bound, seen,
                   f"bound for {seen - bound:.0f} s", pod["metadata"]["uid"])


def explains(row, window, failure):
    """True when this fault was in effect, by this row, at some time of the failure."""
    ended = float("inf") if window.ended is None else window.ended + row.grace
    return (row.kind == failure.kind and (row.what, row.part) == (window.what, window.part) and
            (window.part in EVERYWHERE or window.node == failure.node) and
            window.begun <= failure.until and failure.since <= ended)


def judge(failures, windows, table=TABLE):
    """Returns ({(kind, fault) -> the number of failures it explains}, the unexplained failures). When more than one
    fault explains a failure, the one that began last is counted."""
    counts, unexplained = collections.Counter(), []
    for failure in failures:
        found = [window for window in windows if any(explains(row, window, failure) for row in table)]
        if found:
            counts[failure.kind, str(max(found, key=lambda window: window.begun))] += 1
        else:
            unexplained.append(failure)
    return counts, unexplained


def around(failure, windows, seconds=60):
    """The faults around a failure, as text, with times relative to it, for a person who looks for the cause."""
    def by_clock(at):
        return "not yet" if at is None else f"{at - failure.since:+.1f}"
    return [f"{by_clock(window.begun)} to {by_clock(window.ended)} s: {window}"
            for window in sorted(windows, key=lambda one: one.begun)
            if window.begun <= failure.until + seconds and failure.since - seconds <= (window.ended or failure.since)]
