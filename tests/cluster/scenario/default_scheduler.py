"""All of Carve on two nodes with the cluster's own kube-scheduler, configured to use it
(deploy/control/scheduler/default)."""
import collections
import concurrent.futures
import contextlib
import json
import re
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import install  # noqa: E402
from ring import bare_nodes, binder, control_plane, disaster, installed  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

BURST, PATIENCE = 150, 30   # concurrent pods, and the seconds within which all of them must be bound


class DefaultScheduler(install.Installation):
    """Mode (b): the cluster's own kube-scheduler, configured to use control."""
    own_scheduler = False

    def test_install_upgrade_uninstall(self):
        name = self.create(self.asking())["metadata"]["name"]
        self.wait_ready(name)
        found = self.kube.get("Pod", name)
        self.assertEqual(found["spec"]["schedulerName"], "default-scheduler")
        self.assertEqual(self.binders_of(name), {"system:serviceaccount:carve-system:carve-control"})
        other = self.create(pod(self.name()))["metadata"]["name"]       # kube-scheduler binds pods without cards itself
        self.wait_ready(other)
        self.assertEqual(self.binders_of(other), {"system:kube-scheduler"})
        self.leave_alone()
        self.counted_fractions()
        self.burst()
        if install.SOAK:
            self.upgrade([name])        # the steps of the other mode (scenario install), except the scheduler's
        self.uninstall()

    def leave_alone(self):
        """A pod with Carve's resource names in a namespace without admission: it has no slots, so control does not see
        it."""
        made = self.asking()
        made["metadata"]["namespace"] = "kube-system"
        made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        name = self.create(made)["metadata"]["name"]
        wait_for(f"{name} is bound", 30, lambda: self.kube.get("Pod", name, "kube-system")["spec"].get("nodeName"))
        self.assertEqual(wait_for("its Binding", 10, lambda: self.binders_of(name)), {"system:kube-scheduler"})
        self.assertNotIn(binder.RECORD, self.kube.get("Pod", name, "kube-system")["metadata"].get("annotations", {}))

    def counted_fractions(self):
        """Six fractions in HAMi's names and six native ones that also count cards, on a node with four cards. The kubelet
        subtracts nvidia.com/gpu and elasticgpu.io/gpu for each, so the node must show more than its cards."""
        hami = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
        native = {"elasticgpu.io/gpu": "1", "elasticgpu.io/gpu-memory": "3000", "elasticgpu.io/gpu-core": "10"}
        names = []
        for limits in [hami, native] * 6:
            made = self.asking(nodeSelector={"kubernetes.io/hostname": "n1"})
            made["metadata"]["annotations"] = {"nvidia.com/use-gputype": "H200,A100"}
            made["spec"]["containers"][0]["resources"] = {"limits": limits}
            names.append(self.create(made)["metadata"]["name"])
        for name in names:
            self.wait_ready(name)
            part, = json.loads(self.kube.get("Pod", name)["metadata"]["annotations"][binder.RECORD])["parts"]
            self.assertEqual([card["bytes"] for card in part["cards"]], [3000 << 20], part)
        for name in names:
            self.kube.delete("Pod", name, grace=0)

    def burst(self):
        """kube-scheduler finds many pods at one time, for nodes without a kubelet that have room for ten more: all are
        bound soon, and few are sent to room for which another Binding is on its way."""
        nodes = bare_nodes.make(self.kube, "n1", 4)
        wait_for("control knows them", 20, lambda: self.known_to_control() >= 4 + len(self.ring.nodes), every=0.2)
        refused, made = self.binds("refused"), [self.asking(nodeSelector={bare_nodes.LABEL: "true"}) for _ in range(BURST)]
        for one in made:
            one["spec"]["containers"][0]["resources"] = {"limits": {"elasticgpu.io/gpu-memory": "4096",
                                                                     "elasticgpu.io/gpu-core": "10"}}
        try:
            with disaster.stopped(self.ring.state.pid("scheduler")), concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(self.kube.create, made))
            begun = time.monotonic()
            with contextlib.suppress(AssertionError):
                wait_for("all are bound", PATIENCE, lambda: len(self.bound_there()) == BURST, every=0.25)
            seconds, there = time.monotonic() - begun, self.bound_there()
            refused = self.binds("refused") - refused
            print(f"\n{len(there)} of {BURST} pods were bound {seconds:.1f} s after kube-scheduler saw them; "
                  f"{refused:.0f} bind calls were refused, their pods tried again", flush=True)
            self.assertEqual(len(there), BURST)
            self.assertLessEqual(refused, BURST / 5)
            held = collections.Counter()
            for one in there:
                for part in json.loads(one["metadata"]["annotations"][binder.RECORD])["parts"]:
                    for card in part["cards"]:
                        held[card["uuid"]] += card["compute"]
            self.assert_no_findings([f"{card}: {share} of 100 are given" for card,
                                                 share in held.items() if share > 100])
            self.assertEqual((sum(held.values()), max(held.values())), (BURST * 10, 100))
        finally:
            for one in made:
                self.kube.delete("Pod", one["metadata"]["name"], grace=0)
            wait_for("they are gone", 30, lambda: not self.bound_there(), every=0.5)
            bare_nodes.remove(self.kube, nodes)

    def bound_there(self) -> list:
        return [one for one in self.kube.list("Pod") if bare_nodes.LABEL in one["spec"].get("nodeSelector", {})
                and one["spec"].get("nodeName")]

    def metrics(self) -> list:
        """The metrics of each replica of control."""
        return [self.kube.request("GET", f"/api/v1/namespaces/{install.SPACE}/pods/{one['metadata']['name']}:8080/proxy/metrics",
                                  raw=True) for one in self.kube.list("Pod", install.SPACE)
                if one["metadata"]["name"].startswith("carve-control")]

    def binds(self, outcome) -> float:
        found = [re.search(rf'(?m)^carve_control_bindings_total{{outcome="{outcome}"}} (\S+)$', text)
                 for text in self.metrics()]
        self.assertTrue(found and all(found))
        return sum(float(one.group(1)) for one in found)

    def known_to_control(self) -> int:
        """The number of nodes with cards, as the replica reports that knows fewest."""
        return min(int(float(re.search(r"(?m)^carve_nodes (\S+)$", text).group(1))) for text in self.metrics())

    def binders_of(self, name):
        """The users of the accepted Bindings of that pod, from the API server's audit log."""
        found = set()
        log = self.ring.state.log("apiserver").parent / control_plane.AUDIT_LOG
        for line in log.read_text().splitlines():
            event = json.loads(line)
            what = event.get("objectRef") or {}
            if (what.get("resource"), what.get("name"), what.get("subresource")) == ("pods", name, "binding") \
                    and event.get("responseStatus", {}).get("code") == 201:
                found.add(event["user"]["username"])
        return found

    def remove(self):
        installed.restore_default_scheduler(self.ring)
        super().remove()


@unittest.skipUnless(install.SOAK, "needs CARVE_SOAK=1")
class DefaultSchedulerByChart(DefaultScheduler):
    """The same, installed by the chart (scheduler.mode=default)."""
    chart = True


if __name__ == "__main__":
    main()
