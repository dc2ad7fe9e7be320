"""docs/kubernetes.md as a reader follows it: every command of the page in its order, run by `sh` in a copy of deploy/,
with the API server of the ring, and each output that the page shows compared with what the command printed.

The kubelets run with Kubernetes' default timing (syncFrequency 1 m, nodeStatusUpdateFrequency 10 s,
nodeStatusReportFrequency 5 m), which the ring shortens for other scenarios. The test reads it back from the kubelets.
Not default on this ring: --node-monitor-grace-period of the controller manager (20 s, for nodes that are removed), and
etcd runs without fsync.
Needs a ring of two nodes with a100x4, as the page says.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE / "checker"))
import check  # noqa: E402
from ring import carve, images, installed, page, paths, traces  # noqa: E402
from ring.node import DEFAULT_TIMING  # noqa: E402
from ring.testing import RingTest, main, wait_for  # noqa: E402

TEXT = (paths.REPOSITORY / "docs/kubernetes.md").read_text(encoding="utf-8")
NEXT_IMAGE = "elasticgpu.io/carve:0.2.0"        # the page's next release: here the same build under that name
AGAIN = 150     # seconds for which a reader repeats a command that only reads: kubelets deliver a ConfigMap within 90
PODS_END = 60   # seconds: the grace period of the page's pods is 30, and their `sleep` ignores SIGTERM

# What a reader replaces: the page's text, the ring's, why.
SUBSTITUTED = (
    ("your/cuda-image:tag", images.PROGRAMS, "the reader's image. The ring's contains the programs of sim/samples"),
    ("driver-root = /opt/nvidia", installed.SETTINGS,
     "where the driver is: on the ring the simulated one, with the folder of its socket (driver-mount)"),
    ("registry.k8s.io/kube-scheduler:v1.36.3", installed.SCHEDULER_IMAGE,
     "the control plane's own scheduler. The ring's is the same program, imported from a file"),
)

# Commands of the page (page.Step.key) that are not run, with the reason. Every other command is.
NOT_RUN = {
    "cmake --preset release && ninja -C build/release carve carve-cuda carve-nvml":
        "takes minutes; build/release is the ring's build here",
    "sed -i 's|elasticgpu.io/carve:0.1.0|registry.example/carve:0.1.0|' "
    "$(grep -rl 'image: elasticgpu.io/carve:' deploy)":
        "in place of the import, and needs a registry; tests/tools/docs_commands_test.py runs it",
    "kubectl exec fraction -- nvidia-smi --query-gpu=memory.total --format=csv":
        "needs NVIDIA's driver; the page says that it was not tried",
    "kubectl exec fraction -- python -c 'import torch; print(torch.cuda.mem_get_info())'":
        "needs PyTorch and a real card; the page says that it was not tried",
    "kubectl -n kube-system get pod -l component=kube-scheduler -o jsonpath='{.items[0].spec.containers[0].image}'":
        "the ring's control plane does not run in pods",
    "helm install carve deploy/chart --set scheduler.image=registry.k8s.io/kube-scheduler:v1.36.3":
        "in place of the manifests; scenario/install.py runs it (ByHelm)",
    "tests/cluster/build": "builds the ring that this test runs on",
    "tests/cluster/up --nodes 1 --simulate h200x2 --build build/dev": "starts such a ring",
    "python3 tests/cluster/scenario/dra_fraction.py": "is a scenario of its own",
    "tests/cluster/down": "ends the ring",
}

# What differs from run to run: pattern, placeholder, why.
VOLATILE = (
    (r"\bcarve-(agent|arbiter)-[a-z0-9]{5}\b", r"carve-\1-XXXXX", "a generated name"),
    (r"\b(carve-doctor|fraction-gpu)-[a-z0-9]{5}\b", r"\1-XXXXX", "a generated name"),
    (r"\bs-[0-9a-f]{6}-0\b", "SLICE", "the slice's name, from the claim's UID"),
    (r"\bGPU-[0-9a-f-]+", "GPU-UUID", "a card's UUID is the node's own, and kube-scheduler chooses the node"),
    (r"^n[12] ", "NODE ", "the node that kube-scheduler chose"),
    (r"default/by-name, default/fraction$", "default/fraction, default/by-name", "the order of a card's slices"),
    (r"^ +default/(fraction/gpu|by-name/main) ", "default/POD ", "the order of a card's slices"),
    (r"\b\d+m?\d*s$", "AGE", "an age"),
    (r"\bcarve 0\.1\.0 [0-9a-f]{12}\b", "carve 0.1.0 COMMIT", "the build's commit"),
    (r"\b\d+\.\d MiB$", "SIZE", "the image's size, which depends on the build type"),
    (r'"pid":\d+', '"pid":PID', "a process ID"),
)

# These read; a reader repeats them until what the page shows has happened.
READS = re.compile(r"kubectl (-n \S+ )?(get|exec|logs) |carve ")


def substituted(text: str) -> str:
    for old, new, _ in SUBSTITUTED:
        text = text.replace(old, new)
    return text


# What comes before a fragment of the page, by its first line; its indentation; what the API server keeps of it.
FRAGMENTS = {
    "spec:": ("", "  ", lambda devices: devices["config"][0]["opaque"]["parameters"] == {
        "apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "burst", "coreLimit": 60,
        "priorityClass": "online"}),
    "exactly:": ("  spec:\n    devices:\n      requests:\n      - name: gpu\n", "        ", lambda devices: [
        one["key"] for one in devices["requests"][0]["exactly"]["tolerations"]] == ["gpu.elasticgpu.io/used-by-slots"])}


class Page(RingTest):
    def setUp(self):
        super().setUp()
        self.assertEqual(len(self.ring.nodes), 2)
        self.before = traces.Before(self.ring)
        folder = tempfile.TemporaryDirectory(prefix="carve-page-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shutil.copytree(installed.DEPLOY, self.folder / "deploy")
        (self.folder / "build").mkdir()
        (self.folder / "build/release").symlink_to(self.ring.build)
        self.stand_ins()
        self.environment = {**os.environ, "KUBECONFIG": str(self.ring.kubeconfig),
                            "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        installed.scheduler_image(self.ring)
        installed.make_image(self.ring.build, self.folder / "next.tar", NEXT_IMAGE)
        for node in self.ring.nodes:
            node.import_images([self.folder / "next.tar"])
        self.addCleanup(self.take_away)
        for node in self.ring.nodes:
            self.addCleanup(node.restart_kubelet, default_timing=False)
            node.restart_kubelet(default_timing=True)
        for node in self.ring.nodes:
            path = f"/api/v1/nodes/{node.name}/proxy/configz"
            used = wait_for("the kubelet's settings", 60, lambda p=path: self.answer(p), every=0.5)["kubeletconfig"]
            self.assertEqual({key: used[key] for key in DEFAULT_TIMING}, DEFAULT_TIMING)

    def answer(self, path):
        """The answer, or None while the kubelet does not serve yet."""
        try:
            return self.kube.request("GET", path)
        except Exception:           # refused, or 502 and 503 of the API server's proxy
            return None

    def stand_ins(self):
        """kubectl of the ring; `sudo`, because the test is root; `ctr` on every node, as the page asks."""
        folder = self.folder / "bin"
        folder.mkdir()
        (folder / "kubectl").symlink_to(self.ring.binaries["kubectl"])
        holders = " ".join(str(node.pid("namespace")) for node in self.ring.nodes)
        for name, script in (("sudo", 'exec "$@"'), ("ctr", f'for node in {holders}; do nsenter --target=$node --mount '
                                                     f'--wd="$PWD" {self.ring.binaries["ctr"]} "$@" || exit 1; done')):
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)

    def take_away(self):
        """After a failed test: what the page's last commands remove."""
        for name in ("fraction", "by-name", "six"):
            self.kube.delete("Pod", name, grace=1)
        wait_for("the pods are gone", 90, lambda: not self.kube.list("Pod"), every=0.5)
        self.kube.delete("ResourceClaimTemplate", "fraction")
        installed.uninstall_control(self.ring)

    def tearDown(self):
        outcome = self._outcome.result
        if outcome.failures or outcome.errors:
            one = installed.Installed(self.ring, self.ring.node(1))
            print("\n".join(one.describe_all(name) for name in ("carve-agent", "carve-control", "carve-scheduler",
                                                                "carve-down")), flush=True)
            print(self.ring.kubectl("describe", "pods").stdout[-6000:], flush=True)

    # --- the page ----------------------------------------------------------------------------------------------------

    def test_the_page_leads_a_reader_through(self):
        for step in page.steps(TEXT):
            if step.fragment:
                self.try_fragment(step)
            elif step.key not in NOT_RUN:
                self.play(step)

    def sh(self, text):
        return subprocess.run(["sh", "-ec", text], cwd=self.folder, env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=400)

    def play(self, step):
        text, begun = substituted(step.text), time.monotonic()
        if before := BEFORE.get(step.key):
            before(self)
        while True:
            done = self.sh(text)
            said = f"docs/kubernetes.md:{step.line}: $ {text}\n{done.stdout}{done.stderr}"
            wrong = f"exit code {done.returncode}" if done.returncode else page.difference(step.shown, done.stdout,
                                                                                           VOLATILE)
            if not wrong or not READS.match(text) or time.monotonic() > begun + AGAIN:
                break
            time.sleep(1)
        seconds = time.monotonic() - begun
        print(f"  [{seconds:5.1f} s] {said if CHATTY or wrong else step.key}", flush=True)
        self.assertIsNone(wrong, said)
        if variable := re.match(r"(?:export )?([A-Z]+)=", text):        # a terminal keeps it
            self.environment[variable[1]] = self.sh(f'{text}\nprintf %s "${variable[1]}"').stdout
        if after := AFTER.get(step.key):
            after(self, seconds)

    def try_fragment(self, step):
        """The page's fragment is the spec of a claim, or one request of it: the API server accepts it and keeps all of
        it."""
        before, indent, keeps = FRAGMENTS[step.key]
        template = ("apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: tried}\nspec:\n" + before
                    + "".join(f"{indent}{line}\n" for line in step.text.splitlines()))
        done = self.ring.kubectl("create", "--dry-run=server", "--validate=strict", "-o", "json", "-f", "-",
                                 input=template, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(keeps(json.loads(done.stdout)["spec"]["spec"]["devices"]), True)

    # --- what the page promises besides its outputs ------------------------------------------------------------------

    def by_name_has_its_fraction(self, _):
        """The independent checker: what the container sees equals its record."""
        made, looked = self.kube.get("Pod", "by-name"), self.sh("kubectl exec by-name -- ring-look").stdout
        physical = {card["uuid"]: card["total_bytes"] for node in self.ring.nodes
                    for card in carve.Carve(self.ring, node).truth("cards")["cards"]}
        self.assert_no_findings(check.check([made], [], [], {("default", "by-name", "main"): json.loads(looked)},
                                            by="records", physical=physical))

    def containers(self):
        """The page's pods with cards: container and number of restarts."""
        return {name: [(one["containerID"], one["restartCount"]) for one in
                       self.kube.get("Pod", name)["status"]["containerStatuses"]] for name in ("fraction", "by-name")}

    def remember_containers(self):
        self.ran = self.containers()

    def release_is_replaced(self, _):
        """Both agents and one arbiter run the new image, and the containers with slices have not noticed."""
        def running():
            return sorted(pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in self.kube.list(
                              "Pod", carve.NAMESPACE) if "deletionTimestamp" not in pod["metadata"]
                          and pod["spec"]["containers"][0]["image"] == NEXT_IMAGE
                          and all(one["ready"] for one in pod["status"].get("containerStatuses", [{"ready": False}])))
        wait_for("the new release runs", 60, lambda: running() == ["agent", "agent", "arbiter"], every=0.5)
        self.assertEqual(self.containers(), self.ran)
        for name in self.ran:
            self.assert_limited(name)

    def pods_have_ended(self, seconds):
        """Pods of claims and of slots alike: none stays Terminating."""
        self.assertEqual([pod["metadata"]["name"] for pod in self.kube.list("Pod")], [])
        self.assertLess(seconds, PODS_END)

    def nothing_is_left(self, _):
        wait_for("the namespace is gone", 60, lambda: self.kube.get("Namespace", carve.NAMESPACE) is None, every=0.5)
        try:
            wait_for("nothing is left", 30, lambda: not self.before.left(), every=1)
        except AssertionError:
            self.assertEqual(self.before.left(), [])


BEFORE = {"kubectl apply -f deploy/crds -f deploy/agent-rbac.yaml -f deploy/agent-policy.yaml": Page.remember_containers}
AFTER = {
    "kubectl wait --for=condition=Ready pod/by-name --timeout=5m": Page.by_name_has_its_fraction,
    "kubectl -n carve-system delete pod -l app.kubernetes.io/component=arbiter --field-selector spec.nodeName=$NODE":
        Page.release_is_replaced,
    "kubectl delete pod fraction by-name six": Page.pods_have_ended,
    "kubectl delete --ignore-not-found -f deploy/control/scheduler -f deploy/control -f deploy -f deploy/crds":
        Page.nothing_is_left,
}
CHATTY = bool(os.environ.get("CARVE_PAGE_OUTPUT"))       # prints what each command printed, to update the page


if __name__ == "__main__":
    main()
