"""The device plugin: two pods on one card get their shares, and the room of a pod is free within 2 s of its end.

dra_fraction.py is the same test for DRA. Both measure real time: nothing else may run concurrently.
"""
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import moments  # noqa: E402
from ring.slot_testing import SlotTest, container, slot_pod  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402

GIVEN = {30: 40, 70: 60}    # cores -> GiB; together all cores of the card, and all memory except 41 GiB


class SlotFraction(SlotTest):
    def spinning(self, cores):
        """Creates a pod that launches without pause, with a record for a share of the first card. Returns its name."""
        made = self.start(slot_pod(self.name(), [container("main", self.SPIN)]), {"main": [(0, GIVEN[cores], cores)]})
        return made["metadata"]["name"]

    def owners_of_pages(self):
        """UIDs of the pods for which the arbiter has grant pages."""
        pages, owners = self.carve.granted()
        return {owners.get(key, ("no owner",))[0] for key in pages}

    def test_two_pods_on_one_card_get_their_shares_and_free_their_room(self):
        wanted = {self.spinning(cores): cores for cores in GIVEN}
        self.assert_shares_kept(wanted)
        pods = [self.kube.get("Pod", name) for name in wanted]
        self.assert_no_findings(check.check_pages(check.granted_by_records(pods), *self.carve.granted()))
        self.assertEqual({process["card"] for process in self.carve.living()}, {0})

        staying, going = pods
        ends = moments.Ends(self.pids_of(going["status"]["containerStatuses"][0]["containerID"].partition("://")[2]))
        self.kube.delete("Pod", going["metadata"]["name"], grace=0)
        wait_for("the agent has one slice less", 30, lambda: len(self.carve.inspect()["slices"]) == 1, every=0.05)
        free = time.time()
        print(f"free {free - ends.last():.2f} s after the last process ", end="", flush=True)
        self.assertLessEqual(free - ends.last(), 2.0)
        self.assertEqual(self.owners_of_pages(), {staying["metadata"]["uid"]})
        # Another pod can use the room, next to the first one, which keeps running.
        next_one = self.start(slot_pod(self.name()), {"main": [(0, GIVEN[70], 70)]})["metadata"]["name"]
        self.wait_ready(next_one)
        self.assert_right(next_one)
        self.assertEqual(self.restarts_of(staying["metadata"]["name"]), 0)
        self.assertEqual(self.phase(staying["metadata"]["name"]), "Running")


if __name__ == "__main__":
    main()
