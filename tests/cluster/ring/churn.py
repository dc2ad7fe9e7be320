"""Pods that come and go without end, in all dialects, by a seeded generator: what a cluster in use looks like."""
import contextlib
import http.client
import json
import random
import threading
import time

from . import bare_nodes, images
from .kube import ApiError
from .testing import pod

AWAY = (OSError, ApiError, http.client.HTTPException)     # what a client sees while something is being killed
STAYS = "3600"      # seconds
NODES = (None, None, None, "n1", "n2", "bare")            # where a pod wants to be


def limits_of(dice) -> dict:
    """What one container asks for: a dialect, a size."""
    kind = dice.choices(("native", "gpushare", "nvidia"), (5, 4, 1))[0]
    if kind == "native":
        return {"elasticgpu.io/gpu-memory": dice.randrange(1, 12) * 1024, "elasticgpu.io/gpu-core": dice.choice((5, 10, 30))}
    return {"aliyun.com/gpu-mem": dice.randrange(1, 10)} if kind == "gpushare" else {"nvidia.com/gpu": 1}


def make(name, dice):
    """(pod, seconds after which it is to be deleted). The short ones end by themselves before."""
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
    """Whether it lives until it is deleted."""
    return made["spec"]["containers"][0]["command"][-1] == STAYS


class Churn:
    """Makes and deletes pods on a thread of its own until end(). Of each that has ended, what it saw is kept in `ended`."""

    def __init__(self, kube, name, seed, living=16, every=(0.1, 0.7)):
        self.kube, self.name, self.dice = kube, name, random.Random(seed)
        self.living, self.every = living, every
        self.until = {}             # name -> when it is to be deleted
        self.ended = []             # (Pod object as last seen, container -> what it printed)
        self.made = self.refused = self.lost_looks = 0
        self.errors = {}            # how often the API server said what
        self.reasons = {}           # reason -> what was said of each pod that failed by it
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        self._thread.start()
        return self

    def end(self):
        """No more: what lives goes on living. Its names."""
        self._stop.set()
        self._thread.join(120)
        if self._thread.is_alive():
            raise AssertionError("the generator of pods hangs")
        return sorted(self.until)

    def _run(self):
        looked = 0.0
        while not self._stop.wait(self.dice.uniform(*self.every)):
            try:
                if time.monotonic() > looked + 1:
                    self._collect()
                    looked = time.monotonic()
                self._expire()
                if len(self.until) < self.living:
                    self._create()
            except AWAY as error:
                what = str(error).partition(": ")[2][:60] or type(error).__name__
                self.errors[what] = self.errors.get(what, 0) + 1

    def _create(self):
        made, lives = make(f"{self.name}-{self.made}", self.dice)
        self.made += 1
        try:
            self.kube.create(made)
        except ApiError as error:
            if error.status != 409:         # 409: a request that was repeated after its connection broke
                self.refused += 1
                raise
        finally:                            # it may be there although the answer was lost
            self.until[made["metadata"]["name"]] = time.monotonic() + lives

    def _expire(self):
        now = time.monotonic()
        for name in [name for name, until in self.until.items() if until < now]:
            self.delete(name)

    def delete(self, name):
        found = self.kube.get("Pod", name)
        if found is not None:
            bare = bare_nodes.LABEL in found["spec"].get("nodeSelector", {})
            self.kube.delete("Pod", name, grace=0 if bare else 1)
        self.until.pop(name, None)

    def _collect(self):
        """Those that have ended: what they saw, why they failed; then they go."""
        for found in self.kube.list("Pod", labelSelector="ring.test/churn=true"):
            name, phase = found["metadata"]["name"], found["status"].get("phase")
            if phase not in ("Succeeded", "Failed") or name not in self.until:
                continue
            if phase == "Failed":
                reason, text = reason_of(found)
                self.reasons.setdefault(reason, []).append(text)
            self.ended.append((found, self._looks(found) if phase == "Succeeded" else {}))
            self.delete(name)

    def _looks(self, found):
        looks = {}
        for container in found["spec"]["containers"]:
            with contextlib.suppress(*AWAY, ValueError, IndexError):
                text = self.kube.logs(found["metadata"]["name"], container["name"])
                looks[container["name"]] = json.loads(text.strip().splitlines()[-1])
        self.lost_looks += len(found["spec"]["containers"]) - len(looks)
        return looks


def reason_of(found) -> tuple:
    """Why a pod failed: (a word, the text for people)."""
    status = found["status"]
    if status.get("reason"):
        return status["reason"], status.get("message", "")
    for one in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        ended = one["state"].get("terminated", {})
        if ended.get("exitCode"):
            return ended.get("reason", "unknown"), f"{ended['exitCode']} {ended.get('message', '')}"
    return "unknown", json.dumps(status)
