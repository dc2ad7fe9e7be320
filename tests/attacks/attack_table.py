#!/usr/bin/env python3
"""Runs every attack from inside a slice of `carve run` and prints the result: held (the program never had more than its
slice), or caught in N ms (it had more, and the node detected it and acted). Only the simulated driver's account decides
the result. During each attack a neighbour computes in its own slice; its share must not suffer.

attack_table.py --bin <build>/bin [--only NAME]... [--part K/N] Exit code 77: skipped, with the reason; 1: an attack had
another result. --part runs every N-th attack, from the K-th on (1 to N).
attack_table.py --promises prints the table of SECURITY.md: each attack with the result that this test requires.
"""
import glob
import json
import os
import re
import select
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "integration", "node"))
from machine import Machine, cgroup2_mount, enter_private_namespace, see_only_own_processes, until  # noqa: E402

MIB = 1 << 20
LIMIT = 2048 * MIB
TRIED = 4096 * MIB
HOLD_MS = 1500
SECOND = 1.0

# name → required result. "either": held, or caught within a second (COMPUTE_ATTACKS: within COMPUTE_MS).
ATTACKS = {
    "plain": "held", "cleared-environment": "held", "rtld-next": "held", "rtld-deepbind": "held",
    "dlmopen": "held", "get-proc-address": "held", "versioned-name": "held", "fork": "held",
    "exec-child": "held", "setuid-child": "held",
    "driver-file-after": "either", "driver-file-before": "either", "own-copy": "either", "static-client": "either",
    "registered-memory": "either", "module-globals": "either", "no-context-memory": "either", "many-globals": "either",
    "pages-truncated": "either", "pages-locked": "either", "pages-noise": "either", "pages-lied": "either",
    "grant-written": "held", "stopped-in-lease": "either",
    "registered-compute": "either", "compute-lied": "either",
    "many-processes": "held", "open-capture": "held", "changing-block": "held",
    "racing-capture": "held", "second-hello": "held", "detached-context": "held", "imported-handles": "held",
    "destroyed-pool": "held", "childs-inheritance": "held", "destroyed-contexts": "held", "exec-again": "held",
    "other-card": "held",
}
# Of these: card time without leases, by two processes in a slice of 10. The time from the first kernel to the event is
# judged, and the neighbour's share from then on.
COMPUTE_ATTACKS = ("registered-compute", "compute-lied")
# Card time by ordinary calls. The neighbour's share from the attack's first kernel to its end is judged.
SHARE_ATTACKS = ("many-processes", "open-capture", "changing-block")
SHARE_HOLD_MS = 5000
# These run in a slice of both cards, on a machine with two.
TWO_CARDS = ("other-card",)
# What each row does. The table of SECURITY.md has the same texts (promises()).
WORDS = {
    "plain": "allocates more than the slice", "cleared-environment": "the same, with an empty environment",
    "rtld-next": "finds the driver by `RTLD_NEXT`", "rtld-deepbind": "loads the driver with `RTLD_DEEPBIND`",
    "dlmopen": "loads the driver into a namespace of its own", "get-proc-address": "finds functions by `cuGetProcAddress`",
    "versioned-name": "loads the driver by its versioned name", "fork": "two processes, each within the limit",
    "exec-child": "a child that calls exec", "setuid-child": "a setuid program as another user",
    "driver-file-after": "the driver's own file, after the library", "driver-file-before": "the driver's own file, first",
    "own-copy": "a copy of the driver's file", "static-client": "the driver's protocol, without a library",
    "registered-memory": "a hello, then memory from the driver's own file",
    "module-globals": "global variables of a module", "no-context-memory": "memory without a context, past the library",
    "many-globals": "ten processes, each with the globals of a module",
    "pages-truncated": "resizes the account page", "pages-locked": "locks the account page",
    "pages-noise": "writes random values to the account page", "pages-lied": "writes 0 to its account",
    "grant-written": "writes the grant page", "stopped-in-lease": "stops itself while it has a lease",
    "registered-compute": "a hello, then kernels from the driver's own file",
    "compute-lied": "the same, with false values in its account",
    "many-processes": "16 processes with kernels of 20 ms", "open-capture": "kernels while a capture is open",
    "changing-block": "one function and grid, with blocks of 1 and then 1024 threads",
    "racing-capture": "captures that begin and end during allocations",
    "second-hello": "a second hello; its pages are unmapped", "detached-context": "detaches one of two users of a context",
    "imported-handles": "imports memory of processes that end", "destroyed-pool": "destroys a pool with pending frees",
    "childs-inheritance": "memory of a dead parent that a child keeps",
    "destroyed-contexts": "destroys contexts in use; nothing may stay charged",
    "exec-again": "exec; the next program must have the whole slice",
    "other-card": "allocates on card 1 while card 0 is current",
}
COMPUTE_MS = 1500  # bound_ms() in second_line_compute.py: a debt of 0.2 s takes 0.8 s at 45 %, plus 0.7 s


def claims(texts):
    """The numbers of attacks in the documents: [(document, attacks, held or None, caught or None)]. A document need not
    contain any. `texts`: document → its text."""
    return [(name, *(int(number) if number else None for number in found))
            for name, text in texts.items()
            for found in re.findall(r"(\d+) attacks\b(?:: (\d+) held, (\d+) caught)?", text)]


def promise(name):
    """The result that the test requires, in words."""
    if name in COMPUTE_ATTACKS:
        return f"caught within {COMPUTE_MS / 1000:g} s"
    return "held" if ATTACKS[name] == "held" else f"held, or caught within {SECOND:g} s"


def promises():
    """The table of SECURITY.md, a line of Markdown per row."""
    return (["| attack | what it does | result |", "| --- | --- | --- |"] +
            [f"| `{name}` | {WORDS[name]} | {promise(name)} |" for name in ATTACKS])


def documents():
    files = glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    texts = {}
    for path in files:
        with open(path, encoding="utf-8") as file:
            texts[os.path.relpath(path, ROOT)] = file.read()
    return texts


class Table:
    def __init__(self, machine):
        self.m = machine
        self.card = None
        self.problems = []
        self.verdicts = {"held": 0, "caught": 0}

    def account(self):
        return self.m.truth("account")["processes"]

    def start_neighbour(self):
        self.neighbour = self.m.start("run", "--memory", "2Gi", "--cores", "50", "--share", "burst", "--",
                                      self.m.program("carve-sample-spin"), "--seconds", "600", "--kernel-us", "500")
        self.neighbour_pid = until("the neighbour computes", 10, self.spinning)
        self.card = next(p["card"] for p in self.account() if p["pid"] == self.neighbour_pid)

    def spinning(self):
        return next((p["pid"] for p in self.account() if p["alive"] and p["launches"] > 100), None)

    def neighbour_share(self, since_ns, until_ns):
        """Percent of the card that the neighbour got between two times; None when the time was too short."""
        rows = self.m.truth("windows", "--ms", "100", "--since", str(since_ns))["windows"]
        inside = [r for r in rows if r["start_ns"] >= since_ns and r["start_ns"] + 100_000_000 <= until_ns]
        windows = {r["start_ns"] for r in inside}
        got = sum(r["gpu_ns"] for r in inside if r["pid"] == self.neighbour_pid)
        return got / (len(windows) * 1e6) if len(windows) >= 5 else None

    def command_of(self, name):
        if name == "static-client":
            return [self.m.program("carve-attack-static"), str(TRIED), str(HOLD_MS)]
        hold = SHARE_HOLD_MS if name in SHARE_ATTACKS else HOLD_MS
        return [self.m.program("carve-attack"), name, "--bytes", str(TRIED), "--hold-ms", str(hold)]

    def run(self, name):
        """→ (verdict, most bytes held at any time, ms over the limit, share of the neighbour)"""
        before = {p["pid"] for p in self.account()}
        since = time.monotonic_ns()
        cards = ["--cards", "2"] if name in TWO_CARDS else []
        process = self.m.start("run", *cards, "--memory", "2Gi", "--cores", "30", "--share", "burst", "--",
                               *self.command_of(name))
        most, first_over, last_over = 0, None, None
        stopped_at = None
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            # This includes what the driver keeps of a process that has ended, and the globals of modules.
            rows = [p for p in self.account() if p["pid"] not in before]
            held = max((sum(p["explicit_bytes"] + p["module_bytes"] for p in rows if p["card"] == card)
                        for card in {p["card"] for p in rows}), default=0)
            most = max(most, held)
            if held > LIMIT:
                first_over = first_over or time.monotonic()
                last_over = time.monotonic()
            if name == "stopped-in-lease" and stopped_at is None and any(state_of(p["pid"]) == "T" for p in rows if p["alive"]):
                stopped_at = time.monotonic()
            if stopped_at is not None and time.monotonic() - stopped_at > 2.5:
                process.kill()  # a stopped process need not be caught: only the neighbour's share counts
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
            self.problems.append(f"{name}: did not end")
        out, err = process.communicate()
        # An attack that is caught immediately leaves too little time to judge the neighbour, so the time after it is
        # included.
        time.sleep(max(0.0, 1.0 - (time.monotonic_ns() - since) / 1e9))
        end = time.monotonic_ns()
        if process.returncode == 3 or '"missing"' in out:
            return "missing: " + out.strip() + err.strip(), most, 0, None
        over = 0 if first_over is None else (last_over - first_over) * 1000
        verdict = "held" if first_over is None else f"caught in {over:.0f} ms"
        lost = sum(int(number) for number in re.findall(r'"note":"lost (\d+)"', out))
        if lost > 0:
            verdict = f"lost {lost // MIB} MiB"  # of its own slice
        if first_over is None and '"attack"' not in out and name != "static-client":
            verdict = "held (ended: %s)" % (err.strip().split("\n")[-1] or process.returncode)
        return verdict, most, over, self.neighbour_share(since, end)

    def run_compute(self, name):
        """→ (verdict, 0, ms from the first kernel to the event, share of the neighbour after that). The agent must have no
        recorded offence."""
        process = self.m.start("run", "--memory", "2Gi", "--cores", "10", "--", self.m.program("carve-attack"), name,
                               "--hold-ms", "4000", "--processes", "2")
        began = json.loads(process.stdout.readline())
        if "missing" in began:
            return "missing: " + began["missing"], 0, 0, None
        breaches = lambda: [e for e in self.m.view()["events"] if e["kind"] == "breach-compute"]
        try:
            event = until("an event", 4, breaches)[0]
        except AssertionError:
            return "NOT SEEN", 0, 1e9, None
        since = time.monotonic_ns()
        process.wait(timeout=30)
        over = event["unix_ms"] - began["began_ms"]
        return f"caught in {over:.0f} ms", 0, over, self.neighbour_share(since, time.monotonic_ns())

    def run_share(self, name):
        """→ (verdict, 0, 0, share of the neighbour from the first kernel of the attack to its end)"""
        flags = ["--memory", "8Gi", "--cores", "30", "--share", "burst"]     # room for 16 contexts
        process = self.m.start("run", *flags, "--", *self.command_of(name))
        line = process.stdout.readline() if select.select([process.stdout], [], [], 20)[0] else ""
        if '"began_ns"' not in line:
            process.kill()
            return "missing: " + line.strip() + process.stderr.read().strip(), 0, 0, None
        since = time.monotonic_ns()
        process.wait(timeout=60)
        return "held", 0, 0, self.neighbour_share(since, time.monotonic_ns())

    def forget_offences(self):
        self.m.kill_agent()
        until("the agent is back", 10, self.agent_is_back)
        time.sleep(1.2)  # the arbiter's list of registered processes is valid after its first second

    def agent_is_back(self):
        try:
            return self.m.view()["arbiter_state"] == "ok"
        except AssertionError:
            return False

    def node(self):
        """The process IDs of the arbiter and the agent. Fails when either is not found by name."""
        return self.m.pid_of("arbiter"), self.m.pid_of("agent")

    def node_is_well(self, before):
        """True if, within 1 s, the same processes run as before, none is stopped, and the arbiter answers."""
        def well():
            pids = self.node()
            return (pids == before and all(state_of(pid) in "RSD" for pid in pids)
                    and self.m.view()["arbiter_state"] == "ok")
        try:
            return until("the node is well", 1, well)
        except AssertionError:
            return False

    def judge(self, name, wanted, verdict, over, share):
        if verdict.startswith("missing"):
            return "MISSING"
        if wanted == "held" and not verdict.startswith("held"):
            return "NOT HELD"
        if over > (COMPUTE_MS if name in COMPUTE_ATTACKS else SECOND * 1000):
            return "TOO LATE"
        if share is None or share < 45:
            return "NEIGHBOUR HURT"
        return "ok"

    def run_any(self, name):
        if name in COMPUTE_ATTACKS:
            return self.run_compute(name)
        return self.run_share(name) if name in SHARE_ATTACKS else self.run(name)

    def print_head(self):
        print(f"slice: {LIMIT // MIB} MiB, tried: {TRIED // MIB} MiB; neighbour: 50 of 100 beside 30; "
              "all figures from the simulated driver")
        print(f"{'attack':<22}{'outcome':<26}{'most held, MiB':>16}{'neighbour got, %':>20}  judgement")

    def print(self, names):
        for name in names:
            wanted = ATTACKS[name]
            if name in COMPUTE_ATTACKS:
                self.forget_offences()  # restarts the agent, so before its process ID is read
            before = self.node()
            verdict, most, over, share = self.run_any(name)
            judgement = self.judge(name, wanted, verdict, over, share)
            if judgement == "ok" and not self.node_is_well(before):
                judgement = "NODE HURT"
            self.verdicts[verdict.split()[0]] = self.verdicts.get(verdict.split()[0], 0) + 1
            print(f"{name:<22}{verdict:<26}{most / MIB:>16.0f}{-1 if share is None else share:>20.1f}  {judgement}", flush=True)
            if judgement != "ok":
                self.problems.append(f"{name}: {judgement}")
            if self.neighbour.poll() is not None:
                self.problems.append(f"{name}: the neighbour ended")
                self.start_neighbour()

    def check_documents(self):
        held, caught = self.verdicts["held"], self.verdicts["caught"]
        for name, attacks, says_held, says_caught in claims(documents()):
            if attacks != len(ATTACKS) or (says_held is not None and (says_held, says_caught) != (held, caught)):
                self.problems.append(f"{name} says {attacks} attacks, {says_held} held, {says_caught} caught; "
                                     f"the run had {len(ATTACKS)}, {held}, {caught}")


def state_of(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


def on_machine(profile, table, names):
    machine = table.m = Machine(sys.argv[sys.argv.index("--bin") + 1], profile)
    try:
        machine.up()
        table.start_neighbour()
        table.print(names)
    except BaseException:
        print(machine.logs()[-6000:])
        raise
    finally:
        machine.close()


def part_of(arguments):
    """(K, N) of `--part K/N`; (1, 1) without the flag. Exits with a message when the value is not legal."""
    if "--part" not in arguments:
        return 1, 1
    value = (arguments[arguments.index("--part") + 1:] or [""])[0]
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", value)
    if not found or int(found[1]) > int(found[2]):
        sys.exit(f"--part \"{value}\": must be K/N with K from 1 to N")
    return int(found[1]), int(found[2])


def main():
    if "--promises" in sys.argv:
        print("\n".join(promises()))
        return 0
    if os.geteuid() != 0 or cgroup2_mount() is None:
        print("SKIPPED: needs root and a cgroup2 mount")
        return 77
    see_only_own_processes()
    enter_private_namespace()
    only = [value for flag, value in zip(sys.argv, sys.argv[1:]) if flag == "--only"]
    part, parts = part_of(sys.argv)
    names = [name for name in ATTACKS if not only or name in only][part - 1::parts]
    table = Table(None)
    table.print_head()
    for profile, some in (("t4x1", [name for name in names if name not in TWO_CARDS]),
                          ("t4x2", [name for name in names if name in TWO_CARDS])):
        if some:
            on_machine(profile, table, some)
    if len(names) == len(ATTACKS):
        table.check_documents()
    print(f"attacks: {len(names)} tried: {table.verdicts['held']} held, {table.verdicts['caught']} caught; "
          f"{len(table.problems)} problems")
    for problem in table.problems:
        print("  " + problem)
    return 1 if table.problems else 0


if __name__ == "__main__":
    sys.exit(main())
