"""The DRA driver: everything that a claim can request. Shared claims, several cards and requests, configuration,
refusals."""
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import disaster, images  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

GIB = 1 << 30
DRIVER = "gpu.elasticgpu.io"
HOLD = ["ring-look", "hold", "3600"]
DISTINCT = [{"distinctAttribute": "gpu.elasticgpu.io/uuid"}]


def request(name, memory, cores, count=None, selector=None):
    exactly = {"deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"memory": memory, "cores": cores}}}
    if count:
        exactly.update(allocationMode="ExactCount", count=count)
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


class DraClaims(CarveTest):
    plugins = "dra"

    def claim(self, requests, constraints=None, config=None):
        """Creates a ResourceClaim that pods can name. Returns its name."""
        devices = {"requests": requests, **({"constraints": constraints} if constraints else {}),
                   **({"config": config} if config else {})}
        return self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {
            "name": self.name("claim"), "namespace": "default"}, "spec": {"devices": devices}})["metadata"]["name"]

    def pod_of(self, claim, uses=({"name": "gpu"},), command=HOLD, **spec):
        """A pod with containers c0, c1, … that each name one use of the claim."""
        made = pod(self.name(), **spec)
        made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        made["spec"]["containers"] = [{
            "name": f"c{i}", "image": images.PROGRAMS, "imagePullPolicy": "Never", "command": list(command),
            "resources": {"claims": [use]}} for i, use in enumerate(uses)]
        return made

    def judged(self, *names):
        pods = [self.kube.get("Pod", name) for name in names]
        seen = {("default", one["metadata"]["name"], c["name"]): self.look(one["metadata"]["name"], c["name"])
                for one in pods for c in one["spec"]["containers"]}
        found = check.check(pods, self.kube.list("ResourceClaim", None), self.kube.list("ResourceSlice", None), seen)
        self.assert_no_findings(found)
        return seen

    def started(self, object_):
        name = self.create(object_)["metadata"]["name"]
        self.wait_ready(name)
        return name

    def refusal(self, made, *words, seconds=60):
        """Waits for a Warning about the pod that contains all these words. The pod must not run."""
        name = made["metadata"]["name"]

        def warnings():
            return [m for kind, _, m in self.kube.events_of(made) if kind == "Warning" and all(w in m for w in words)]
        try:
            wait_for(f"a warning with {words}", seconds, warnings)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from None
        self.assertEqual(self.phase(name), "Pending")

    def test_two_containers_share_one_claim(self):
        name = self.started(self.pod_of(self.claim([request("gpu", "4Gi", "30")]), uses=({"name": "gpu"}, {"name": "gpu"})))
        seen = list(self.judged(name).values())
        self.assertEqual(seen[0]["cuda"], seen[1]["cuda"])

    def test_of_two_pods_with_one_claim_the_second_keeps_it_when_the_first_ends(self):
        claim = self.claim([request("gpu", "4Gi", "30")])
        first, second = (self.started(self.pod_of(claim, node="n1")) for _ in range(2))
        self.judged(first, second)
        self.kube.delete("Pod", first, grace=0)
        wait_for("the first is gone", 60, lambda: self.kube.get("Pod", first) is None)
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        self.assert_limited(second)

    def test_one_request_gets_two_cards(self):
        claim = self.claim([request("gpu", "4Gi", "30", count=2)], DISTINCT)
        seen = self.judged(self.started(self.pod_of(claim)))
        (look,) = seen.values()
        self.assertEqual([card["memory"] for card in look["cuda"]["cards"]], [4 * GIB, 4 * GIB])

    def test_containers_get_only_the_request_that_they_name(self):
        claim = self.claim([request("a", "2Gi", "10"), request("b", "3Gi", "20")], DISTINCT)
        name = self.started(self.pod_of(claim, uses=({"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"},
                                                     {"name": "gpu"})))
        seen = self.judged(name)
        self.assertEqual([sorted(c["memory"] // GIB for c in look["cuda"]["cards"]) for look in seen.values()],
                         [[2], [3], [2, 3]])

    def test_two_requests_on_one_card_are_seen_as_one_card(self):
        """A container that has both requests sees the same amount through CUDA and NVML."""
        uuid = self.carve.truth("cards")["cards"][0]["uuid"]
        only = f'device.attributes["{DRIVER}"].uuid == "{uuid}"'
        claim = self.claim([request("a", "2Gi", "10", selector=only), request("b", "3Gi", "20", selector=only)])
        name = self.started(self.pod_of(claim))
        look = self.look(name, "c0")
        self.assert_no_findings([f"{name}: cuda shows {look['cuda']['cards']}, nvml {look['nvml']['cards']}"]
                                if look["cuda"]["cards"] != look["nvml"]["cards"] else [])

    def test_a_selector_chooses_cards_by_their_attributes(self):
        uuid = self.carve.truth("cards")["cards"][-1]["uuid"]
        selector = f'device.attributes["gpu.elasticgpu.io"].uuid == "{uuid}" && ' \
                   'device.attributes["gpu.elasticgpu.io"].productName.contains("H200")'
        seen = self.judged(self.started(self.pod_of(self.claim([request("gpu", "1Gi", "5", selector=selector)]))))
        self.assertEqual([c["uuid"] for look in seen.values() for c in look["cuda"]["cards"]], [uuid])

    def test_configuration_sets_the_classes_of_the_slices(self):
        """The arbiter enforces the classes, for a whole claim and for one named request."""
        config = {"opaque": {"driver": "gpu.elasticgpu.io", "parameters": {
            "apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "fixed",
            "priorityClass": "offline"}}}
        whole = self.claim([request("gpu", "1Gi", "5")], config=[config])
        named = self.claim([request("a", "2Gi", "6"), request("b", "3Gi", "7")], DISTINCT,
                           config=[{"requests": ["a"], **config}])
        self.judged(*[self.started(self.pod_of(claim)) for claim in (whole, named)])
        wait_for("no slice of another test", 20, lambda: len(self.carve.inspect()["slices"]) == 3)
        claims = [self.kube.get("ResourceClaim", claim) for claim in (whole, named)]
        granted = check.granted_by_claims(claims, self.kube.list("ResourceSlice", None))
        self.assert_no_findings(check.check_pages(granted, *self.carve.granted()))
        self.assertEqual({request: (page["share"], page["priority"]) for (_, request, _), page in granted.items()},
                         {"gpu": ("fixed", "offline"), "a": ("fixed", "offline"), "b": ("burst", "standard")})

    def test_an_illegal_configuration_is_refused_by_name(self):
        config = [{"opaque": {"driver": "gpu.elasticgpu.io", "parameters": {
            "apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "half"}}}]
        made = self.create(self.pod_of(self.claim([request("gpu", "1Gi", "5")], config=config)))
        self.refusal(made, "shareClass", "half")

    def test_claims_never_over_commit_a_card(self):
        """Of five claims of 30 cores for one card three run; the others wait, and run when there is room."""
        cards = len(self.carve.truth("cards")["cards"])
        uuid = self.carve.truth("cards")["cards"][0]["uuid"]
        one_card = f'device.attributes["gpu.elasticgpu.io"].uuid == "{uuid}"'
        self.assertGreater(cards, 0)
        names = [self.create(self.pod_of(self.claim([request("gpu", "4Gi", "30", selector=one_card)])))["metadata"]["name"]
                 for _ in range(5)]
        running = wait_for("three run", 60, lambda: (r := [n for n in names if self.phase(n) == "Running"]) and
                           len(r) == 3 and r)
        self.judged(*running)
        self.kube.delete("Pod", running[0], grace=0)
        wait_for("a fourth runs in its place", 60, lambda: sum(self.phase(n) == "Running" for n in names) == 3 and
                 self.phase(running[0]) is None)

    def test_a_pod_with_node_name_gets_a_warning_that_its_claim_is_not_allocated(self):
        made = self.create(self.pod_of(self.claim([request("gpu", "1Gi", "5")]), nodeName="n1"))
        wait_for("a warning that names the claim", 60, lambda: [
            m for kind, _, m in self.kube.events_of(made) if kind == "Warning" and "claim" in m])
        self.assertNotEqual(self.phase(made["metadata"]["name"]), "Running")

    def test_a_container_that_ignores_sigterm_keeps_its_slice_until_it_is_gone(self):
        wait_for("slices of earlier pods have ended", 30, lambda: not self.carve.inspect()["slices"])
        claim = self.claim([request("gpu", "4Gi", "30")])
        deaf = self.pod_of(claim, command=["sh", "-c", "trap '' TERM; ring-look; while :; do sleep 0.2; done"],
                           terminationGracePeriodSeconds=6)
        name = self.started(deaf)
        self.kube.delete("Pod", name)
        wait_for("its deletion has begun", 10, lambda: (p := self.kube.get("Pod", name)) and
                 p["metadata"].get("deletionTimestamp"))
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        wait_for("the pod is gone", 60, lambda: self.kube.get("Pod", name) is None)
        wait_for("the agent has no slices", 10, lambda: not self.carve.inspect()["slices"])

    def test_a_process_that_cannot_be_killed_keeps_its_room(self):
        """The pod is deleted from the API by force, so the scheduler allocates its room to another claim. On the node
        the room is not free before the last process is gone, neither for another pod nor for a restarted agent."""
        card = self.carve.truth("cards")["cards"][1]
        most, only = f"{int(card['total_bytes'] * 0.6) // GIB}Gi", f'device.attributes["{DRIVER}"].uuid == "{card["uuid"]}"'

        def big():
            return self.pod_of(self.claim([request("gpu", most, "60", selector=only)]), node="n1")
        name = self.started(big())
        uid = self.kube.get("Pod", name)["metadata"]["uid"]
        container = self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"].rsplit("/", 1)[1]
        (pid,) = self.pids_of(container)
        with disaster.unreachable(pid):
            self.kube.delete("Pod", name, grace=0)
            wait_for("deleted at the API server", 30, lambda: self.kube.get("Pod", name) is None)
            next_one = self.create(big())
            self.refusal(next_one, card["uuid"], " free < ", seconds=90)
            self.carve.kill_agent()
            self.carve.start_agent()
            time.sleep(4)
            self.assertEqual(len(self.carve.inspect()["slices"]), 1)
            self.assertEqual(self.phase(next_one["metadata"]["name"]), "Pending")
            self.assertTrue(Path(f"/proc/{pid}").exists())
        wait_for("its processes are gone", 60, lambda: not self.pids_of(uid))
        self.wait_ready(next_one["metadata"]["name"], 90)
        self.judged(next_one["metadata"]["name"])
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)


if __name__ == "__main__":
    main()
