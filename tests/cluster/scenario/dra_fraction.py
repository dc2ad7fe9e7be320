"""The DRA driver: a fraction from a ResourceClaimTemplate, with only the agent on a stock cluster."""
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
LIBRARIES = "/usr/lib/carve/driver/"    # where a container finds the libraries in the driver's place


class DraFraction(CarveTest):
    plugins = "dra"

    def judge(self, pods, seen):
        physical = {card["uuid"]: card["total_bytes"] for card in self.carve.truth("cards")["cards"]}
        return check.check(pods, self.kube.list("ResourceClaim", None), self.kube.list("ResourceSlice", None), seen,
                           physical=physical)

    def test_resource_slices_describe_the_cards(self):
        cards = self.carve.truth("cards")["cards"]
        devices = [device for item in self.carve.published() for device in item["spec"]["devices"]]
        published = {device["attributes"]["uuid"]["string"]: device for device in devices}
        self.assertEqual(set(published), {card["uuid"] for card in cards})
        for card in cards:
            device = published[card["uuid"]]
            self.assertEqual(device["name"], "gpu-" + card["uuid"].removeprefix("GPU-").lower())
            self.assertEqual(check.quantity(device["capacity"]["cores"]["value"]), 100)
            self.assertEqual(device["capacity"]["slices"], {"value": "128", "requestPolicy": {
                "default": "1", "validRange": {"min": "1", "max": "1"}}})
            self.assertTrue(device["allowMultipleAllocations"])
            self.assertEqual(device["attributes"]["architecture"], {"string": "Hopper"})
            attributes = device["attributes"]
            self.assertEqual(attributes["cudaComputeCapability"], {"version": "9.0.0"})
            self.assertIn(card["model"].replace("-", " ").lower(), attributes["productName"]["string"].lower())
            self.assertEqual(check.quantity(device["capacity"]["memory"]["value"]),     # the usable memory in whole MiB
                             (card["total_bytes"] - card["reserved_bytes"]) >> 20 << 20)
            self.assertEqual(attributes["numaNode"], {"int": card["numa"]})
            self.assertEqual(attributes["resource.kubernetes.io/numaNode"], {"int": card["numa"]})
            self.assertEqual(attributes["resource.kubernetes.io/pciBusID"], {"string": card["pci_bus_id"]})
            self.assertEqual([int(part) for part in attributes["driverVersion"]["version"].split(".")],
                             [int(part) for part in card["driver_version"].split(".")])
            # The figures after the simulated driver's branch name its CUDA version (sim/model/driver_version.h).
            self.assertEqual([int(part) for part in attributes["cudaDriverVersion"]["version"].split(".")],
                             [int(part) for part in card["driver_version"].split(".")[1:]] + [0])
            # The root is read from the kernel's tree, where a simulated card does not exist (real ones:
            # src/adapter/nvml).
            if not Path("/sys/bus/pci/devices", card["pci_bus_id"]).exists():
                self.assertNotIn("resource.kubernetes.io/pcieRoot", attributes)
        self.assertEqual(len({card["pci_bus_id"] for card in cards}), len(cards))

    def test_a_fraction_runs_is_seen_by_its_container_and_is_freed(self):
        template = self.template(memory="4Gi", cores="30")
        made = self.create(pod(self.name(), image=images.PROGRAMS, claims={"gpu": template},
                               command=["ring-look", "allocate", str(5 * GIB), "hold", "600"]))
        name = made["metadata"]["name"]
        self.wait_ready(name)
        look = self.look(name)
        self.assertEqual(look["allocated"], OUT_OF_MEMORY)
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [4 * GIB])
        current = self.kube.get("Pod", name)
        self.assert_no_findings(self.judge([current], {("default", name, "main"): look}))
        self.assertTrue(self.of_carve(look), look["mapped"])
        self.wait_devices_ready(current)

        self.kube.delete("Pod", name, grace=0)
        gone = time.monotonic()
        wait_for("the agent has no slices", 10, lambda: not self.carve.inspect()["slices"], every=0.05)
        self.assertLessEqual(time.monotonic() - gone, 2.0)

    @staticmethod
    def of_carve(look):
        """Carve's files among the driver files that a container's process has mapped."""
        return [path for path in look["mapped"] if path.startswith(LIBRARIES)]

    def wait_devices_ready(self, found):
        """The claim's status must report Ready for exactly the devices that were allocated to it."""
        (claim,) = [one["resourceClaimName"] for one in found["status"]["resourceClaimStatuses"]]

        def conditions(status):
            return {one["device"]: [(c["type"], c["status"]) for c in one.get("conditions", [])]
                    for one in status.get("devices", [])}
        status = wait_for("the claim's status has devices", 20, lambda: (
            s := self.kube.get("ResourceClaim", claim)["status"]) and conditions(s) and s)
        results = status["allocation"]["devices"]["results"]
        # The claim names memory and cores only; the default of the capacity `slices` counts it.
        self.assertEqual([one["consumedCapacity"].get("slices") for one in results], ["1"] * len(results))
        allocated = {one["device"] for one in results}
        self.assertEqual(conditions(status), {device: [("Ready", "True")] for device in allocated})

    def spinning(self, uuid, cores):
        """Creates a pod that launches without pause and has a claim for a share of this card. Returns its name."""
        template = self.name("template")
        request = {"deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"memory": "4Gi", "cores": str(cores)}},
                   "selectors": [{"cel": {"expression": f'device.attributes["gpu.elasticgpu.io"].uuid == "{uuid}"'}}]}
        self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                     "metadata": {"name": template, "namespace": "default"},
                     "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}}})
        return self.create(pod(self.name(), image=images.PROGRAMS, claims={"gpu": template},
                               command=self.SPIN))["metadata"]["name"]

    def test_two_pods_on_one_card_get_their_shares(self):
        uuid = self.carve.truth("cards")["cards"][0]["uuid"]
        wanted = {self.spinning(uuid, cores): cores for cores in (30, 70)}
        self.assert_shares_kept(wanted)
        granted = check.granted_by_claims(self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None))
        self.assert_no_findings(check.check_pages(granted, *self.carve.granted()))

    def test_an_allocation_within_the_limit_succeeds(self):
        template = self.template(memory="4Gi", cores="30")
        phase, log = self.run_to_end(pod(self.name(), image=images.PROGRAMS, claims={"gpu": template},
                                         command=["ring-look", "allocate", str(3 * GIB)]))
        self.assertEqual((phase, json.loads(log)["allocated"]), ("Succeeded", 0))

    def test_a_container_without_a_claim_sees_no_card(self):
        template = self.template(memory="1Gi", cores="10")
        both = pod(self.name(), image=images.PROGRAMS, claims={"gpu": template}, command=["ring-look"])
        both["spec"]["containers"].append({"name": "other", "image": images.PROGRAMS, "imagePullPolicy": "Never",
                                           "command": ["ring-look"]})
        self.run_to_end(both)
        other = json.loads(self.kube.logs(both["metadata"]["name"], "other"))
        self.assertIsNone(other["cuda"])

    def test_an_extended_resource_gives_four_whole_cards_to_two_containers(self):
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
        self.assert_no_findings(self.judge([self.kube.get("Pod", name)], seen))
        uuids = [card["uuid"] for look in seen.values() for card in look["cuda"]["cards"]]
        self.assertEqual((len(uuids), len(set(uuids))), (4, 4))
        for look in seen.values():
            self.assertNotEqual(look["mapped"], [])
            self.assertEqual(self.of_carve(look), [])


if __name__ == "__main__":
    main()
