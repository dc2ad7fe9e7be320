#!/usr/bin/env python3
"""The demonstration: nine scenes on one simulated card.

Everything runs in a mount namespace of its own, which leaves nothing behind. Every figure of memory and time is read
from the simulated driver's own accounting (carve-simctl), never from Carve. Exits non-zero if a promise was not kept.

usage: demo.py FOLDER-OF-PROGRAMS [MONITORING-PROGRAM]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

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
    """Adds a line to the closing table: a promise that was kept, or (word "seen") a problem without Carve."""
    CLOSING.append((word if held else "FAILED", what, figure))
    say(f"{word if held else 'FAILED'}: {what}: {figure}")


def hold_shares(what, shares, promised, taken):
    """Allows 5 points, and one more for each per cent of the processors that the virtual machine's host took."""
    figure = " / ".join(f"{one:.1f}" for one in shares) + " of " + " / ".join(map(str, promised))
    if taken >= 1:
        figure += f" (the host took {taken:.0f} % of the processors)"
    hold(what, figure, all(abs(one - due) <= 5 + taken for one, due in zip(shares, promised)))


class Stage:
    def __init__(self, programs):
        self.bin = str(programs)
        self.sim = str(programs.parent / "sim" / "lib")
        self.machine = Machine(self.bin, "h200x1")

    def link(self):
        """The dashboard's next one-time link."""
        until("the dashboard has a link", 10, lambda: os.path.exists("/run/carve/dashboard.link"))
        return pathlib.Path("/run/carve/dashboard.link").read_text(encoding="utf-8").strip()

    def bare(self, program, *args):
        """Starts a program directly on the driver, without Carve."""
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
        """Per cent of the card for each pid over the last whole windows, by the driver's accounting."""
        rows = self.truth("windows", "--ms", "1000", "--last", str(seconds))["windows"]
        return [sum(r["percent"] for r in rows if r["pid"] == pid) / seconds for pid in pids]

    def pid_of(self, job, known=()):
        """The process of a job on the card; raises with the job's output if it ends before it is there."""
        def find():
            if job.poll() is not None:
                raise AssertionError(f"the job ended with {job.returncode}: {job.communicate()}")
            alive = [p["pid"] for p in self.truth("account")["processes"] if p["alive"] and p["pid"] not in known]
            return alive[0] if alive else None
        return until("the job's process on the card", 20, find)

    def pair(self, *calls):
        """Starts jobs one after the other, each with the arguments of spin(); returns them and their pids."""
        jobs, pids = [], []
        for args in calls:
            jobs.append(self.spin(*args))
            pids.append(self.pid_of(jobs[-1], pids))
        return jobs, pids

    def held_bytes(self, pid):
        return sum(p["explicit_bytes"] for p in self.truth("account")["processes"] if p["pid"] == pid and p["alive"])


# Between two kernels the server leaves the card idle. With short kernels it would lose more of its share than Carve
# can give back.
ANSWERING = ("--kernel-us", "4000", "--sync")


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    line = next((row for row in out.splitlines() if row.startswith("{")), None)
    return process.returncode, json.loads(line) if line else {}, err or ""


def without_carve(stage):
    scene(1, "Without Carve: the driver knows no shares")
    say("Two jobs on one card, promised 70 % and 30 %. The first waits for each of its kernels, 4 ms, before the next,")
    say("like a server that answers requests; the second always has work in its queue, like training.")
    jobs, pids = stage.pair(("", 4, *ANSWERING), ("", 4))
    time.sleep(3.2)
    shares = stage.delivered(pids, 2)
    say(f"delivered: {shares[0]:.1f} % and {shares[1]:.1f} %: the driver alternates, regardless of the promise")
    for job in jobs:
        finish(job)
    hog = stage.bare("carve-sample-alloc", "--hold", "4")
    until("the first job has all memory", 20, lambda: any(
        p["refused"] for p in stage.truth("account")["processes"] if p["alive"]))
    code, victim, _ = finish(stage.bare("carve-sample-alloc", "--target", "4Gi"))
    given = victim.get("bytes", 0) / GIB      # it prints nothing if there was no memory even for its context
    say("one job takes all memory; its neighbour requests 4 GiB "
        f"and gets {given:.1f} GiB, then CUDA_ERROR_OUT_OF_MEMORY")
    finish(hog)
    hold("without Carve: a server next to a busy job", f"{shares[0]:.1f} / {shares[1]:.1f}, promised 70 / 30",
         shares[0] < 60 and shares[1] > 35, "seen")
    hold("without Carve: a job that asks for 4 GiB next to a greedy one", f"{given:.1f} GiB, then out of memory",
         code != 0 and given < 4, "seen")


def with_carve(stage):
    scene(2, "With Carve: 30 and 70 are 30 and 70")
    say("carve run --memory 4Gi --cores 30 -- job    and    carve run --memory 8Gi --cores 70 -- job; both always have work")
    jobs, pids = stage.pair(("--memory 4Gi --cores 30", 6), ("--memory 8Gi --cores 70", 6))
    host = Stolen()
    time.sleep(4.2)
    shares = stage.delivered(pids, 3)
    taken = host.percent()
    print(stage.machine.carve("top", "--once")[1])
    for job in jobs:
        finish(job)
    say(f"promised 30 and 70, delivered {shares[0]:.1f} and {shares[1]:.1f}")
    hold_shares("two saturating jobs get their shares", shares, (30, 70), taken)
    the_server_again(stage)


def the_server_again(stage):
    say("The pair of scene 1 again, now in slices of 70 and 30:")
    jobs, pids = stage.pair(("--memory 4Gi --cores 70 --wait=10s", 5, *ANSWERING), ("--memory 8Gi --cores 30 --wait=10s", 5))
    host = Stolen()
    time.sleep(4.2)
    shares = stage.delivered(pids, 3)
    taken = host.percent()
    for job in jobs:
        finish(job)
    hold_shares("the server in a slice next to the busy job", shares, (70, 30), taken)


def memory_limit(stage):
    scene(3, "A job at its limit gets an error, and its neighbour goes on")
    neighbour = stage.spin("--memory 4Gi --cores 50 --wait=10s", 5)
    pid = stage.pid_of(neighbour)
    code, greedy, _ = finish(stage.in_slice("--memory 4Gi --cores 30 --wait=10s", f"{stage.bin}/carve-sample-alloc"))
    say(f"4 GiB requested; cuMemGetInfo reports a total of {greedy['total'] / GIB:.1f} GiB; "
        f"{greedy['bytes'] / GIB:.2f} GiB allocated in addition to its context, then CUDA_ERROR_OUT_OF_MEMORY; "
        "the process lives and ends by itself")
    most = max(g["explicit_high_bytes"] for g in stage.truth("groups")["groups"] if "/run-" in g["cgroup"])
    neighbour_code, result, _ = finish(neighbour)
    hold("no byte above the limit", f"{most / GIB:.2f} of 4.00 GiB at the highest", most <= 4 * GIB)
    hold("the neighbour went on", f"{result.get('kernels', 0)} kernels, exit code {neighbour_code}",
         neighbour_code == 0 and code in (0, 3) and greedy["out_of_memory"] and pid > 0)


def refusal(stage):
    scene(4, "A request that does not fit is refused, with the numbers")
    holder = stage.spin("--memory 100Gi --cores 60 --wait=10s", 2)
    stage.pid_of(holder)
    code, _, err = finish(stage.in_slice("--memory 60Gi --cores 30", "true"))
    say(f"carve run --memory 60Gi --cores 30 -- true\n   {err.strip()}")
    finish(holder)
    hold("refused with reason and exit code 125", f"exit code {code}", code == 125 and "60 GiB" in err)


def seen_from_inside(stage, tools):
    scene(5, "An unmodified monitoring program, inside a slice")
    if tools is None:
        say("skipped: gpustat could not be fetched from PyPI")
        return
    done = subprocess.run([f"{stage.bin}/carve", "run", "--memory", "4Gi", "--cores", "30", "--wait=10s", "--", str(tools),
                           "--no-color", "--no-header"], capture_output=True, text=True, timeout=60)
    line = done.stdout.strip()
    say(f"gpustat: {line}")
    hold("gpustat sees one card of 4 GiB", line.split("|")[-2].strip() if line.count("|") > 2 else line,
         done.returncode == 0 and "4096 MB" in line and len(line.splitlines()) == 1)


def killed(stage):
    scene(6, "A job killed with -9 leaves nothing behind")
    job = stage.spin("--memory 4Gi --cores 30 --wait=10s", 60)
    pid = stage.pid_of(job)
    until("the job has its memory", 10, lambda: stage.held_bytes(pid) >= GIB)
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    until("the slice is free", 10, lambda: not stage.machine.slices())
    took = (time.monotonic() - started) * 1000
    finish(job)
    left = stage.held_bytes(pid)
    hold("slice free again, memory back", f"{took:.0f} ms, {left} bytes left", took < 2000 and left == 0)


def agent_killed(stage):
    scene(7, "The agent killed with -9 while two jobs run: shares hold, and it is restarted")
    jobs, pids = stage.pair(("--memory 4Gi --cores 30 --wait=10s", 9), ("--memory 8Gi --cores 70", 9))
    time.sleep(2)
    before = stage.machine.pid_of("agent")
    os.kill(before, signal.SIGKILL)
    host = Stolen()
    time.sleep(4.2)
    shares = stage.delivered(pids, 3)
    taken = host.percent()

    def back():
        try:
            return stage.machine.pid_of("agent") != before and len(stage.machine.slices()) == 2
        except (OSError, ValueError, AssertionError):
            return False
    until("the agent is back with both slices", 20, back)
    known = len(stage.machine.slices())
    for job in jobs:
        finish(job)
    hold_shares("shares without an agent", shares, (30, 70), taken)
    hold("the agent came back and knows both slices", f"{known} slices", known == 2)


def dashboard(stage):
    """Returns the address of the page, which is there as long as the demonstration runs."""
    scene(8, "The dashboard: the machine at a glance, behind a link that works once")
    if "built without the web page" in page(stage, "/dashboard/index.html")[1]:
        return say("this program was built without the web page: its scene is skipped")
    jobs, pids = stage.pair(("--memory 4Gi --cores 30 --wait=10s", 6), ("--memory 8Gi --cores 70", 6))
    address, key = stage.link().split("/dashboard/#key=")
    token = json.loads(page(stage, f"/v1/session?key={key}")[1])["token"]
    time.sleep(2)
    shown = [(card["slices"], card["memory_bytes"]["used"]) for card in json.loads(page(stage, "/v1/cards", token)[1])["items"]]
    account = [(len(pids), card["used_bytes"]) for card in stage.truth("cards")["cards"]]
    hold("the dashboard shows the driver's figures", f"{shown[0][0]} slices, {shown[0][1] / GIB:.2f} GiB in use",
         shown == account)
    hold("it shows nothing without the link", f"status {page(stage, '/v1/slices')[0]}", page(stage, "/v1/slices")[0] == 401)
    for job in jobs:
        finish(job)


def page(stage, path, token=""):
    """(status, text) of the dashboard's answer."""
    request = urllib.request.Request(stage.link().split("/dashboard/")[0] + path, headers={"X-Carve-Token": token})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def stay(stage):
    """Prints the dashboard's address. On a terminal it waits, with two jobs to look at; otherwise the demonstration ends."""
    print(f"\ndashboard: {stage.link()}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("(it ends with this demonstration; on a terminal the demonstration waits here)")
        return
    jobs, _ = stage.pair(("--memory 4Gi --cores 30", 3600), ("--memory 8Gi --cores 70", 3600))
    print("Two jobs run. The link works once. End with Ctrl-C.", flush=True)
    try:
        for job in jobs:
            job.wait()
    except KeyboardInterrupt:
        pass
    for job in jobs:
        job.kill()


def closing():
    print("\n\033[1m9. What held\033[0m   [all figures: the SIMULATED driver's own accounting]")
    width = max(len(what) for _, what, _ in CLOSING)
    for word, what, figure in CLOSING:
        print(f"   {word:<6}  {what:<{width}}  {figure}")
    words = [word for word, _, _ in CLOSING]
    failed = words.count("FAILED")
    print(f"\n{words.count('held')} held, {words.count('seen')} seen without Carve, {failed} failed")
    return 1 if failed else 0


def main():
    programs, tools = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    enter_private_namespace()
    stage = Stage(programs)
    try:
        print(f"\n{stage.machine.up('--dashboard', '127.0.0.1:0').strip()}")
        for part in (without_carve, with_carve, memory_limit, refusal):
            part(stage)
        seen_from_inside(stage, tools)
        for part in (killed, agent_killed, dashboard):
            part(stage)
        code = closing()
        stay(stage)
    except BaseException:
        print(stage.machine.logs(), file=sys.stderr)
        raise
    finally:
        stage.machine.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
