"""Cards in mode exclusive or shared: what is placed on them, what the Node shows, and how a card changes its mode."""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import control  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402

MODE, MODES, DRAIN = "elasticgpu.io/card-mode", "elasticgpu.io/card-modes", "elasticgpu.io/card-mode-drain"
FRACTION, WHOLE = {"aliyun.com/gpu-mem": 2}, {"nvidia.com/gpu": 1}
ON_N1 = {"kubernetes.io/hostname": "n1"}


def setUpModule():
    control.setUpModule()


class CardModes(control.ControlTest):
    def setUp(self):
        super().setUp()
        for what, key in (("label", MODE), ("annotate", MODES), ("annotate", DRAIN)):
            self.addCleanup(self.ring.kubectl, what, "node", "n1", f"{key}-")

    def state(self, what, key, value):
        self.ring.kubectl(what, "--overwrite", "node", "n1", f"{key}={value}")

    def ask(self, limits):
        return self.create(control.asking(self.name(), limits, nodeSelector=ON_N1))["metadata"]["name"]

    def total(self, name):
        return int(self.kube.get("Node", "n1")["status"]["capacity"].get(name, -1))

    def wait_total(self, name, wanted):
        wait_for(f"n1 shows {wanted} {name}", 30, lambda: self.total(name) == wanted)

    def waits_because(self, name, words):
        wait_for(f"{name} waits: {words}", 30, lambda: any(
            event["reason"] == "FailedScheduling" and words in event["message"] and
            event["involvedObject"]["name"] == name for event in self.kube.list("Event")))

    def test_an_exclusive_card_serves_only_whole_card_requests(self):
        cards, memory = self.total("nvidia.com/gpu"), self.total("aliyun.com/gpu-mem")
        self.state("label", MODE, "exclusive")
        self.wait_total("aliyun.com/gpu-mem", 0)
        fraction, whole = self.ask(FRACTION), self.ask(WHOLE)
        self.wait_ready(whole)
        self.waits_because(fraction, "in mode exclusive, accepts only requests for whole cards")
        self.assertIn("mode exclusive", self.view("inspect", "--cluster"))
        # Without the mode, the waiting pod is retried and placed.
        self.ring.kubectl("label", "node", "n1", f"{MODE}-")
        self.wait_total("aliyun.com/gpu-mem", memory)
        self.wait_ready(fraction, 60)
        self.assertEqual(self.total("nvidia.com/gpu"), cards)

    def test_a_card_changes_its_mode_when_it_is_empty_and_is_drained_when_told_to(self):
        memory = self.total("aliyun.com/gpu-mem")
        running = self.ask(FRACTION)
        self.wait_ready(running)
        card, = {card for card, _, _ in self.cards_of(running)["main"]}
        self.state("annotate", MODES, f"{card}=exclusive")
        wait_for("control knows the mode", 20, lambda: "mode exclusive" in self.view("inspect", "--cluster"))
        second = self.ask(FRACTION)                     # binpack prefers the card in use
        self.wait_ready(second)
        self.assertNotEqual({card}, {card for card, _, _ in self.cards_of(second)["main"]})
        self.assertEqual(self.phase(running), "Running")
        self.assertEqual(self.total("aliyun.com/gpu-mem"), memory)  # the running pod's card still counts
        self.state("annotate", DRAIN, "true")
        wait_for("the pod is evicted", 60, lambda: not self.kube.list("Pod", fieldSelector=f"metadata.name={running}"))
        self.assertTrue(any(event["reason"] == "CardModeDrained" for event in self.kube.list("Event")))
        self.wait_total("aliyun.com/gpu-mem", memory * 3 // 4)
        self.assertEqual(self.phase(second), "Running")

    def test_a_shared_card_serves_no_whole_card_request_and_illegal_words_are_events(self):
        self.state("label", MODE, "shared")
        self.wait_total("nvidia.com/gpu", 0)
        whole = self.ask(WHOLE)
        fraction = self.ask(FRACTION)
        self.wait_ready(fraction)
        self.waits_because(whole, "in mode shared, accepts no request for a whole card")
        self.state("label", MODE, "whole")
        wait_for("an event", 20, lambda: any(event["reason"] == "CardModeRefused" and '"whole" is not a mode' in
                                             event["message"] for event in self.kube.list("Event", namespace="default")))
        self.wait_ready(whole, 60)                      # an illegal value counts as absent


if __name__ == "__main__":
    main()
