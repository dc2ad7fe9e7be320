"""Many concurrent pods on one node by DRA and by slots, judged from inside every container: a hundred by slots (RA-11),
forty by DRA; with CARVE_SOAK=1 a hundred of each, and as many without GPUs."""
import copy
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import images  # noqa: E402
from ring.slot_testing import SlotTest, slot_pod  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

SOAK = bool(os.environ.get("CARVE_SOAK"))
MIB = 1 << 20
HOLD = ["ring-look", "hold", "3600"]


class ManyPods(SlotTest):
    plugins = "dra,slots"

    def start_all(self, count, start):
        """Creates `count` pods concurrently with start(name, index), which returns the Pod. Returns (names, seconds
        from the first creation until each was running, sorted)."""
        names = [self.name() for _ in range(count)]
        begun = time.time()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(start, names, range(count)))
        running = {}

        def all_running():
            for one in self.kube.list("Pod"):
                name = one["metadata"]["name"]
                if one["status"].get("phase") == "Failed":
                    raise AssertionError(self.describe(name))
                if one["status"].get("phase") == "Running" and name in names:
                    running.setdefault(name, time.time() - begun)
            return len(running) == count
        try:
            wait_for(f"{count} pods run", 240, all_running, every=0.2)
        except AssertionError as error:
            late = sorted(set(names) - set(running))
            raise AssertionError(f"{error}; {len(late)} do not run; the first:\n{self.describe(late[0])}") from None
        return names, sorted(running.values())

    def look_all(self, names):
        with ThreadPoolExecutor(8) as pool:
            return {("default", name, "main"): look for name, look in zip(names, pool.map(self.look, names))}

    def without(self, _):
        return lambda name, _: self.create(pod(name, image=images.PROGRAMS, command=HOLD, node="n1"))

    def by_claims(self, count):
        # No two of one size, so that those on one card are distinguished by what they see.
        templates = [self.template(memory=f"{self.claimed(i) // MIB}Mi", cores="14") for i in range(count)]
        return lambda name, i: self.create(pod(name, image=images.PROGRAMS, command=HOLD, node="n1",
                                               claims={"gpu": templates[i]}))

    @staticmethod
    def claimed(i):
        """The bytes that the claim of the pod with that number requests: seven of them fit on a card."""
        return (10 << 30) - i * MIB

    def by_records(self, _):
        # RA-11. Those on one card differ in size, so that a wrong slice is noticed there, too.
        return lambda name, i: self.start(slot_pod(name), {"main": [(i * 7 % len(self.cards), 1 + i % 5, 1 + i % 7)]})

    def test_many_concurrent_pods_get_their_own_slices(self):
        figures = []
        kinds = [("DRA", 100 if SOAK else 40, self.by_claims, self.judge_claims),
                 ("slots", 100, self.by_records, self.judge_records)]
        for plugin, count, start, judge in ([("no GPU", 100, self.without, None)] if SOAK else []) + kinds:
            names, seconds = self.start_all(count, start(count))
            figures.append(f"{count} by {plugin}: median {seconds[count // 2]:.1f}, last {seconds[-1]:.1f}")
            if judge:
                pods = [one for one in self.kube.list("Pod") if one["metadata"]["name"] in names]
                self.assertEqual(len(pods), count)
                judge(pods, self.look_all(names), names)
            self._clean()
            self.created.clear()
            wait_for("the agent has no slices", 20, lambda: not self.carve.inspect()["slices"])
            self.assertEqual([p.name for p in self.ring.node(1).outside("/run/cdi").iterdir()], [])
            self.assertEqual(self.carve.living(), [])
        print("\nconcurrent pods, creation to running, seconds: " + "; ".join(figures), flush=True)

    def judge_records(self, pods, seen, _):
        self.assert_no_findings(check.check(pods, [], [], seen, by="records"))
        granted = check.granted_by_records(pods)
        self.assertEqual(len(granted), len(pods))
        self.assert_no_findings(check.check_pages(granted, *self.carve.granted()))
        self.assertEqual(self.refused_at_admission(), [])

    def judge_claims(self, pods, seen, names):
        claims, slices = self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None)
        self.assert_no_findings(check.check(pods, claims, slices, seen))
        sizes = {name: [card["memory"] for card in look["cuda"]["cards"]] for (_, name, _), look in seen.items()}
        self.assert_no_findings([f"{name} sees {sizes[name]} bytes; its claim has {self.claimed(i)}"
                                 for i, name in enumerate(names) if sizes[name] != [self.claimed(i)]])
        granted, (pages, owners) = check.granted_by_claims(claims, slices), self.carve.granted()
        self.assertEqual(len(granted), len(pods))
        self.assert_no_findings(check.check_pages(granted, pages, owners))
        self.assertEqual(self.refused_at_admission(), [])
        self.planted_faults_are_found(pods, claims, slices, seen)
        next(iter(pages.values()))[0].update(cores=15)
        self.assertEqual(len(check.check_pages(granted, pages, owners)), 1)

    def planted_faults_are_found(self, pods, claims, slices, seen):
        """Shows that the checker works on this data: altered copies of it must be reported."""
        one, other = next((a, b) for a in seen for b in seen if a != b and
                          seen[a]["cuda"]["cards"][0]["uuid"] == seen[b]["cuda"]["cards"][0]["uuid"])
        for plant, find in (
                (lambda s: s[one]["cuda"]["cards"][0].update(memory=10 << 30 | 1), "bytes of"),
                # two slices on one card, exchanged
                (lambda s: s.update({one: s[other], other: s[one]}), "bytes of"),
                (lambda s: s[one]["nvml"]["cards"].append(dict(s[one]["nvml"]["cards"][0], uuid="GPU-ffffffff")), "not given"),
                (lambda s: s[one].update(cuda=None), "does not show")):
            altered = copy.deepcopy(seen)
            plant(altered)
            found = check.check(pods, claims, slices, altered)
            self.assertTrue(any(find in text and "/".join(one) in text for text in found), (find, found[:3]))


if __name__ == "__main__":
    main()
