"""Pods that are created and deleted without end, in all dialects, by a seeded generator: a cluster in use."""
import http.client
import json
import random
import threading
import time
from typing import NamedTuple

from . import bare_nodes, images
from .kube import ApiError
from .testing import pod

AWAY = (OSError, ApiError, http.client.HTTPException)     # errors of a client while a server process is being killed
STAYS = "3600"      # seconds
NODES = (None, None, None, "n1", "n2", "bare")            # the node that a pod selects


def limits_of(dice) -> dict:
    """What one container requests: a dialect (those that no setting turns on), a size."""
    gib, cores = dice.randrange(1, 10), dice.choice((5, 10, 30))
    of_tencent = "tke.cloud.tencent.com/qgpu-"
    return dice.choices((
        {"elasticgpu.io/gpu-memory": gib * 1024, "elasticgpu.io/gpu-core": cores},
        {"elasticgpu.com/gpu-memory": gib * 1024, "elasticgpu.com/gpu-core": cores},
        {"aliyun.com/gpu-mem": gib},
        {"aliyun.com/gpu-mem": gib, "aliyun.com/gpu-core.percentage": cores},
        {of_tencent + "memory": gib, of_tencent + "core": cores},
        {"tencent.com/vcuda-memory": 4 * gib, "tencent.com/vcuda-core": cores},
        {"rancher.io/gpu-mem": gib},
        {"volcano.sh/gpu-memory": gib * 1024},
        {"nvidia.com/gpu": 1}), (4, 1, 3, 1, 1, 1, 1, 1, 1))[0]


def make(name, dice):
    """Returns (pod, seconds after which it is deleted). The short pods end by themselves before."""
    short = dice.random() < 0.5
    where = dice.choice(NODES)
    lives = dice.uniform(6, 30)
    made = pod(name, image=images.PROGRAMS, command=["ring-look", "hold", "1" if short and where != "bare" else STAYS])
    made["metadata"]["labels"] = {"ring.test/churn": "true"}
    main = made["spec"]["containers"][0]
    made["spec"]["containers"] = [
        {**main, "name": "main" if i == 0 else f"main-{i}",
         "resources": {"limits": {key: str(value) for key, value in limits_of(dice).items()}}}
        for i in range(dice.choice((1, 1, 1, 2)))]
    made["spec"]["nodeSelector"] = {bare_nodes.LABEL: "true"} if where == "bare" else \
        {"kubernetes.io/os": "linux", **({"kubernetes.io/hostname": where} if where else {})}
    return made, lives


def stays(made) -> bool:
    """True when the pod runs until it is deleted."""
    return made["spec"]["containers"][0]["command"][-1] == STAYS


class Trouble(NamedTuple):
    """A request without a successful answer."""
    since: float                # seconds since the epoch
    until: float
    status: int | None          # of HTTP; None: no answer
    text: str


class Churn:
    """Creates and deletes pods on its own thread until end(). `ended` keeps what each ended pod saw. All failures are
    recorded, and none is judged here."""

    def __init__(self, kube, name, seed, living=16, every=(0.1, 0.7)):
        self.kube, self.name, self.dice = kube, name, random.Random(seed)
        self.living, self.every = living, every
        self.until = {}             # name -> when the pod is to be deleted
        self.ended = []             # (Pod object as last seen, container -> what it printed, when that was read)
        # (Pod object, time) of pods that were deleted before one of their containers had run
        self.unstarted = []
        # (name, when it was missed) of existing pods that disappeared without a delete request
        self.vanished = []
        self.lost_logs = []         # (Pod object, container, Trouble); status 200: the log had no complete line
        self.troubles = []          # Trouble of the other requests
        self.made = self.refused = 0
        self._there = set()         # names of pods that the API server has accepted
        self._deleted = set()       # names of pods for which a delete request was sent
        self._noted = set()         # UIDs of `ended`
        self._looked = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def end(self):
        """Stops creating and deleting; the living pods go on. Returns their names."""
        self._stop.set()
        self._thread.join(120)
        if self._thread.is_alive():
            raise AssertionError("the pod generator hangs")
        return sorted(self.until)

    def _run(self):
        while not self._stop.wait(self.dice.uniform(*self.every)):
            for step in (self._collect_each_second, self._expire, self._create_one):
                begun = time.time()
                try:
                    step()
                except AWAY as error:
                    self.troubles.append(trouble(begun, error))
                    break

    def _collect_each_second(self):
        if time.monotonic() > self._looked + 1:
            self._collect()
            self._looked = time.monotonic()

    def _create_one(self):
        if len(self.until) < self.living:
            self._create()

    def _create(self):
        made, lives = make(f"{self.name}-{self.made}", self.dice)
        self.made += 1
        try:
            self.kube.create(made)
            self._there.add(made["metadata"]["name"])
        except ApiError as error:
            if error.status != 409:         # 409: the request was repeated after its connection broke
                self.refused += 1
                raise
        finally:                            # the pod may exist although the answer was lost
            self.until[made["metadata"]["name"]] = time.monotonic() + lives

    def _expire(self):
        now = time.monotonic()
        for name in [name for name, until in self.until.items() if until < now]:
            self.delete(name)

    def delete(self, name):
        found = self.kube.get("Pod", name)
        if found is not None:
            bare = bare_nodes.LABEL in found["spec"].get("nodeSelector", {})
            self._last_look(found, bare)
            self._deleted.add(name)
            self.kube.delete("Pod", name, grace=0 if bare else 1)
        elif name in self._there - self._deleted:
            self.vanished.append((name, time.time()))
        self.until.pop(name, None)

    def _last_look(self, found, bare):
        """Records a pod that is about to be deleted: it may have ended in the last second, or never have started."""
        if found["metadata"]["name"] not in self.until or "deletionTimestamp" in found["metadata"]:
            return
        self._note_end(found)
        if found["status"].get("phase") == "Pending" and not bare:
            self.unstarted.append((found, time.time()))

    def _collect(self):
        """Records pods that have ended (what they saw, why they failed) and deletes them."""
        for found in self._pods():
            if self._note_end(found):
                self.delete(found["metadata"]["name"])

    def collect_the_rest(self):
        """Records pods that have ended since the generator stopped. They are not deleted."""
        for found in self._pods():
            self._note_end(found)

    def _pods(self):
        return [found for found in self.kube.list("Pod", labelSelector="ring.test/churn=true")
                if found["metadata"]["name"] in self.until]

    def _note_end(self, found) -> bool:
        """True when the pod has ended. A pod that is being deleted may end in any way, in the middle of a line too."""
        succeeded = found["status"].get("phase") == "Succeeded"
        if not succeeded and not ended_badly(found):
            return False
        if found["metadata"]["uid"] in self._noted or "deletionTimestamp" in found["metadata"]:
            return True
        self._noted.add(found["metadata"]["uid"])
        seen = time.time()
        self.ended.append((found, self._looks(found) if succeeded else {}, seen))
        return True

    def _looks(self, found):
        looks = {}
        for container in found["spec"]["containers"]:
            begun, text = time.time(), ""
            try:
                text = self.kube.logs(found["metadata"]["name"], container["name"])
                looks[container["name"]] = json.loads(text.strip().splitlines()[-1])
            except AWAY as error:
                self.lost_logs.append((found, container["name"], trouble(begun, error)))
            except (ValueError, IndexError):
                self.lost_logs.append((found, container["name"], Trouble(begun, time.time(), 200, text)))
        return looks


def trouble(begun, error) -> Trouble:
    return Trouble(begun, time.time(), getattr(error, "status", None), f"{type(error).__name__}: {error}")


def ended_badly(found) -> bool:
    """True when the pod or one of its containers has failed: a pod goes on while another of its containers runs."""
    status = found["status"]
    return status.get("phase") == "Failed" or any(
        one["state"].get("terminated", {}).get("exitCode") for one in status.get("containerStatuses", []))


def reason_of(found) -> tuple:
    """Why a pod failed: (a reason in one word, the text for people)."""
    status = found["status"]
    if status.get("reason"):
        return status["reason"], status.get("message", "")
    for one in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        ended = one["state"].get("terminated", {})
        if ended.get("exitCode"):
            return ended.get("reason", "unknown"), f"{ended['exitCode']} {ended.get('message', '')}"
    return "unknown", json.dumps(status)
