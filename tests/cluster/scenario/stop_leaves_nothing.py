"""A ring that was started and ended, in order or after its runner was killed, leaves this machine as it was.

Uses a ring of its own, next to the one of the other scenarios.
"""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

os.environ["CARVE_RING"] = os.environ.get("CARVE_RING", "carve-ring") + "-stop"
HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import paths, picture, state  # noqa: E402
from ring.cluster import Ring  # noqa: E402
from ring.process import until  # noqa: E402
from ring.testing import main, pod, unittest, wait_for  # noqa: E402


# A scenario at work: Carve installed as users do it, a slice with a process on its card.
SCENARIO = """
import sys, time
sys.path[:0] = sys.argv[1:]
from upgrade import AsInstalled
AsInstalled.setUpClass()
scenario = AsInstalled("test_a_fraction_runs_with_only_the_two_daemonsets")
scenario.setUp()
scenario.wait_ready(scenario.fraction())
print("runs", flush=True)
time.sleep(3600)
"""


def start(*arguments):
    return subprocess.Popen([HERE / "up", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def down():
    done = subprocess.run([HERE / "down"], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"down: exit {done.returncode}\n{done.stdout}{done.stderr}")


class StopLeavesNothing(unittest.TestCase):
    def setUp(self):
        subprocess.run([HERE / "down"], check=True, capture_output=True)
        self.before = picture.take()
        self.addCleanup(lambda: subprocess.run([HERE / "down"], check=False, capture_output=True))

    def assert_as_before(self):
        """Other processes on this machine may start and end: only what is new counts."""
        left = picture.take() - self.before
        self.assertEqual(sorted(left), [])

    def up(self, *arguments):
        process = start(*arguments)
        out, error = process.communicate(timeout=180)
        self.assertEqual(process.returncode, 0, error)
        self.assertIn("KUBECONFIG=", out)
        return Ring.load()

    def with_pods(self, ring, count=5):
        kube = ring.kube()
        for i in range(count):
            kube.create(pod(f"left-{i}", command=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]))
        wait_for("pods run", 60, lambda: all(p["status"].get("phase") == "Running" for p in kube.list("Pod")))

    def test_the_picture_shows_a_running_ring(self):
        """Shows that the comparison works: it names the processes, cgroups and files of a running ring."""
        ring = self.up()
        self.with_pods(ring, 1)
        kinds = {item.split()[0] for item in picture.take() - self.before}
        self.assertLessEqual({"process", "cgroup", "file"}, kinds)

    def test_nothing_is_left_after_down_with_pods_running(self):
        self.with_pods(self.up())
        down()
        self.assert_as_before()

    def test_nothing_is_left_after_the_runner_was_killed_at_any_point_of_the_start(self):
        for after in (0.3, 1.0, 2.0, 3.5, 6.0):
            with self.subTest(seconds=after):
                process = start()
                time.sleep(after)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                down()
                self.assert_as_before()

    def test_the_next_up_removes_what_a_killed_one_left(self):
        process = start()
        until("etcd was started", 60, lambda: (found := state.State.load()) and found.pid("etcd"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        ring = self.up()
        self.assertTrue(ring.kube().ready())
        down()
        self.assert_as_before()

    def test_nothing_is_left_when_the_rings_own_processes_were_killed(self):
        ring = self.up()
        self.with_pods(ring)
        for process in ring.state.content["processes"]:
            if ring.state.pid(process["name"]):
                os.kill(process["pid"], signal.SIGKILL)
        down()
        self.assert_as_before()

    def test_nothing_is_left_when_a_scenario_with_carve_and_a_slice_was_killed(self):
        build = os.environ.get("CARVE_BUILD") or self.skipTest("CARVE_BUILD names no build folder")
        ring = self.up("--simulate", "h200x2", "--build", build)
        scenario = subprocess.Popen([sys.executable, "-c", SCENARIO, HERE / "scenario", HERE], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        self.addCleanup(scenario.kill)
        if scenario.stdout.readline() != "runs\n":
            scenario.kill()
            self.fail(scenario.communicate()[1])
        node = ring.node(1)
        self.assertTrue(list(node.outside("/run/cdi").glob("carve-slice-*.json")))
        self.assertTrue(list(node.outside("/run/carve/arbiter/pages").iterdir()))
        scenario.send_signal(signal.SIGKILL)
        scenario.communicate()
        down()
        self.assert_as_before()

    def test_a_pid_that_was_reused_by_another_process_is_not_touched(self):
        bystander = subprocess.Popen(["sleep", "600"])
        self.addCleanup(bystander.kill)
        made = state.State.create()
        made.content["processes"].append({"name": "stranger", "pid": bystander.pid, "start": 1})
        made.save()
        down()
        self.assertIsNone(bystander.poll())
        self.assertFalse(paths.state().exists())


if __name__ == "__main__":
    main()
