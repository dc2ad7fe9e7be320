"""A hundred pods at once on one node by the DRA door, judged from inside every container; beside as many without GPUs."""
import copy
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import images  # noqa: E402
from ring.testing import CarveTest, main, pod, wait_for  # noqa: E402

COUNT = 100
HOLD = ["ring-look", "hold", "3600"]


class ManyPods(CarveTest):
    doors = "dra"

    def start_all(self, claims):
        """Creates COUNT pods at once: (names, seconds from the first creation until each was running, sorted)."""
        names = [self.name() for _ in range(COUNT)]
        begun = time.time()
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda n: self.kube.create(
                pod(n, image=images.PROGRAMS, command=HOLD, node="n1", claims=claims)), names))
        self.created += [("Pod", one["metadata"]["name"], "default") for one in made]
        running = {}

        def all_running():
            for one in self.kube.list("Pod"):
                name = one["metadata"]["name"]
                if one["status"].get("phase") == "Failed":
                    raise AssertionError(self.describe(name))
                if one["status"].get("phase") == "Running" and name in names:
                    running.setdefault(name, time.time() - begun)
            return len(running) == COUNT
        try:
            wait_for(f"{COUNT} pods run", 240, all_running, every=0.2)
        except AssertionError as error:
            late = sorted(set(names) - set(running))
            raise AssertionError(f"{error}; {len(late)} do not; the first:\n{self.describe(late[0])}") from None
        return names, sorted(running.values())

    def remove_all(self):
        self._clean()
        self.created = []

    def look_all(self, names):
        with ThreadPoolExecutor(8) as pool:
            return {("default", name, "main"): look for name, look in zip(names, pool.map(self.look, names))}

    def test_a_hundred_at_once(self):
        names, bare = self.start_all(None)
        self.remove_all()
        template = self.template(memory="10Gi", cores="14")
        names, seconds = self.start_all({"gpu": template})
        print(f"\n{COUNT} pods, creation to running, seconds: median {seconds[COUNT // 2]:.1f}, last {seconds[-1]:.1f}; "
              f"without GPUs: median {bare[COUNT // 2]:.1f}, last {bare[-1]:.1f}", flush=True)
        pods = [one for one in self.kube.list("Pod") if one["metadata"]["name"] in names]
        claims, slices = self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None)
        seen = self.look_all(names)
        self.acquit(check.check(pods, claims, slices, seen))
        granted, (pages, owners) = check.granted_by_claims(claims, slices), self.carve.granted()
        self.assertEqual(len(granted), COUNT)
        self.acquit(check.check_pages(granted, pages, owners))
        self.assertEqual([r for r in (e["reason"] for e in self.kube.list("Event")) if r == "UnexpectedAdmissionError"], [])
        self.planted_faults_are_found(pods, claims, slices, seen)
        next(iter(pages.values()))[0].update(cores=15)
        self.assertEqual(len(check.check_pages(granted, pages, owners)), 1)
        self.remove_all()
        wait_for("the agent holds nothing", 20, lambda: not self.carve.inspect()["slices"])
        self.assertEqual([p.name for p in self.ring.node(1).outside("/run/cdi").iterdir()], [])
        self.assertEqual(self.carve.living(), [])

    def planted_faults_are_found(self, pods, claims, slices, seen):
        """The judge's acquittal is worth something: on this very evidence it convicts what is altered."""
        one, other = list(seen)[:2]
        for plant, find in (
                (lambda s: s[one]["cuda"]["cards"][0].update(memory=10 << 30 | 1), "bytes of"),
                (lambda s: s[one]["nvml"]["cards"].append(dict(s[one]["nvml"]["cards"][0], uuid="GPU-ffffffff")), "not given"),
                (lambda s: s[one].update(cuda=None), "does not show")):
            altered = copy.deepcopy(seen)
            plant(altered)
            found = check.check(pods, claims, slices, altered)
            self.assertTrue(any(find in text and "/".join(one) in text for text in found), (find, found[:3]))
        self.assertNotEqual(one, other)


if __name__ == "__main__":
    main()
