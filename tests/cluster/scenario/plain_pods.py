"""The ring itself, without Carve: nodes are Ready, pods run, networks work as on a stock cluster."""
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import images  # noqa: E402
from ring.kube import ApiError  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402


class PlainPods(RingTest):
    def test_every_node_is_ready_with_the_built_version(self):
        nodes = self.kube.list("Node")
        built = subprocess.run([self.ring.binaries["kubelet"], "--version"], capture_output=True, text=True).stdout
        self.assertEqual({node["metadata"]["name"] for node in nodes}, {node.name for node in self.ring.nodes})
        for node in nodes:
            ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
            self.assertEqual(ready, ["True"])
            self.assertEqual("Kubernetes " + node["status"]["nodeInfo"]["kubeletVersion"], built.strip())

    def test_a_pod_runs_to_its_end_and_has_a_log(self):
        phase, log = self.run_to_end(pod(self.name(), command=["sh", "-c", "echo from the inside; id -u"]))
        self.assertEqual((phase, log), ("Succeeded", "from the inside\n0\n"))

    def test_a_failing_pod_is_failed(self):
        phase, _ = self.run_to_end(pod(self.name(), command=["sh", "-c", "exit 3"]))
        self.assertEqual(phase, "Failed")

    def test_pods_reach_the_api_server_with_their_service_account_and_rbac_refuses_them(self):
        script = ("t=/var/run/secrets/kubernetes.io/serviceaccount/token; test -s $t && "
                  "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached && cat $t")
        phase, log = self.run_to_end(pod(self.name(), command=["sh", "-c", script], serviceAccountName="default"))
        self.assertEqual(phase, "Succeeded", log)
        reached, token = log.split("\n", 1)
        self.assertEqual(reached, "reached")
        with self.assertRaises(ApiError) as refused:
            self.ring.kube(token=token.strip()).list("Pod")
        self.assertIn(refused.exception.status, (401, 403))    # 401: the pod to which the token is bound has ended

    def test_a_node_may_not_change_another_node(self):
        self.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}})
        node = self.ring.kube(certificate="n1")
        node.patch("Node", "n1", {"metadata": {"annotations": {"ring/own": "1"}}}, sub="status")
        with self.assertRaises(ApiError) as refused:
            node.patch("Node", "another", {"metadata": {"annotations": {"ring/own": "1"}}}, sub="status")
        self.assertEqual(refused.exception.status, 403)

    def test_a_container_gets_a_cdi_device_from_a_hand_written_file(self):
        """Device plugin -> kubelet -> containerd -> CDI file, without Carve. A name without a file is refused."""
        node = self.ring.node(1)
        node.start("plugin", [self.ring.binaries["ring-plugin"], "ring.test/thing", "4", "ring.test/thing=one"])
        self.addCleanup(node.stop, "plugin")
        wait_for("the plugin's resource on the node", 30, lambda: self.kube.get("Node", "n1")["status"]["allocatable"]
                 .get("ring.test/thing") == "4")

        def with_thing():
            made = pod(self.name(), command=["sh", "-c", "echo $RING_THING; head -c 3 /dev/ring-thing | od -An -tx1"])
            made["spec"]["containers"][0]["resources"] = {"limits": {"ring.test/thing": 1}}
            return made
        refused = self.create(with_thing())
        wait_for("the refusal in an event", 30, lambda: [m for _, _, m in self.kube.events_of(refused)
                                                        if "unresolvable CDI devices ring.test/thing=one" in m])
        spec = node.outside("/run/cdi/ring.json")
        spec.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "ring.test/thing", "devices": [{
            "name": "one", "containerEdits": {"env": ["RING_THING=one"], "deviceNodes": [
                {"path": "/dev/ring-thing", "hostPath": "/dev/zero"}]}}]}))
        self.addCleanup(spec.unlink)
        phase, log = self.run_to_end(with_thing())
        self.assertEqual((phase, log.split()), ("Succeeded", ["one", "00", "00", "00"]))

    def test_a_service_is_reached_by_its_name(self):
        """The ring's replacement for kube-proxy and DNS (ring/services.py)."""
        name = self.name("web")
        self.create({**pod(name, command=["sh", "-c", "echo found >/tmp/index.html; httpd -f -p 8080 -h /tmp"]),
                     "metadata": {"name": name, "namespace": "default", "labels": {"app": name}}})
        self.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
                     "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}})
        self.wait_ready(name)
        ask = f"until wget -qO- http://{name}.default.svc/; do sleep 0.2; done"
        phase, log = self.run_to_end(pod(self.name(), command=["timeout", "30", "sh", "-c", ask]))
        self.assertEqual((phase, log.strip().splitlines()[-1:]), ("Succeeded", ["found"]))

    def test_twenty_concurrent_pods_have_different_addresses(self):
        names = [self.create(pod(self.name(), command=["sleep", "600"]))["metadata"]["name"] for _ in range(20)]
        for name in names:
            self.wait_ready(name)
        addresses = {self.kube.get("Pod", name)["status"]["podIP"] for name in names}
        self.assertEqual(len(addresses), 20)

    def test_the_image_with_programs_runs_and_sees_no_gpu(self):
        phase, log = self.run_to_end(pod(self.name(), image=images.PROGRAMS, command=["ring-look"]))
        self.assertEqual((phase, json.loads(log)), ("Succeeded", {"cuda": None, "nvml": None, "mapped": []}))


if __name__ == "__main__":
    main()
