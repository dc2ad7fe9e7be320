"""Carve installed by its plain manifests, as a user would, and upgraded under running pods."""
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import images, installed  # noqa: E402
from ring.testing import CarveTest, RingTest, main, pod  # noqa: E402

GIB = 1 << 30
OUT_OF_MEMORY = 2          # CUDA_ERROR_OUT_OF_MEMORY
HOLD = ["ring-look", "allocate", str(5 * GIB), "hold", "3600"]


class InstalledTest(RingTest):
    """The image imported and deploy/ applied before the first test; taken away after the last."""
    template, look = CarveTest.template, CarveTest.look

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(installed.uninstall, cls.ring)
        cls.archive = cls.ring.state.folder / "images" / "carve.tar"
        cls.image = installed.make_image(cls.ring.build, cls.archive)
        cls.carves = installed.install(cls.ring, cls.archive)
        cls.carve = cls.carves[0]

    def judge(self, names):
        """What the independent checker says about running pods: seen from inside against the API."""
        pods = [one for one in self.kube.list("Pod") if one["metadata"]["name"] in names]
        seen = {("default", name, "main"): self.look(name) for name in names}
        physical = {card["uuid"]: card["total_bytes"] for card in self.carve.truth("cards")["cards"]}
        return check.check(pods, self.kube.list("ResourceClaim"), self.kube.list("ResourceSlice", None), seen,
                           physical=physical)

    def fraction(self, memory="4Gi", cores="30", **spec):
        name = self.name()
        self.create(pod(name, image=images.PROGRAMS, claims={"gpu": self.template(memory=memory, cores=cores)},
                        **{"command": HOLD, "node": "n1", **spec}))
        return name


class AsInstalled(InstalledTest):
    def test_a_fraction_runs_with_the_two_daemonsets_and_nothing_else(self):
        name = self.fraction()
        self.wait_ready(name)
        self.assertEqual(self.look(name)["allocated"], OUT_OF_MEMORY)
        self.assertEqual(self.judge([name]), [])

    def test_what_runtimes_read_names_the_hosts_paths(self):
        name = self.fraction()
        self.wait_ready(name)
        specs = [json.loads(path.read_text()) for path in self.carve.node.outside("/run/cdi").glob("*.json")]
        paths = [mount["hostPath"] for spec in specs for device in spec["devices"]
                 for mount in device["containerEdits"]["mounts"]]
        self.assertTrue(paths)
        self.assertEqual([path for path in paths if not self.carve.node.outside(path).exists()], [])
        self.assertEqual([path for path in paths if path.startswith("/host")], [])


if __name__ == "__main__":
    main()
