"""What scenarios of the device plugin share: pods with slots, their records, and what a container must have got."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "checker"))
import check  # noqa: E402

from . import binder, images  # noqa: E402
from .testing import CarveTest, pod, wait_for  # noqa: E402

GIB = 1 << 30
HOLD = ["ring-look", "hold", "3600"]


def container(name, command=HOLD, cards=1, **more):
    return binder.with_slots({"name": name, "image": images.PROGRAMS, "imagePullPolicy": "Never",
                              "command": list(command), **more}, cards)


def slot_pod(name, containers=None, init=(), **spec):
    spec.setdefault("schedulerName", binder.SCHEDULER)
    made = pod(name, **spec)
    made["spec"]["containers"] = containers or [container("main")]
    if init:
        made["spec"]["initContainers"] = list(init)
    return made


class SlotTest(CarveTest):
    """A node with an agent that serves the device plugin; the binder is the test's own (binder.py)."""
    plugins = "slots"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cards = [card["uuid"] for card in cls.carve.truth("cards")["cards"]]
        cls.node = cls.ring.node(1)
        cls.wait_slots()

    @classmethod
    def wait_slots(cls):
        wait_for("slots on the node", 30, lambda: int(
            cls.kube.get("Node", "n1")["status"]["allocatable"].get(binder.SLOT, 0)) > 0)

    def start(self, object_, parts, init=(), epoch=1):
        """Creates the pod and binds it with a record. parts: container -> [(card index, GiB, cores)]."""
        made = self.create(object_)
        binder.bind(self.kube, made, "n1", self.record(made, parts, init, epoch))
        return made

    def record(self, made, parts, init=(), epoch=1, uid=None):
        return binder.record(uid or made["metadata"]["uid"], {
            part: [(self.cards[index], int(size * GIB), cores) for index, size, cores in cards]
            for part, cards in parts.items()}, init, epoch)

    def wrong(self, name, containers=("main",)):
        """What the independent checker finds wrong with a running pod: what its containers see, against its record."""
        seen = {("default", name, c): self.look(name, c) for c in containers}
        current = self.kube.get("Pod", name)
        current["spec"]["containers"] = [c for c in current["spec"]["containers"] if c["name"] in containers]
        return check.check([current], [], [], seen, by="records")

    def assert_right(self, name, containers=("main",)):
        self.assert_no_findings(self.wrong(name, containers))

    def warnings(self, made):
        return [message for kind, _, message in self.kube.events_of(made) if kind == "Warning"]

    def unresolved_names(self):
        """How many times the runtime has found no device for a CDI name, from its log."""
        log = self.node.state.log("n1-containerd").read_text(errors="replace")
        return sum("unresolvable CDI devices" in line for line in log.splitlines())

    def assert_nothing_held(self, seconds=30):
        wait_for("the agent has no slices", seconds, lambda: not self.carve.inspect()["slices"])
        self.assertEqual(self.carve.living(), [])


def timed(condition, seconds=60, every=0.05):
    """Seconds until the condition holds."""
    begun = time.monotonic()
    wait_for("the condition", seconds, condition, every)
    return time.monotonic() - begun
