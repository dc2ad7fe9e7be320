"""The DRA door: everything a claim can say. Shared claims, several cards and requests, configuration, refusals."""
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
    doors = "dra"

    def claim(self, requests, constraints=None, config=None):
        """Makes a ResourceClaim of its own, for pods that name it; its name."""
        devices = {"requests": requests, **({"constraints": constraints} if constraints else {}),
                   **({"config": config} if config else {})}
        return self.create({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {
            "name": self.name("claim"), "namespace": "default"}, "spec": {"devices": devices}})["metadata"]["name"]

    def pod_of(self, claim, uses=({"name": "gpu"},), command=HOLD, **spec):
        """A pod whose containers c0, c1, … each name one use of the claim."""
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
        """Waits for a Warning about the pod with all these words; the pod does not run."""
        name = made["metadata"]["name"]

        def told():
            return [m for kind, _, m in self.kube.events_of(made) if kind == "Warning" and all(w in m for w in words)]
        try:
            wait_for(f"a warning with {words}", seconds, told)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(name)}") from None
        self.assertEqual(self.phase(name), "Pending")

    def test_two_containers_share_one_claim(self):
        name = self.started(self.pod_of(self.claim([request("gpu", "4Gi", "30")]), uses=({"name": "gpu"}, {"name": "gpu"})))
        seen = list(self.judged(name).values())
        self.assertEqual(seen[0]["cuda"], seen[1]["cuda"])

    def test_two_pods_share_one_claim_and_one_goes(self):
        claim = self.claim([request("gpu", "4Gi", "30")])
        first, second = (self.started(self.pod_of(claim, node="n1")) for _ in range(2))
        self.judged(first, second)
        self.kube.delete("Pod", first, grace=0)
        wait_for("the first is gone", 60, lambda: self.kube.get("Pod", first) is None)
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        self.assert_limited(second)

    def test_two_cards_in_one_request(self):
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

    def test_two_requests_on_one_card_are_one_sight_of_it(self):
        """A container that has both: by whichever library it asks, it has the same of the card."""
        uuid = self.carve.truth("cards")["cards"][0]["uuid"]
        only = f'device.attributes["{DRIVER}"].uuid == "{uuid}"'
        claim = self.claim([request("a", "2Gi", "10", selector=only), request("b", "3Gi", "20", selector=only)])
        name = self.started(self.pod_of(claim))
        look = self.look(name, "c0")
        self.assert_no_findings([f"{name}: cuda shows {look['cuda']['cards']}, nvml {look['nvml']['cards']}"]
                    if look["cuda"]["cards"] != look["nvml"]["cards"] else [])

    def test_cards_are_selected_by_what_they_are(self):
        uuid = self.carve.truth("cards")["cards"][-1]["uuid"]
        selector = f'device.attributes["gpu.elasticgpu.io"].uuid == "{uuid}" && ' \
                   'device.attributes["gpu.elasticgpu.io"].productName.contains("H200")'
        seen = self.judged(self.started(self.pod_of(self.claim([request("gpu", "1Gi", "5", selector=selector)]))))
        self.assertEqual([c["uuid"] for look in seen.values() for c in look["cuda"]["cards"]], [uuid])

    def test_configuration_is_accepted(self):
        """The arbiter holds the slice to the classes: of a whole claim, and of the one request that is named."""
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

    def test_illegal_configuration_is_refused_by_name(self):
        config = [{"opaque": {"driver": "gpu.elasticgpu.io", "parameters": {
            "apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "half"}}}]
        made = self.create(self.pod_of(self.claim([request("gpu", "1Gi", "5")], config=config)))
        self.refusal(made, "shareClass", "half")

    def test_never_more_than_the_cards_have(self):
        """Six of 30 cores on each card is three; the rest waits, and runs when there is room."""
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

    def test_pod_with_node_name_is_told_that_nobody_allocates_for_it(self):
        made = self.create(self.pod_of(self.claim([request("gpu", "1Gi", "5")]), nodeName="n1"))
        wait_for("a warning that names the allocation", 60, lambda: [
            m for kind, _, m in self.kube.events_of(made) if kind == "Warning" and "claim" in m])
        self.assertNotEqual(self.phase(made["metadata"]["name"]), "Running")

    def test_a_container_that_ignores_sigterm_keeps_its_slice_until_it_is_gone(self):
        claim = self.claim([request("gpu", "4Gi", "30")])
        deaf = self.pod_of(claim, command=["sh", "-c", "trap '' TERM; ring-look; while :; do sleep 0.2; done"],
                           terminationGracePeriodSeconds=6)
        name = self.started(deaf)
        self.kube.delete("Pod", name)
        wait_for("its end has begun", 10, lambda: (p := self.kube.get("Pod", name)) and
                 p["metadata"].get("deletionTimestamp"))
        self.assertEqual(len(self.carve.inspect()["slices"]), 1)
        wait_for("the pod is gone", 60, lambda: self.kube.get("Pod", name) is None)
        wait_for("the agent holds nothing", 10, lambda: not self.carve.inspect()["slices"])

    def test_a_process_that_cannot_die_keeps_its_room_from_the_next(self):
        """The pod is taken out of the API by force, so the scheduler gives its claim's room to another one: on the node it
        is not free before the last process is gone, whoever asks the agent, and whichever agent is asked."""
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
            wait_for("gone for the API server", 30, lambda: self.kube.get("Pod", name) is None)
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
