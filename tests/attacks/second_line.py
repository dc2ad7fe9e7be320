#!/usr/bin/env python3
"""Tests the second line against a process that has the library, sends a hello, and then bypasses it with the driver's
own file: memory beyond the limit is ended within a second; compute beyond the guarantee is frozen down to it,
repeatedly in the same cycle. Also tests memory that no call announces: the global variables of a module. The figures are
from the simulated driver's account. second_line.py --bin <build>/bin; exit code 77: skipped."""
import json
import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration", "node"))
from machine import Machine, cgroup2_mount, enter_private_namespace, see_only_own_processes, until  # noqa: E402

MIB = 1 << 20
GUARANTEE = 10
NEIGHBOUR = 70
POINTS = 15  # the driver's own averages are late by a few tenths of a second in each cycle


def events(machine, kind):
    return [e for e in machine.view()["events"] if e["kind"] == kind]


def start_neighbour(machine):
    """Starts a slice of NEIGHBOUR that computes all the time, and waits until it does."""
    neighbour = machine.start("run", "--memory", "2Gi", "--cores", str(NEIGHBOUR), "--",
                              machine.program("carve-sample-spin"), "--kernel-us", "500", "--seconds", "600")
    until("the neighbour computes", 10, lambda: [p for p in machine.truth("account")["processes"]
                                                 if p["pid"] == neighbour.pid and p["launches"] > 100])
    return neighbour


def restart_agent(machine):
    """Starts an agent without recorded offences, so that a user's next slice begins without debt."""
    def answers():
        try:
            return machine.view()["arbiter_state"] == "ok"
        except AssertionError:
            return False
    machine.kill_agent()
    until("the agent is back", 10, answers)
    time.sleep(1.2)  # the arbiter's list of registered processes is valid after its first second


def memory(machine):
    child = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", machine.program("carve-attack"),
                          "registered-memory", "--bytes", str(4096 * MIB), "--hold-ms", "20000")
    most, since = 0, None
    while child.poll() is None:
        held = sum(p["explicit_bytes"] for p in machine.truth("account")["processes"]
                   if p["pid"] == child.pid and p["alive"])
        most = max(most, held)
        if held > 2048 * MIB and since is None:
            since = time.monotonic()
        time.sleep(0.01)
    took = time.monotonic() - since if since else None
    print(f"memory: held {most / MIB:.0f} MiB of 2048, ended {-1 if took is None else took * 1000:.0f} ms later")
    assert most > 2048 * MIB, "it never exceeded its limit, so nothing was tested"
    assert child.returncode == -signal.SIGKILL and took < 1, (child.returncode, took)
    # A process that said hello is registered: only its memory reveals it.
    assert events(machine, "breach-memory") and not events(machine, "breach-unregistered"), machine.view()["events"]


def held_by(machine, pid):
    """Explicit memory, and the memory that the driver took for the globals of loaded modules."""
    return next((p["explicit_bytes"] + p["module_bytes"] for p in machine.truth("account")["processes"]
                 if p["pid"] == pid and p["alive"]), 0)


def globals_past_the_limit(machine):
    """No call announces the memory that a driver takes to load a module, because its size is known only afterwards."""
    known = len(events(machine, "breach-memory"))
    child = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", machine.program("carve-attack"),
                          "module-globals", "--bytes", str(4096 * MIB), "--hold-ms", "20000")
    since = None
    while child.poll() is None:
        if since is None and held_by(machine, child.pid) > 2048 * MIB:
            since = time.monotonic()
        time.sleep(0.01)
    assert since is not None, "it never exceeded its limit, so nothing was tested"
    took = time.monotonic() - since
    print(f"globals of a module: 4096 MiB in a slice of 2048, ended {took * 1000:.0f} ms later")
    assert child.returncode == -signal.SIGKILL and took < 1, (child.returncode, took)
    assert len(events(machine, "breach-memory")) == known + 1, machine.view()["events"]


def globals_take_room(machine):
    """Globals that fit are charged by the next rounds of the watchdog: less memory is left for everything else."""
    known = len(events(machine, "breach-memory"))
    child = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", machine.program("carve-attack"),
                          "module-globals-room", "--bytes", str(512 * MIB), "--hold-ms", "5000")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, (child.returncode, err)
    said = json.loads(out)
    high = next(p["explicit_high_bytes"] for p in machine.truth("account")["processes"] if p["pid"] == child.pid)
    gone = said["free_before"] - said["free_after"]
    print(f"globals of a module that fit: free memory decreased by {gone / MIB:.0f} of 512 MiB after "
          f"{said['reported_after_ms']} ms; then {high / MIB:.0f} MiB of 2048 were available")
    assert said["globals"] == 512 * MIB and said["refused_with"] == 2, said
    # The charge in advance for a context may be more than this card's driver takes; that difference is not new.
    assert 384 * MIB <= gone <= 512 * MIB and said["reported_after_ms"] < 2000, said
    assert high <= 2048 * MIB - said["globals"], high
    assert high == said["then_got"] >= 2048 * MIB - said["globals"] - 256 * MIB, (high, said)  # one context at most
    assert len(events(machine, "breach-memory")) == known, machine.view()["events"]


def bursts(machine):
    """Bursts shorter than a check of the lists, repeatedly: each observed burst shortens the time of the next."""
    ended = len(events(machine, "breach-memory"))
    child = machine.start("run", "--memory", "2Gi", "--cores", "10", "--", machine.program("carve-attack"),
                          "memory-bursts", "--bytes", str(4096 * MIB))
    out, _ = child.communicate(timeout=60)
    succeeded = [json.loads(line) for line in out.splitlines() if '"burst"' in line]
    succeeded = [one for one in succeeded if one["got_bytes"] > 2048 * MIB]
    print(f"bursts of 150 ms: {len(succeeded)} of 50 succeeded, then the slice was ended")
    assert child.returncode == -signal.SIGKILL and len(succeeded) <= 10, (child.returncode, out)
    assert events(machine, "breach-memory-brief") or len(events(machine, "breach-memory")) > ended, machine.view()["events"]
    until("free", 5, lambda: not machine.slices())


def compute(machine):
    neighbour = start_neighbour(machine)
    child = machine.start("run", "--memory", "2Gi", "--cores", str(GUARANTEE), "--", machine.program("carve-attack"),
                          "registered-compute", "--hold-ms", "60000")
    begin = time.monotonic()
    until("it is throttled", 8, lambda: events(machine, "breach-compute"))
    found = time.monotonic() - begin

    def gpu_ns():
        used = {p["pid"]: p["gpu_ns"] for p in machine.truth("account")["processes"]}
        return used[child.pid], used[neighbour.pid], time.monotonic_ns()
    def shares(seconds):
        before = gpu_ns()
        time.sleep(seconds)  # the measurement itself
        after = gpu_ns()
        return [100 * (b - a) / (after[2] - before[2]) for a, b in zip(before[:2], after[:2])]
    taker, other = shares(10)
    print(f"compute: a slice of {GUARANTEE} that bypasses the library is throttled after {found:.1f} s; then it gets "
          f"{taker:.1f} of 100, its neighbour of 70 gets {other:.1f}")
    assert child.poll() is None, "it must be throttled, not ended"
    assert taker <= GUARANTEE + POINTS, taker
    assert other >= 70 - POINTS, other
    assert not events(machine, "breach-unregistered"), machine.view()["events"]
    child.kill()
    child.wait()
    neighbour.kill()
    neighbour.wait()
    until("free", 5, lambda: not machine.slices())


def compute_by_little(machine):
    """The excess is a few points above the slack: the debt reaches the bound of the event after several seconds. A
    neighbour misses that time; the use of idle time is no offence."""
    neighbour = start_neighbour(machine)
    child = machine.start("run", "--memory", "2Gi", "--cores", "5", "--", machine.program("carve-attack"),
                          "registered-compute", "--hold-ms", "90000", "--busy", "42")

    def gpu_ns():
        return next((p["gpu_ns"] for p in machine.truth("account")["processes"] if p["pid"] == child.pid), 0)

    def share(seconds):
        before, since = gpu_ns(), time.monotonic_ns()
        time.sleep(seconds)  # the measurement itself
        return 100 * (gpu_ns() - before) / (time.monotonic_ns() - since)
    until("it computes", 10, lambda: gpu_ns() > 0)
    begin, known = time.monotonic(), len(events(machine, "breach-compute"))
    alone = share(1)  # shorter than the time in which the debt can reach the bound
    until("it is throttled", 30, lambda: len(events(machine, "breach-compute")) > known)
    found = time.monotonic() - begin
    held = share(15)
    print(f"compute by little: a slice of 5 that takes {alone:.1f} by bypassing the library is throttled after {found:.1f} s; "
          f"then it gets {held:.1f}")
    assert alone > 5 + 12, f"{alone} percent: nothing was tested"
    assert held <= 5 + 12, held  # 13 on a quiet machine; a round of the agent that is late lets it take more
    for one in (child, neighbour):
        one.kill()
        one.wait()
    until("free", 5, lambda: not machine.slices())


def main():
    if os.geteuid() != 0 or cgroup2_mount() is None:
        print("SKIPPED: needs root and a cgroup2 mount")
        return 77
    see_only_own_processes()
    enter_private_namespace()
    machine = Machine(sys.argv[sys.argv.index("--bin") + 1], "t4x1")
    try:
        machine.up()
        time.sleep(1.2)  # the arbiter's list of registered processes is valid after its first second
        memory(machine)
        globals_past_the_limit(machine)
        globals_take_room(machine)
        bursts(machine)
        compute(machine)
        restart_agent(machine)
        compute_by_little(machine)
    except BaseException:
        print(machine.logs()[-4000:])
        raise
    finally:
        machine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
