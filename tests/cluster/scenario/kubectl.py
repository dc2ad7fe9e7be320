"""A cluster as an administrator sees it: `kubectl carve …` and `kubectl inspect gpushare …`, by links of those names in
PATH, as kubectl finds its plug-ins, compared with `carve … --cluster`. Only objects are needed: no control and no agent
runs.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
from ring import bare_nodes  # noqa: E402
from ring.binder import SLOT  # noqa: E402
from ring.carve import NAMESPACE  # noqa: E402
from ring.testing import RingTest, main, pod, wait_for  # noqa: E402

CRDS = HERE.parent.parent / "deploy" / "crds"
# more than any card of this node has
ASKED = {"elasticgpu.io/gpu-memory": "20480", "elasticgpu.io/gpu-core": "30", SLOT: "1"}


def holder(name, gib):
    return {"owner": {"kind": "pod", "uid": f"uid-{name}", "namespace": "ml", "name": name}, "part": "main",
            "memory": gib << 30, "cores": 30, "whole": False, "shareClass": "burst", "priorityClass": "standard",
            "pods": [f"ml/{name}"]}


class Kubectl(RingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ring.kubectl("apply", "-f", CRDS)
        if cls.kube.get("Namespace", NAMESPACE) is None:    # else the program reports that Carve is elsewhere
            cls.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            cls.addClassCleanup(wait_for, "the namespace gone", 60, lambda: cls.kube.get("Namespace", NAMESPACE) is None)
            cls.addClassCleanup(cls.kube.delete, "Namespace", NAMESPACE)
        folder = tempfile.TemporaryDirectory(prefix="carve-kubectl-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        for link in ("kubectl-carve", "kubectl-inspect-gpushare"):
            (cls.folder / link).symlink_to(cls.ring.build / "bin" / "carve")
        (cls.folder / "kubectl").symlink_to(cls.ring.binaries["kubectl"])
        cls.environment = {**os.environ, "KUBECONFIG": str(cls.ring.kubeconfig),
                           "PATH": f"{cls.folder}:{os.environ['PATH']}"}

    def setUp(self):
        super().setUp()
        self.node = self.name("node")
        bare_nodes.with_card(self.create, self.kube, self.node, [holder("a", 3), holder("b", 6)])
        made = pod(self.name(), schedulerName="nobody")
        made["spec"]["containers"][0]["resources"] = {"limits": ASKED}
        self.waiting = self.create(made)["metadata"]["name"]

    def output(self, program, *words):
        """(exit code, standard output, standard error)."""
        done = subprocess.run([program, *words], text=True, capture_output=True, check=False, env=self.environment)
        return done.returncode, done.stdout, done.stderr

    def carve(self, *words):
        return self.output(self.ring.build / "bin" / "carve", *words)

    def yaml(self, text):
        """Parses YAML with another program."""
        file = self.folder / "output.yaml"
        file.write_text(text)
        one, = json.loads(subprocess.run([self.ring.binaries["ring-helm"], "objects", file], text=True,
                                         capture_output=True, check=True).stdout)
        return one

    def test_inspect_is_the_same_as_a_kubectl_plug_in(self):
        for words in ((), ("-o", "wide"), ("-o", "json"), ("-o", "yaml"), (self.node,), (self.node, "-o", "json")):
            mine = self.output("kubectl", "carve", "inspect", *words)
            self.assertEqual(mine, self.carve("inspect", "--cluster", *words), words)
            self.assertEqual((mine[0], mine[2]), (0, ""), words)
            self.assertIn(self.node, mine[1])
        wide = self.output("kubectl", "carve", "inspect", "-o", "wide")[1].splitlines()
        self.assertEqual(wide[0].split()[:4], ["NODE", "CARD", "MODEL", "STATE"])
        self.assertEqual([line.split()[-6:] for line in wide if line.startswith(self.node + " ")], [
            ["3", "GiB", "30", "burst", "standard", "native"], ["6", "GiB", "30", "burst", "standard", "native"]])
        self.assertTrue(any(line.startswith(f"waiting: default/{self.waiting} ") for line in wide))
        view = json.loads(self.output("kubectl", "carve", "inspect", self.node, "-o", "json")[1])
        self.assertEqual(self.yaml(self.output("kubectl", "carve", "inspect", self.node, "-o", "yaml")[1]), view)
        card, = view["nodes"][0]["cards"]
        self.assertEqual(card["memory_bytes"], {"total": 16 << 30, "granted": 9 << 30, "free": 7 << 30})
        self.assertEqual([one["name"] for one in card["holders"]], ["ml/a", "ml/b"])

    def test_a_wrong_namespace_is_reported(self):
        code, out, complaint = self.output("kubectl", "carve", "inspect", "--carve-namespace", "nowhere")
        self.assertEqual((code, out), self.output("kubectl", "carve", "inspect")[:2])
        self.assertIn("namespace nowhere does not exist; set --carve-namespace to Carve's namespace", complaint)
        code, _, complaint = self.output("kubectl", "carve", "top", "--once", "--carve-namespace", "nowhere")
        self.assertEqual(code, 1)
        self.assertIn("no agent runs in namespace nowhere", complaint)

    def test_explain_is_the_same_as_a_kubectl_plug_in(self):
        for words in ((self.waiting,), ("-n", "default", self.waiting), (f"default/{self.waiting}", "-o", "json"),
                      (self.waiting, "-o", "yaml")):
            mine = self.output("kubectl", "carve", "explain", *words)
            self.assertEqual(mine, self.carve("explain", *words), words)
            self.assertEqual((mine[0], mine[2]), (0, ""), words)
        self.assertIn(f"pod default/{self.waiting} waits", self.output("kubectl", "carve", "explain", self.waiting)[1])
        view = json.loads(self.output("kubectl", "carve", "explain", self.waiting, "-o", "json")[1])
        self.assertEqual(self.yaml(self.output("kubectl", "carve", "explain", self.waiting, "-o", "yaml")[1]), view)

    def test_top_and_doctor_default_to_the_cluster_as_kubectl_plug_ins(self):
        """There is no agent, and everything is reported missing: with the same text and exit code."""
        for mine, whole in ((("top", "--once"), ("top", "--cluster", "--once")),
                            (("doctor", "-o", "json"), ("doctor", "--cluster", "-o", "json")),
                            (("doctor", "-o", "yaml"), ("doctor", "--cluster", "-o", "yaml"))):
            result = self.output("kubectl", "carve", *mine)
            self.assertEqual(result, self.carve(*whole))
            self.assertEqual(result[0], 1)
        # the parser accepts only objects
        listed = "findings:\n" + self.carve("doctor", "--cluster", "-o", "yaml")[1]
        self.assertEqual(self.yaml(listed), {"findings": json.loads(self.carve("doctor", "--cluster", "-o", "json")[1])})

    def test_inspect_gpushare_prints_what_gpushares_plug_in_printed(self):
        rule = len(f"{self.node} 192.0.2.7 9/16 9/16 ") + 20
        self.assertEqual(self.output("kubectl", "inspect", "gpushare", self.node), (0, "\n".join((
            f"{'NAME':{len(self.node)}}  IPADDRESS  GPU0(Allocated/Total)  GPU Memory(GiB)",
            f"{self.node}  192.0.2.7  9/16                   9/16", "-" * rule,
            "Allocated/Total GPU Memory In Cluster:", "9/16 (56%)  ", "")), ""))
        details = self.output("kubectl", "inspect", "gpushare", "-d", self.node)
        self.assertEqual(details, self.carve("inspect", "--cluster", "-o", "gpushare", "--details", self.node))
        self.assertIn("\na            ml         3                \nb            ml         6                \n", details[1])
        self.assertIn(f"\n{self.node} ", self.output("kubectl", "inspect", "gpushare")[1], "without a name: every node")


if __name__ == "__main__":
    main()
