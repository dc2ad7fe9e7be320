#!/usr/bin/env python3
"""The demonstration: a story in eight scenes on one simulated card.

Everything runs in a mount namespace of its own and is gone afterwards. Every figure of memory and time is read from
the simulated driver's own account (carve-simctl), never from Carve. Exits non-zero if anything failed to hold.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration" / "node"))
sys.path.insert(0, str(ROOT / "tests" / "cluster" / "ring"))
from stolen import Stolen  # noqa: E402
from machine import Machine, enter_private_namespace, until  # noqa: E402

GIB = 1 << 30
CLOSING = []


def scene(number, title):
    print(f"\n\033[1m{number}. {title}\033[0m   [card: NVIDIA H200 (SIMULATED)]", flush=True)


def say(text):
    print(f"   {text}", flush=True)


def hold(what, figure, held, word="held"):
    """A line of the closing table: a promise that was held, or (word "seen") what was to be seen and is no promise."""
    CLOSING.append((word if held else "FAILED", what, figure))
    say(f"{word if held else 'FAILED'}: {what}: {figure}")


def hold_shares(what, shares, wanted, taken):
    """Within 5 points, and one for each per cent of the processors that this virtual machine's host took meanwhile."""
    figure = " / ".join(f"{one:.1f}" for one in shares) + " of " + " / ".join(map(str, wanted))
    if taken >= 1:
        figure += f" (the host took {taken:.0f} % of the processors)"
    hold(what, figure, all(abs(one - want) <= 5 + taken for one, want in zip(shares, wanted)))


class Story:
    def __init__(self, build):
        self.bin = str(build / "bin")
        self.sim = str(build / "sim" / "lib")
        self.machine = Machine(self.bin, "h200x1")

    def bare(self, program, *args):
        """A program on the driver itself, with nothing of Carve in between."""
        env = dict(os.environ, LD_LIBRARY_PATH=self.sim)
        return subprocess.Popen([f"{self.bin}/{program}", *args], env=env, stdout=subprocess.PIPE, text=True)

    def in_slice(self, flags, program, *args):
        command = [f"{self.bin}/carve", "run", *flags.split(), "--", program, *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def spin(self, flags, seconds, *more):
        args = ("--kernel-us", "500", "--seconds", str(seconds), "--memory", "1Gi", *more)
        program = f"{self.bin}/carve-sample-spin"
        return self.in_slice(flags, program, *args) if flags else self.bare("carve-sample-spin", *args)

    def truth(self, *args):
        return self.machine.truth(*args)

    def delivered(self, pids, seconds):
        """Per cent of the card for each pid over the last whole windows, by the driver's account."""
        rows = self.truth("windows", "--ms", "1000", "--last", str(seconds))["windows"]
        return [sum(r["percent"] for r in rows if r["pid"] == pid) / seconds for pid in pids]

    def pid_of(self, job, known=()):
        """The process of a job on the card; if it ends before it gets there, what it said."""
        def find():
            if job.poll() is not None:
                raise AssertionError(f"the job ended with {job.returncode}: {job.communicate()}")
            alive = [p["pid"] for p in self.truth("account")["processes"] if p["alive"] and p["pid"] not in known]
            return alive[0] if alive else None
        return until("the job's process on the card", 20, find)

    def pair(self, *wanted):
        """Jobs on the card, each the arguments of spin(), started one after the other, and their processes."""
        jobs, pids = [], []
        for args in wanted:
            jobs.append(self.spin(*args))
            pids.append(self.pid_of(jobs[-1], pids))
        return jobs, pids

    def held_bytes(self, pid):
        return sum(p["explicit_bytes"] for p in self.truth("account")["processes"] if p["pid"] == pid and p["alive"])


# Between two kernels it computes nothing on the card: with short ones that is more of its share than Carve can give back.
ANSWERING = ("--kernel-us", "4000", "--sync")


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    line = next((row for row in out.splitlines() if row.startswith("{")), None)
    return process.returncode, json.loads(line) if line else {}, err or ""


def without_carve(story):
    scene(1, "Without Carve: the driver shares as it likes")
    say("Two jobs on one card, promised 70 % and 30 %. The first waits for each of its kernels, 4 ms, before the next, as")
    say("a server does that answers requests; the second has always work in its queue, as training does.")
    jobs, pids = story.pair(("", 4, *ANSWERING), ("", 4))
    time.sleep(3.2)
    shares = story.delivered(pids, 2)
    say(f"delivered: {shares[0]:.1f} % and {shares[1]:.1f} %: turn by turn, whatever was promised")
    for job in jobs:
        finish(job)
    hog = story.bare("carve-sample-alloc", "--hold", "4")
    until("the hog's grip on the card", 20, lambda: any(
        p["refused"] for p in story.truth("account")["processes"] if p["alive"]))
    code, victim, _ = finish(story.bare("carve-sample-alloc", "--target", "4Gi"))
    given = victim.get("bytes", 0) / GIB      # it says nothing when there was not even room for its context
    say(f"one job takes all memory; its neighbour asks for 4 GiB and gets {given:.1f} GiB, then CUDA_ERROR_OUT_OF_MEMORY")
    finish(hog)
    hold("without Carve: a server next to a busy job", f"{shares[0]:.1f} / {shares[1]:.1f}, wanted 70 / 30",
         shares[0] < 60 and shares[1] > 35, "seen")
    hold("without Carve: a job that asks for 4 GiB next to a greedy one", f"{given:.1f} GiB, then out of memory",
         code != 0 and given < 4, "seen")


def with_carve(story):
    scene(2, "With Carve: 30 and 70 are 30 and 70")
    say("carve run --memory 4Gi --cores 30 -- job    and    carve run --memory 8Gi --cores 70 -- job; both always have work")
    jobs, pids = story.pair(("--memory 4Gi --cores 30", 6), ("--memory 8Gi --cores 70", 6))
    host = Stolen()
    time.sleep(4.2)
    shares = story.delivered(pids, 3)
    taken = host.percent()
    print(story.machine.carve("top", "--once")[1])
    for job in jobs:
        finish(job)
    say(f"wanted 30 and 70, delivered {shares[0]:.1f} and {shares[1]:.1f}")
    hold_shares("two saturating jobs get their shares", shares, (30, 70), taken)
    the_server_again(story)


def the_server_again(story):
    say("The pair of scene 1 again, now in slices of 70 and 30:")
    jobs, pids = story.pair(("--memory 4Gi --cores 70 --wait=10s", 5, *ANSWERING), ("--memory 8Gi --cores 30 --wait=10s", 5))
    host = Stolen()
    time.sleep(4.2)
    shares = story.delivered(pids, 3)
    taken = host.percent()
    for job in jobs:
        finish(job)
    hold_shares("the server in a slice next to the busy job", shares, (70, 30), taken)


def memory_limit(story):
    scene(3, "A job past its limit is told so, and its neighbour goes on")
    neighbour = story.spin("--memory 4Gi --cores 50 --wait=10s", 5)
    pid = story.pid_of(neighbour)
    code, greedy, _ = finish(story.in_slice("--memory 4Gi --cores 30 --wait=10s", f"{story.bin}/carve-sample-alloc"))
    say(f"4 GiB asked for; cuMemGetInfo says {greedy['total'] / GIB:.1f} GiB in all; {greedy['bytes'] / GIB:.2f} GiB "
        "taken besides its context, then CUDA_ERROR_OUT_OF_MEMORY; the process lives and ends by itself")
    most = max(g["explicit_high_bytes"] for g in story.truth("groups")["groups"] if "/run-" in g["cgroup"])
    neighbour_code, result, _ = finish(neighbour)
    hold("no byte above the limit", f"{most / GIB:.2f} of 4.00 GiB at the highest", most <= 4 * GIB)
    hold("the neighbour went on", f"{result.get('kernels', 0)} kernels, exit code {neighbour_code}",
         neighbour_code == 0 and code in (0, 3) and greedy["out_of_memory"] and pid > 0)


def refusal(story):
    scene(4, "What does not fit is refused, with the numbers")
    holder = story.spin("--memory 100Gi --cores 60 --wait=10s", 2)
    story.pid_of(holder)
    code, _, err = finish(story.in_slice("--memory 60Gi --cores 30", "true"))
    say(f"carve run --memory 60Gi --cores 30 -- true\n   {err.strip()}")
    finish(holder)
    hold("refused with reason and exit code 125", f"exit code {code}", code == 125 and "60 GiB" in err)


def seen_from_inside(story, tools):
    scene(5, "An unmodified monitoring program, from inside a slice")
    if tools is None:
        say("left out: gpustat could not be fetched from PyPI here")
        return
    done = subprocess.run([f"{story.bin}/carve", "run", "--memory", "4Gi", "--cores", "30", "--wait=10s", "--", str(tools),
                           "--no-color", "--no-header"], capture_output=True, text=True, timeout=60)
    line = done.stdout.strip()
    say(f"gpustat: {line}")
    hold("gpustat sees one card of 4 GiB", line.split("|")[-2].strip() if line.count("|") > 2 else line,
         done.returncode == 0 and "4096 MB" in line and len(line.splitlines()) == 1)


def killed(story):
    scene(6, "A job killed with -9 leaves nothing behind")
    job = story.spin("--memory 4Gi --cores 30 --wait=10s", 60)
    pid = story.pid_of(job)
    until("its memory", 10, lambda: story.held_bytes(pid) >= GIB)
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    until("the slice to be free", 10, lambda: not story.machine.slices())
    took = (time.monotonic() - started) * 1000
    finish(job)
    left = story.held_bytes(pid)
    hold("slice free again, memory back", f"{took:.0f} ms, {left} bytes left", took < 2000 and left == 0)


def agent_killed(story):
    scene(7, "The agent killed with -9 while two jobs run: shares hold, and it comes back")
    jobs, pids = story.pair(("--memory 4Gi --cores 30 --wait=10s", 9), ("--memory 8Gi --cores 70", 9))
    time.sleep(2)
    before = story.machine.pid_of("agent")
    os.kill(before, signal.SIGKILL)
    host = Stolen()
    time.sleep(4.2)
    shares = story.delivered(pids, 3)
    taken = host.percent()

    def back():
        try:
            return story.machine.pid_of("agent") != before and len(story.machine.slices()) == 2
        except (OSError, ValueError, AssertionError):
            return False
    until("the agent to be back with both slices", 20, back)
    known = len(story.machine.slices())
    for job in jobs:
        finish(job)
    hold_shares("shares without an agent", shares, (30, 70), taken)
    hold("the agent came back and knows both slices", f"{known} slices", known == 2)


def closing():
    print("\n\033[1m8. What held\033[0m   [all figures: the SIMULATED driver's own account]")
    width = max(len(what) for _, what, _ in CLOSING)
    for word, what, figure in CLOSING:
        print(f"   {word:<6}  {what:<{width}}  {figure}")
    words = [word for word, _, _ in CLOSING]
    failed = words.count("FAILED")
    print(f"\n{words.count('held')} held, {words.count('seen')} seen without Carve, {failed} failed")
    return 1 if failed else 0


def main():
    build, tools = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    enter_private_namespace()
    story = Story(build)
    try:
        print(f"\n{story.machine.up().strip()}")
        for part in (without_carve, with_carve, memory_limit, refusal):
            part(story)
        seen_from_inside(story, tools)
        for part in (killed, agent_killed):
            part(story)
    except BaseException:
        print(story.machine.logs(), file=sys.stderr)
        raise
    finally:
        story.machine.close()
    return closing()


if __name__ == "__main__":
    sys.exit(main())
