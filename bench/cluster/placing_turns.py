#!/usr/bin/env python3
"""placing_bench.py in alternating turns, with a newly created control plane for each system of each turn.

An API server and an etcd that have served thousands of pods are slower than fresh ones, so each system gets fresh
ones. Needs the ring's binaries. CARVE_RING names the ring, which is removed and re-created for each system; the
default is the ring of tests/cluster/up.
Prints each turn when it ends, then the medians and the missed budgets (those of placing_bench.py).
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from placing_bench import REPOSITORY, medians, missed, shown  # noqa: E402

RING = REPOSITORY / "tests/cluster"


def one_turn(system, options) -> dict:
    """One system on a new control plane."""
    subprocess.run([RING / "up", "--again", "--nodes", "0", "--build", options.build], check=True, stdout=subprocess.DEVNULL)
    with tempfile.NamedTemporaryFile() as found:
        subprocess.run([sys.executable, REPOSITORY / "bench/cluster/placing_bench.py", "--nodes", str(options.nodes),
                        "--cards", str(options.cards), "--pods", str(options.pods), "--systems", system,
                        *(["--admission"] if options.admission else []),
                        *([] if options.percentage is None else ["--percentage", str(options.percentage)]),
                        "--json", found.name], check=True, stdout=subprocess.DEVNULL)
        return json.loads(found.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, metavar="FOLDER", help="build folder with bin/carve")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--systems", default="stock,carve,fraction")
    parser.add_argument("--percentage", type=int, help="like placing_bench.py's")
    parser.add_argument("--admission", action="store_true", help="like placing_bench.py's")
    parser.add_argument("--json", type=Path, help="one line per turn")
    parser.add_argument("--check", action="store_true", help="exit code 1 when a budget is missed")
    options = parser.parse_args()
    systems, all_ = options.systems.split(","), []
    try:
        for turn in range(options.turns):
            for system in systems[turn % len(systems):] + systems[:turn % len(systems)]:
                all_.append({**one_turn(system, options), "turn": turn})
                print(shown(all_[-1]), flush=True)
    finally:
        subprocess.run([RING / "down"], check=False, stdout=subprocess.DEVNULL)
        if options.json:
            options.json.write_text("".join(json.dumps(one) + "\n" for one in all_))
    all_medians = {system: medians(all_, system) for system in systems}
    for system in systems:
        print("median " + shown({"system": system, **all_medians[system]}))
    for system in systems:
        if system != "stock" and "stock" in systems:
            print(f"{system}: {all_medians[system]['pods_per_s'] / all_medians['stock']['pods_per_s']:.2f} x the stock "
                  "scheduler's pods/s")
    beyond = missed(all_, options.nodes)
    print("\n".join(beyond), flush=True)
    if options.check and beyond:
        sys.exit(1)


if __name__ == "__main__":
    main()
