"""The device plugin's matrix: every kind of pod × every state of its record, concurrently on the real kubelet.

A cell passes with the right slice (seen from inside, by the checker) or the right refusal: a Warning that names the
cause, and no container that ever ran. The table of all cells is printed.
"""
import json
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ring import binder  # noqa: E402
from ring.slot_testing import SlotTest, container, slot_pod  # noqa: E402
from ring.testing import main, wait_for  # noqa: E402

LOOK = ["sh", "-c", "ring-look"]
FAILS = ["sh", "-c", "ring-look; sleep 1; exit 1"]
OTHER = "00000000-0000-4000-8000-000000000001"
LATE = 15           # seconds
TOO_MUCH = 500      # GiB; no card has as much

KINDS = ("plain", "init", "two init", "sidecar", "several containers", "container restart", "crash loop", "pod restart",
         "static pod", "pod with nodeName", "deleted while starting", "same name again")
STATES = ("early", "15 s late", "never", "another UID", "over the card")


def spec_of(kind, name):
    """Returns (pod, its parts as in the record: (name, is init))."""
    if kind in ("init", "two init"):
        first = [container("first", LOOK)] + ([container("second", LOOK)] if kind == "two init" else [])
        return slot_pod(name, init=first), [(c["name"], True) for c in first] + [("main", False)]
    if kind == "sidecar":
        return slot_pod(name, init=[container("side", restartPolicy="Always")]), [("side", False), ("main", False)]
    if kind == "several containers":
        return slot_pod(name, [container("main"), container("two"), container("three")]), [
            ("main", False), ("two", False), ("three", False)]
    if kind in ("container restart", "crash loop"):
        return slot_pod(name, [container("main", FAILS)], restartPolicy="Always"), [("main", False)]
    return slot_pod(name, **({"nodeName": "n1"} if kind == "pod with nodeName" else {}),
                    restartPolicy="Always" if kind == "pod restart" else "Never"), [("main", False)]


class Matrix(SlotTest):
    def test_every_kind_of_pod_with_every_state_of_its_record(self):
        cells = [(kind, state) for state in reversed(STATES) for kind in KINDS]
        with ThreadPoolExecutor(24) as pool:
            outcomes = dict(zip(cells, pool.map(lambda cell: self.judged(*cell), cells)))
        width = max(len(kind) for kind in KINDS) + 1
        print("\n" + "".ljust(width) + "".join(state.ljust(16) for state in STATES))
        for kind in KINDS:
            print(kind.ljust(width) + "".join(outcomes[kind, state].split("\n")[0][:15].ljust(16) for state in STATES))
        wrong = [f"{kind} × {state}: {text}" for (kind, state), text in outcomes.items() if text not in ("slice", "refused", "freed")]
        self.assertEqual(wrong, [], "\n".join(wrong))
        self.assertEqual(self.refused_at_admission(), [])

    def judged(self, kind, state):
        try:
            return self.cell(kind, state)
        except Exception as error:      # a failed cell must not hide the others
            return f"FAILED {error}\n{traceback.format_exc()}"

    # --- one cell ----------------------------------------------------------------------------------------------------

    def cell(self, kind, state):
        name = self.name("-".join((kind + "-" + state).lower().replace(" ", "-").split("-")[:3]))
        card = (KINDS.index(kind) * 3 + STATES.index(state)) % len(self.cards)
        pod, parts = spec_of(kind, name)
        other = OTHER
        if kind == "same name again":
            old = self.start(slot_pod(name), {"main": [((card + 1) % len(self.cards), 1, 1)]})
            self.wait_ready(name, 120)
            self.kube.delete("Pod", name, grace=0)
            wait_for("the old one is gone", 60, lambda: self.kube.get("Pod", name) is None, 0.5)
            other = old["metadata"]["uid"]
        made = self.make(kind, pod, name)
        name = made["metadata"]["name"]
        size = TOO_MUCH if state == "over the card" else 1
        record = self.record(made, {part: [(card, size, 1)] for part, _ in parts},
                             tuple(part for part, init in parts if init), uid=other if state == "another UID" else None)
        if kind in ("static pod", "pod with nodeName"):     # they have a node: a patch writes the record
            self.after(state, lambda: binder.write_later(self.kube, made, record))
        elif state in ("15 s late", "never"):
            binder.bind(self.kube, made, "n1", None)
            self.after(state, lambda: binder.write_later(self.kube, made, record))
        else:
            binder.bind(self.kube, made, "n1", record)
        if kind == "deleted while starting":
            return self.deleted(made)
        if state in ("early", "15 s late"):
            return self.runs_right(kind, name, [part for part, _ in parts], card)
        return self.refused(made, {"never": "has no record", "another UID": other, "over the card": self.cards[card]}[state])

    def make(self, kind, pod, name):
        if kind != "static pod":
            return self.create(pod)
        del pod["spec"]["schedulerName"]
        path = self.node.folder / "manifests" / f"{name}.json"
        path.write_text(json.dumps(pod))
        self.addCleanup(lambda: wait_for("static pod gone", 90, lambda: self.kube.get("Pod", name + "-n1") is None))
        self.addCleanup(path.unlink)
        return wait_for("the mirror pod", 90, lambda: self.kube.get("Pod", name + "-n1"), 0.5)

    @staticmethod
    def after(state, write):
        if state == "never":
            return
        if state == "15 s late":
            time.sleep(LATE)
        write()

    def runs_right(self, kind, name, parts, card):
        if kind in ("container restart", "crash loop"):
            wanted = 1 if kind == "container restart" else 3
            wait_for(f"{wanted} restarts", 180, lambda: self.restarts_of(name) >= wanted, 0.5)
            seen = wait_for("the look of the previous container", 60, lambda: self.look_before(name), 1)
        else:
            self.wait_ready(name, 180)
            if kind == "pod restart":
                self.kill_sandbox(name)
            wrong = self.wrong(name) if kind != "static pod" else []
            if wrong:
                return f"FAILED {wrong}"
            seen = self.look(name)
        for part in parts[:-1] if len(parts) > 1 else []:
            other = self.look(name, part)["cuda"]["cards"]
            if other != [{"uuid": self.cards[card], "memory": 1 << 30}]:
                return f"FAILED {part} sees {other}"
        found = seen["cuda"]["cards"]
        return "slice" if found == [{"uuid": self.cards[card], "memory": 1 << 30}] else f"FAILED sees {found}"

    def refused(self, made, cause):
        name = made["metadata"]["name"]
        wait_for(f"a warning that names {cause}", 180, lambda: [w for w in self.warnings(made) if cause in w], 1)
        status = self.kube.get("Pod", name)["status"]
        for one in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
            if "running" in one["state"] or "terminated" in one["state"] or one["restartCount"]:
                return f"FAILED {one['name']} ran: {one['state']}"
        return "refused" if status["phase"] == "Pending" else f"FAILED its phase is {status['phase']}"

    def deleted(self, made):
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        self.kube.delete("Pod", name, grace=0)
        wait_for("gone", 60, lambda: self.kube.get("Pod", name) is None, 0.5)
        wait_for("no slice is left of it", 60, lambda: not any(
            name in one.get("name", "") or uid in json.dumps(one) for one in self.carve.inspect()["slices"]), 1)
        return "freed"


if __name__ == "__main__":
    main()
