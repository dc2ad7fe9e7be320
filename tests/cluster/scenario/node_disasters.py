"""The ring's disasters, tested with plain pods: restarts of kubelet and containerd, reboot, unavailable API server.

Without Carve: this shows what Kubernetes itself guarantees; scenarios with Carve build on it.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import disaster  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402


class NodeDisasters(RingTest):
    def setUp(self):
        super().setUp()
        self.node = self.ring.node(1)
        self.pod = self.create(pod(self.name(), node="n1"))["metadata"]["name"]
        self.wait_ready(self.pod)

    def container_id(self):
        return self.kube.get("Pod", self.pod)["status"]["containerStatuses"][0]["containerID"]

    def new_pod_runs(self):
        phase, _ = self.run_to_end(pod(self.name(), node="n1", command=["true"]), seconds=90)
        self.assertEqual(phase, "Succeeded")

    def test_a_kubelet_restart_keeps_containers(self):
        before = self.container_id()
        self.node.restart_kubelet()
        self.new_pod_runs()
        self.assertEqual(self.container_id(), before)

    def test_what_a_scenario_left_stopped_is_repaired(self):
        self.node.stop_kubelet()
        disaster.stop_threads(self.node.pid("containerd"))
        self.assertEqual(self.ring.repair(), ["n1-containerd continued", "n1-kubelet started"])
        self.assertEqual(self.ring.repair(), [])
        self.new_pod_runs()

    def test_a_killed_containerd_keeps_containers(self):
        before = self.container_id()
        self.node.kill("containerd")
        self.node.start_containerd()
        self.node.wait_containerd()
        self.new_pod_runs()
        self.assertEqual(self.container_id(), before)

    def test_pods_start_after_an_api_server_restart(self):
        self.ring.stop_api_server()
        self.ring.start_api_server()
        self.ring.wait_api_server()
        self.new_pod_runs()

    def test_pods_start_after_the_api_server_was_unavailable(self):
        with disaster.api_server_away(self.ring):
            self.assertFalse(self.kube.ready())
        self.new_pod_runs()

    def start_driver(self, node):
        """Restores the simulated driver for later scenarios."""
        profile = self.ring.state.content["simulate"]
        if profile:
            node.start_simulator(self.ring.build, profile)

    def test_a_reboot_replaces_containers_boot_id_and_run(self):
        """Afterwards the pod has another container and the node another boot id; /run was empty."""
        before = self.container_id()
        old_boot = self.node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
        self.node.outside("/run/ring-left-over").touch()
        always = self.create(pod(self.name(), node="n1", restartPolicy="Always"))["metadata"]["name"]
        self.wait_ready(always)
        disaster.reboot(self.node, self.start_driver)
        self.assertFalse(self.node.outside("/run/ring-left-over").exists())
        self.assertNotEqual(self.node.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout, old_boot)
        wait_for("the pod runs again", 120, lambda: self.kube.get("Pod", always)["status"]
                 .get("containerStatuses", [{}])[0].get("restartCount", 0) > 0)
        self.wait_ready(always)
        self.new_pod_runs()
        wait_for("the pod that does not restart has ended", 60, lambda: self.phase(self.pod) == "Failed" or
                 self.container_id() != before)


if __name__ == "__main__":
    main()
