"""Which fault explains which failure. A table of rows, and a judge over it: a failure that no fault explains which was
in effect just then is the product's (or this table lacks a row, with its reason).

Input and output are plain data; times are seconds since the epoch.
"""
import collections
import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

REFUSED = "refused at admission"
UNKNOWN = "end unknown to the runtime"
BROKEN_OFF = "start broken off"
NEVER_RAN = "never ran"
NOT_READY = "told that nothing is ready"
NO_LOG = "log not to be had"
LOST_LOG = "log empty or cut off"
NO_ANSWER = "request without an answer"
NO_WEBHOOK = "admission without an answer"
VANISHED = "gone, and nobody asked for it"           # no row: nothing explains that

START_WITHIN = 20       # seconds after its binding in which a pod starts, however much else does


@dataclass
class Window:
    """One fault: from the signal until the part was seen to serve again (None: not yet)."""
    what: str           # "kill" or "stop"
    part: str
    node: str
    begun: float
    ended: float | None = None

    def __str__(self):
        return f"{self.what} {self.part}" + ("" if self.part in EVERYWHERE else f" of {self.node}")


class Failure(NamedTuple):
    """Something that went wrong, at some time between since and until."""
    kind: str           # one of those above; another word: nothing explains it
    who: str            # a pod, a container, a request
    node: str           # "": none
    since: float
    until: float
    text: str
    uid: str = ""       # the pod's


class Excuse(NamedTuple):
    kind: str
    what: str           # "kill" or "stop"
    part: str
    grace: float        # seconds after the part serves again in which this may still come of it
    why: str


EVERYWHERE = {"leader", "apiserver"}        # parts that all nodes share; the others explain what happens on their node


def _both(kind, part, grace, why):
    return Excuse(kind, "kill", part, grace, why), Excuse(kind, "stop", part, grace, why)


TABLE = (
    # A killed agent is no excuse: its keeper holds the door. Nor is a part that stands still: whoever asks it waits.
    Excuse(REFUSED, "kill", "keeper", 5,
           "nobody serves the slots until the container runs again and has registered, and the kubelet asks once"),
    Excuse(REFUSED, "kill", "kubelet", 5,
           "a new kubelet admits its pods a second after its start, whoever has registered"),
    Excuse(UNKNOWN, "kill", "containerd", 10,
           "a new one finds a container without its state: exit code 255. The kubelet looks at each pod every 10 s"),
    # Seen after a kubelet's death only. A containerd that stands still meanwhile notices later: the kubelet does not count
    # as back before it goes on (ring/faults.py).
    Excuse(BROKEN_OFF, "kill", "kubelet", 5, "its calls end with it, the one that starts a container, too"),
    # Its library waits 5 s for the arbiter: who is told began before the arbiter was back.
    *_both(NOT_READY, "arbiter", 1, "nobody answers the container's library; times of containers are whole seconds"),
    *_both(NEVER_RAN, "kubelet", 10, "nobody starts containers; it looks at each pod every 10 s"),
    *_both(NEVER_RAN, "containerd", 10, "nobody makes containers; the kubelet tries again after 10 s"),
    *_both(NEVER_RAN, "apiserver", 10, "the kubelet does not hear of pods, the agent not of records"),
    *_both(NEVER_RAN, "agent", 10, "a start waits for the agent's word, and is tried again after 10 s"),
    *_both(NEVER_RAN, "keeper", 10, "a start waits for the agent's word, and is tried again after 10 s"),
    *_both(NEVER_RAN, "arbiter", 10, "an agent prepares no slice without its arbiter; tried again after 10 s"),
    *_both(NO_LOG, "apiserver", 2, "logs come through it"),
    *_both(NO_LOG, "kubelet", 2, "logs come from it"),
    *_both(NO_LOG, "containerd", 2, "the kubelet asks it where the log is"),
    *_both(LOST_LOG, "containerd", 2, "what a container prints goes through it into the log"),
    *_both(NO_ANSWER, "apiserver", 2, "nobody answers; connections of before break at the first word"),
    *_both(NO_WEBHOOK, "leader", 10,
           "it answers admission, too, and is asked until it is known not to be ready: probes of 2 s, a webhook's 5 s, "
           "connections of before"),
    *_both(NO_WEBHOOK, "apiserver", 5,
           "what it had asked before it stood still is too late (a webhook has 5 s); a new one has no Services yet"),
)

# How the kubelet tells of a pod's end: its word, what its text says (exit code first, of a container), our word.
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
    """Of a request that failed. status: of HTTP; None: there was no answer."""
    if "failed calling webhook" in text:
        return NO_WEBHOOK
    # 401, 403: a new server has not read yet who may do what.
    return NO_ANSWER if status in (None, 401, 403, 429, 500, 503, 504) else f"answer {status}"


def moment(text):
    """2026-01-31T23:59:59Z; None for a moment that nobody has set."""
    at = datetime.fromisoformat(text).timestamp() if text else 0
    return at if at > 0 else None


def _ended_at(pod, events):
    """When the kubelet refused it, or its container ended; None where nobody says so."""
    reason = pod["status"].get("reason")
    told = [event.get("firstTimestamp") or event.get("eventTime") for event in events if event["reason"] == reason]
    states = [one["state"].get("terminated", {}) for one in pod["status"].get("containerStatuses", [])]
    if reason:
        return moment(min(filter(None, told), default=None))
    finished = [one["finishedAt"] for one in states if one.get("exitCode") and one.get("finishedAt")]
    return moment(min(finished, default=None))


def of_end(pod, reason, text, seen, events):
    """The failure of a pod that has failed. seen: when that was seen; events: those about it."""
    at = _ended_at(pod, events)
    begun = moment(pod["status"].get("startTime")) or moment(pod["metadata"]["creationTimestamp"])
    since, until = (begun, seen) if at is None else (at, at + 1)        # they are told in whole seconds
    return Failure(kind_of_end(reason, text), pod["metadata"]["name"], pod["spec"].get("nodeName", ""), since, until,
                   f"{reason}: {text}", pod["metadata"]["uid"])


def of_unstarted(pod, seen):
    """The failure of a pod that no container of has run though it has had its node for long; None: it is none."""
    bound = next((moment(c.get("lastTransitionTime")) for c in pod["status"].get("conditions", [])
                  if c["type"] == "PodScheduled" and c["status"] == "True"), None)
    ran = any(set(one.get(when, {})) & {"running", "terminated"} for one in pod["status"].get("containerStatuses", [])
              for when in ("state", "lastState"))
    if bound is None or ran or pod["status"].get("phase") != "Pending" or seen < bound + START_WITHIN:
        return None
    return Failure(NEVER_RAN, pod["metadata"]["name"], pod["spec"]["nodeName"], bound, seen,
                   f"bound for {seen - bound:.0f} s", pod["metadata"]["uid"])


def explains(row, window, failure):
    """Whether this fault was in effect, by this row, at some time of the failure."""
    ended = float("inf") if window.ended is None else window.ended + row.grace
    return (row.kind == failure.kind and (row.what, row.part) == (window.what, window.part) and
            (window.part in EVERYWHERE or window.node == failure.node) and
            window.begun <= failure.until and failure.since <= ended)


def judge(failures, windows, table=TABLE):
    """({(kind, fault) -> how many failures it explains}, the failures that nothing explains). Where more than one fault
    does, the one that began last is counted."""
    counts, unexplained = collections.Counter(), []
    for failure in failures:
        found = [window for window in windows if any(explains(row, window, failure) for row in table)]
        if found:
            counts[failure.kind, str(max(found, key=lambda window: window.begun))] += 1
        else:
            unexplained.append(failure)
    return counts, unexplained


def around(failure, windows, seconds=60):
    """The faults around a failure, as text, by its clock: what a person looks at who asks what it came of."""
    def by_clock(at):
        return "not yet" if at is None else f"{at - failure.since:+.1f}"
    return [f"{by_clock(window.begun)} to {by_clock(window.ended)} s: {window}"
            for window in sorted(windows, key=lambda one: one.begun)
            if window.begun <= failure.until + seconds and failure.since - seconds <= (window.ended or failure.since)]
