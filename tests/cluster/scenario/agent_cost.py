"""What the agent costs on a node with both doors open: memory, idle CPU, and what a container's start pays for it.

Memory and CPU are judged by design 10's budgets; the start's cost is printed (it is a difference of medians on a machine
that does other things too).
"""
import os
import re
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import images, moments  # noqa: E402
from ring.slot_testing import SlotTest, slot_pod  # noqa: E402
from ring.testing import main, pod, wait_for  # noqa: E402

ROUNDS = 15
IDLE = 30               # seconds
MEMORY = 30 << 10       # KiB resident
CPU = 1.0               # per cent of a core
HOLD = ["ring-look", "hold", "3600"]


def resident_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class AgentCost(SlotTest):
    doors = "dra,slots"

    def idle(self, what):
        """Per cent of a core, and KiB, of the agent and of its worker."""
        agent = self.node.pid("agent")
        children = [int(p) for p in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]
        before = {pid: cpu_seconds(pid) for pid in (agent, *children)}
        time.sleep(IDLE)
        per_cent = {pid: 100 * (cpu_seconds(pid) - before[pid]) / IDLE for pid in before}
        print(f"\n{what}: agent {resident_kib(agent) / 1024:.1f} MiB, {per_cent[agent]:.2f} % of a core; its worker " + ", ".join(
            f"{resident_kib(pid) / 1024:.1f} MiB, {per_cent[pid]:.2f} %" for pid in children), end=" ", flush=True)
        return resident_kib(agent), per_cent[agent]

    def test_resident_memory_and_idle_cpu(self):
        time.sleep(5)
        empty = self.idle("no pod")
        for i in range(10):
            self.wait_ready(self.start(slot_pod(self.name()), {"main": [(i, 4, 5)]})["metadata"]["name"])
        time.sleep(5)
        full = self.idle("10 pods that hold a slice and compute nothing")
        self.assertLess(max(empty[0], full[0]), MEMORY)
        self.assertLess(empty[1], CPU)

    # --- a container's start -----------------------------------------------------------------------------------------

    def seen_at(self, name):
        """When the kubelet heard of the pod, by its log."""
        for line in self.node.state.log("n1-kubelet").read_text(errors="replace").splitlines():
            if "SyncLoop ADD" in line and f"default/{name}\"" in line:
                return datetime.strptime(f"{datetime.now().year}{line[1:21]}", "%Y%m%d %H:%M:%S.%f").timestamp()
        raise AssertionError(f"the kubelet's log does not know {name}")

    def started_at(self, name):
        """When the runtime had started its container, by its log."""
        id_ = self.kube.get("Pod", name)["status"]["containerStatuses"][0]["containerID"].rsplit("/", 1)[1]
        return moments.started(self.node, id_)

    def test_a_containers_start(self):
        template = self.template(memory="4Gi", cores="1")
        kinds = {
            "no GPU": lambda: self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, nodeName="n1")),
            "DRA": lambda: self.create(pod(self.name(), image=images.PROGRAMS, command=HOLD, node="n1", claims={"gpu": template})),
            "slots": lambda: self.start(slot_pod(self.name()), {"main": [(1, 4, 1)]})}
        seconds = {kind: [] for kind in kinds}
        for _ in range(ROUNDS):
            for kind, make in kinds.items():
                name = make()["metadata"]["name"]
                wait_for("running", 60, lambda n=name: self.phase(n) == "Running", 0.2)
                seconds[kind].append(self.started_at(name) - self.seen_at(name))
                self.kube.delete("Pod", name, grace=0)
        bare = statistics.median(seconds["no GPU"])
        print(f"\nfrom the kubelet's word to a started container, medians of {ROUNDS}: no GPU {bare * 1000:.0f} ms", end="")
        for kind in ("DRA", "slots"):
            print(f"; {kind} {(statistics.median(seconds[kind]) - bare) * 1000:+.0f} ms", end=" ", flush=True)


if __name__ == "__main__":
    main()
