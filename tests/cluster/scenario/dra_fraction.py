"""The DRA door: a fraction from a ResourceClaimTemplate, with nothing but the agent on a stock cluster."""
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import images  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
OUT_OF_MEMORY = 2          # CUDA_ERROR_OUT_OF_MEMORY


class DraFraction(CarveTest):
    doors = "dra"

    def judge(self, pods, seen):
        physical = {card["uuid"]: card["total_bytes"] for card in self.carve.truth("cards")["cards"]}
        return check.check(pods, self.kube.list("ResourceClaim", None), self.kube.list("ResourceSlice", None), seen,
                           physical=physical)

    def test_the_cards_are_published_as_they_are(self):
        cards = self.carve.truth("cards")["cards"]
        devices = [device for item in self.carve.published() for device in item["spec"]["devices"]]
        published = {device["attributes"]["uuid"]["string"]: device for device in devices}
        self.assertEqual(set(published), {card["uuid"] for card in cards})
        for card in cards:
            device = published[card["uuid"]]
            self.assertEqual(device["name"], "gpu-" + card["uuid"].removeprefix("GPU-").lower())
            self.assertEqual(check.quantity(device["capacity"]["cores"]["value"]), 100)
            self.assertTrue(device["allowMultipleAllocations"])
            self.assertEqual(device["attributes"]["architecture"], {"string": "Hopper"})
            self.assertEqual(device["attributes"]["cudaComputeCapability"], {"version": "9.0.0"})

    def test_a_fraction_runs_and_is_seen_and_freed(self):
        template = self.template(memory="4Gi", cores="30")
        made = self.create(pod(self.name(), image=images.PROGRAMS, claims={"gpu": template},
                               command=["ring-look", "allocate", str(5 * GIB), "hold", "600"]))
        name = made["metadata"]["name"]
        self.wait_ready(name)
        look = self.look(name)
        self.assertEqual(look["allocated"], OUT_OF_MEMORY)
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [4 * GIB])
        current = self.kube.get("Pod", name)
        self.assertEqual(self.judge([current], {("default", name, "main"): look}), [])
        self.assertNotEqual(look["mapped"], [])

        self.kube.delete("Pod", name, grace=0)
        gone = time.monotonic()
        wait_for("the agent holds nothing", 10, lambda: not self.carve.inspect()["slices"], every=0.05)
        self.assertLessEqual(time.monotonic() - gone, 2.0)

    def test_what_is_within_the_limit_is_given(self):
        template = self.template(memory="4Gi", cores="30")
        phase, log = self.run_to_end(pod(self.name(), image=images.PROGRAMS, claims={"gpu": template},
                                         command=["ring-look", "allocate", str(3 * GIB)]))
        self.assertEqual((phase, json.loads(log)["allocated"]), ("Succeeded", 0))

    def test_a_container_beside_it_without_a_claim_sees_no_card(self):
        template = self.template(memory="1Gi", cores="10")
        both = pod(self.name(), image=images.PROGRAMS, claims={"gpu": template}, command=["ring-look"])
        both["spec"]["containers"].append({"name": "other", "image": images.PROGRAMS, "imagePullPolicy": "Never",
                                           "command": ["ring-look"]})
        self.run_to_end(both)
        other = json.loads(self.kube.logs(both["metadata"]["name"], "other"))
        self.assertIsNone(other["cuda"])

    def test_extended_resource_gives_four_whole_cards_to_two_containers(self):
        if len(self.carve.truth("cards")["cards"]) < 4:
            self.skipTest("the ring's node has fewer than four cards: up --simulate h200x4")
        limits = {"limits": {"nvidia.com/gpu": 2}}
        two = pod(self.name(), image=images.PROGRAMS, command=["ring-look", "hold", "600"])
        two["spec"]["containers"][0]["resources"] = limits
        two["spec"]["containers"].append({"name": "second", "image": images.PROGRAMS, "imagePullPolicy": "Never",
                                          "command": ["ring-look", "hold", "600"], "resources": limits})
        name = self.create(two)["metadata"]["name"]
        self.wait_ready(name)
        seen = {("default", name, c): self.look(name, c) for c in ("main", "second")}
        self.assertEqual(self.judge([self.kube.get("Pod", name)], seen), [])
        uuids = [card["uuid"] for look in seen.values() for card in look["cuda"]["cards"]]
        self.assertEqual((len(uuids), len(set(uuids))), (4, 4))
        for look in seen.values():
            self.assertEqual([path for path in look["mapped"] if "/usr/lib/carve/driver" in path], [])


if __name__ == "__main__":
    main()
