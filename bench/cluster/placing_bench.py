#!/usr/bin/env python3
"""Pods placed per second by Carve and by the stock kube-scheduler, alternating on one control plane.

Nodes exist only as objects, and nothing else writes to them: the controller-manager and the ring's own scheduler are
stopped first. 16 workers create pods; no client has its own rate limit. Systems, each with a fresh scheduler process
per turn:

    stock     kube-scheduler alone; a pod requests one nvidia.com/gpu, an extended resource of the Node
    carve     the same pods through kube-scheduler's extender and `carve control`, which binds
    fraction  through Carve, pods that request 8 GiB and 10 % of a card

With --admission Carve's pods are created as users write them, with Carve's webhooks and policies in the path; the stock
scheduler's turns have none of them, so it must run on another control plane (placing_turns.py). Without it, pods are
created as admission would leave them. With --follower kube-scheduler's connection ends at a replica of control that does
not lead.

The times of a pod's creation and binding come from the API server's audit log (microseconds). CPU comes from
/proc/PID/stat (this bench's own clients are a process like the others; control also runs, and watches, in the stock
scheduler's turns). Refusals of control come from its metrics (tests/cluster/ring/burst.py). control/NAME is the CPU
time of control's threads with that name, control/(ended) that of threads that have exited. A turn begins when the
previous one has nothing left to write. At the end of each turn of Carve the slices on every card are summed from the
pods' records; a card above its capacity ends the run with 1. Systems are compared within one run only. A conflict is
a pod that control sent to a node and then refused at bind. With --check the run ends with 1 when one of our systems
is slower than 0.9 x stock, or when control takes more CPU per pod than its budget: 0.5 ms up to 100 nodes, 1 ms above
(medians over the turns).
"""
import argparse
import json
import os
import statistics
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(REPOSITORY / "tests/cluster"), str(REPOSITORY / "tests/cluster/checker")]
import check  # noqa: E402
from ring import admission_parts, burst, placing  # noqa: E402
from ring.cluster import Ring, timer  # noqa: E402

LEAST = 0.9                             # of the stock scheduler's pods/s
NO_FIGURES = ("system", "turn", "pods")
MOST_CPU = ((100, 0.5), (None, 1.0))    # up to this number of nodes; control's CPU per pod in ms


def one_turn(bench, turn, system, options):
    """Places the pods and returns the figures."""
    pods, asks = options.pods, burst.ASKS[system]
    if options.admission:
        asks = burst.as_created(asks)
    named = {f"{system}-{turn}-{index:05}": asks for index in range(pods)}
    figures, _ = burst.one_turn(bench, named, stock=system == "stock", percentage=options.percentage)
    if system != "stock":
        sizes = {gpu["spec"]["uuid"]: gpu["spec"]["memory"] for gpu in bench.kube.list("GPU", None)}
        too_full = check.check_records(bench.kube.list("Pod", labelSelector=placing.LABEL), sizes)
        if too_full:
            raise SystemExit(f"bench: {len(too_full)} cards were given away more than once over: {too_full[:3]}")
    burst.clear_pods(bench)
    return {"system": system, "turn": turn, "pods": pods, **figures}


def shown(found):
    return burst.shown(found["system"], {key: value for key, value in found.items() if key not in NO_FIGURES})


def medians(figures, system):
    """The median of each figure over that system's turns. A thread that is missing in a turn counts as 0 there."""
    own = [one for one in figures if one["system"] == system]
    keys = dict.fromkeys(key for one in own for key in one if key not in NO_FIGURES)
    return {key: statistics.median(one.get(key, 0) for one in own) for key in keys}


def missed(figures, nodes) -> list:
    """Every budget that the turns miss, in words."""
    most = next(cpu for upto, cpu in MOST_CPU if upto is None or nodes <= upto)
    found = []
    stock = medians(figures, "stock").get("pods_per_s")
    for system in ("carve", "fraction"):
        own = medians(figures, system)
        rate, used = own.get("pods_per_s"), own.get("control_cpu_ms_per_pod")
        if stock and rate and rate < LEAST * stock:
            found.append(f"{system}: {rate / stock:.2f} x the stock scheduler's pods/s, at least {LEAST} is required")
        if used is not None and used > most:
            found.append(f"{system}: control took {used:.2f} ms of CPU per pod, at most {most} is allowed "
                         f"at {nodes} nodes")
    return found


def main(bench):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--turns", type=int, default=1, help="number of turns of each system")
    parser.add_argument("--systems", default="stock,carve,fraction")
    parser.add_argument("--percentage", type=int, help="percentageOfNodesToScore of all systems; 0: kube-scheduler's "
                        "own (lower with more nodes). Default: Carve's as deployed, the stock scheduler's own")
    parser.add_argument("--json", type=Path, help="one line per turn, for docs/measurements")
    parser.add_argument("--admission", action="store_true", help="Carve's admission in the path of its pods")
    parser.add_argument("--follower", action="store_true", help="kube-scheduler calls a replica that does not lead")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a budget is missed")
    options = parser.parse_args()
    cards = options.nodes * options.cards
    if options.pods > cards and {"stock", "carve"} & set(options.systems.split(",")):
        parser.error(f"--pods {options.pods}: each pod requests a whole card, and there are {cards}")
    if options.admission and "stock" in options.systems.split(",") and options.systems != "stock":
        parser.error("--admission: the stock scheduler needs a control plane of its own (placing_turns.py)")
    burst.make_ready(bench, options.nodes, options.cards)
    bench.start_control(follower=options.follower)
    bench.scheduler_port = "follower" if options.follower else "tls"
    if options.admission and options.systems != "stock":
        admission_parts.install(bench)
    print(f"{options.nodes} nodes x {options.cards} cards, {options.pods} pods a turn, {os.cpu_count()} cores",
          flush=True)
    all_ = []
    for turn in range(options.turns):
        for system in options.systems.split(","):
            all_.append(one_turn(bench, turn, system, options))
            print(shown(all_[-1]), flush=True)
    if options.json:
        options.json.write_text("".join(json.dumps(one) + "\n" for one in all_))
    stock = [one["pods_per_s"] for one in all_ if one["system"] == "stock"]
    for system in ("carve", "fraction"):
        ours = [one["pods_per_s"] for one in all_ if one["system"] == system]
        if stock and ours:
            print(f"{system}: {statistics.median(ours) / statistics.median(stock):.2f} x the stock scheduler's pods/s")
    beyond = missed(all_, options.nodes)
    print("\n".join(beyond), flush=True)
    if options.check and beyond:
        sys.exit(1)


if __name__ == "__main__":
    ring_ = Ring.load()
    ring_.control.enter()
    bench_ = placing.Placing(ring_, timer("bench"))
    bench_.install()
    main(bench_)
