"""Containers of several dialects on one card, all busy: each gets the compute that its dialect promises, and the policy of
the Node changes the parts of running pods."""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import control  # noqa: E402
from ring.testing import Shares, main, wait_for  # noqa: E402

BUSY = ["carve-sample-spin", "--seconds", "120", "--memory", "1Gi", "--kernel-us", "1000"]
POLICY, OF_QGPU = "elasticgpu.io/share-policy", "tke.cloud.tencent.com/qgpu-schedule-policy"


def setUpModule():
    control.setUpModule()


class DialectShares(Shares, control.ControlTest):
    def busy_on_one_card(self, *limits, annotations=None):
        """Pods on n1, each placed when the one before is Ready, so that they meet on one card."""
        names = []
        for one in limits:
            made = control.asking(self.name(), one, BUSY, nodeSelector={"kubernetes.io/hostname": "n1"})
            made["metadata"].setdefault("annotations", {}).update(annotations or {})
            names.append(self.create(made)["metadata"]["name"])
            self.wait_ready(names[-1])
        self.assertEqual(len({card for name in names for card, _, _ in self.cards_of(name)["main"]}), 1)
        return names

    def test_three_dialects_hold_their_shares_against_each_other(self):
        names = self.busy_on_one_card({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 25},
                                      {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 8},
                                      {"elasticgpu.io/gpu-memory": 2048, "elasticgpu.io/gpu-core": 45})
        self.assert_shares_kept(dict(zip(names, (25, 30, 45))))

    def test_a_core_limit_holds_on_an_idle_card_and_beside_a_neighbour(self):
        vcuda = {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 8}
        capped, = self.busy_on_one_card(vcuda, annotations={"tencent.com/vcuda-core-limit": "60"})
        self.assert_shares_kept({capped: 60})
        neighbour = self.create(control.asking(self.name(), {"elasticgpu.io/gpu-memory": 2048, "elasticgpu.io/gpu-core": 20}, BUSY,
                                               nodeSelector={"kubernetes.io/hostname": "n1"}))["metadata"]["name"]
        self.wait_ready(neighbour)
        self.assert_shares_kept({capped: 60, neighbour: 40})

    def set_policy(self, label, word):
        """Labels the node, and waits until the agent has written down that it follows."""
        at = len(self.policies_followed())
        self.ring.kubectl("label", "--overwrite", "node", "n1", f"{label}={word}" if word else f"{label}-")
        wait_for("the agent follows", 10, lambda: len(self.policies_followed()) > at, every=0.1)

    def policies_followed(self):
        pod, = self.carve.pods_of("carve-agent")
        return [line for line in self.kube.logs(pod["metadata"]["name"], namespace="carve-system").splitlines()
                if '"share policies"' in line]

    def test_the_nodes_policy_changes_running_pods(self):
        """cGPU's and qGPU's matrix for 30 and 60 hundredths, on running pods that lose no process."""
        for label in (POLICY, OF_QGPU):
            self.addCleanup(self.ring.kubectl, "label", "node", "n1", f"{label}-")
        of_qgpu = "tke.cloud.tencent.com/qgpu-"
        names = self.busy_on_one_card({of_qgpu + "core": 30, of_qgpu + "memory": 4}, {of_qgpu + "core": 60, of_qgpu + "memory": 4})
        before = [self.process_in(name, "main") for name in names]
        self.assert_shares_kept(dict(zip(names, (50, 50))))             # best-effort, the cluster's setting
        for label, word, shares in ((OF_QGPU, "fs", (30, 60)), (POLICY, "burst", (33, 67)), (POLICY, "even-4", (25, 25))):
            self.set_policy(label, word)
            self.assert_shares_kept(dict(zip(names, shares)))
        self.set_policy(POLICY, None)
        self.assert_shares_kept(dict(zip(names, (30, 60))))             # qGPU's label again
        self.assertEqual([self.process_in(name, "main") for name in names], before)
        # An illegal value changes nothing, and an event says what is legal.
        self.ring.kubectl("label", "--overwrite", "node", "n1", f"{POLICY}=fair")
        wait_for("an event", 20, lambda: any(event["reason"] == "SharePolicyRefused" and '"fair" is not a policy' in
                                             event["message"] for event in self.kube.list("Event")))
        self.assert_shares_kept(dict(zip(names, (30, 60))))


if __name__ == "__main__":
    main()
