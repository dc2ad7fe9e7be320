"""The agent is killed at every write to its journal, in a real `carve up` on simulated cards. Afterwards `carve
inspect` must show what really runs. That is known from the kernel (cgroups, processes), from the simulated driver's
account and from the answers of the commands. The faults come from journal_fault.cc, preloaded. Run as root:
journal_kills.py --bin <build>/bin --fault <journal_fault.so> [--at N [--every M]]"""
import errno
import json
import mmap
import os
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from machine import Machine, cgroup2_mount, enter_private_namespace, until  # noqa: E402

GIB = 1 << 30
# Points between two deaths of a history: more than an agent passes until it serves, or no agent would ever serve.
EVERY = 30


class Fault:
    """The control file of journal_fault.cc: points passed, point to die at, errno of the next sync."""

    def __init__(self, folder, library):
        self.path = folder + "/fault"
        with open(self.path, "wb") as file:
            file.write(bytes(4096))
        with open(self.path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 4096)
        os.environ["LD_PRELOAD"] = library
        os.environ["CARVE_FAULT_FILE"] = self.path
        # A sanitizer's runtime is not loaded first then and would report that.
        os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"

    @staticmethod
    def release():
        """Commands started from here on run without the fault library, as a user's would."""
        for name in ("LD_PRELOAD", "CARVE_FAULT_FILE"):
            os.environ.pop(name, None)

    def passed(self):
        return struct.unpack_from("<Q", self.map, 0)[0]

    def kill_at(self, point, every=0):
        """The process that passes this point dies, and after each death the one that is `every` points further."""
        struct.pack_into("<Q", self.map, 32, every)
        struct.pack_into("<Q", self.map, 8, point)

    def next_death(self):
        return struct.unpack_from("<Q", self.map, 8)[0]

    def fail_next_sync(self):
        struct.pack_into("<Q", self.map, 16, errno.EIO)

    def fail_all(self, error):
        """Every change of the journal fails with this errno, as on a read-only file system; 0 ends that."""
        struct.pack_into("<Q", self.map, 24, error)

    def points(self):
        with open(self.path + ".log", encoding="utf-8") as file:
            return [line.split(" ", 1)[1].strip() for line in file]


class History:
    """A sequence of commands on a machine, with the answer of each; the agent may die at any time during it."""

    def __init__(self, machine, fault):
        self.m = machine
        self.fault = fault
        self.runs = {}      # limit → process
        self.made = {}      # id → limit, answered
        self.gone = set()   # ids, answered
        self.unanswered = 0  # creations without an answer: both outcomes are correct

    def answers(self):
        return self.m.carve("inspect")[0] == 0

    def wait_for_agent(self):
        until("an agent that answers", 20, self.answers)

    def run(self, gib):
        child = self.m.start("run", "--memory", f"{gib}Gi", "--cores", "20", "--",
                             self.m.program("carve-sample-alloc"), "--target", "512Mi", "--hold", "600")
        self.runs[gib] = child
        until("it holds memory, or was refused", 20, lambda: child.poll() is not None or self.held_by(child.pid))
        self.wait_for_agent()

    def held_by(self, pid):
        return sum(p["explicit_bytes"] for p in self.m.truth("account")["processes"] if p["pid"] == pid and p["alive"])

    def create(self, gib):
        code, out, _ = self.m.carve("slice", "create", "--memory", f"{gib}Gi", "--cores", "10", "-o", "id")
        if code == 0:
            self.made[out.strip()] = gib * GIB
        else:
            self.unanswered += 1
        self.wait_for_agent()
        return out.strip() if code == 0 else None

    def delete(self, slice_id):
        if slice_id is not None and self.m.carve("slice", "delete", slice_id)[0] == 0:
            self.gone.add(slice_id)
        elif slice_id is not None:
            self.made.pop(slice_id)  # both outcomes are correct
            self.unanswered += 1
        self.wait_for_agent()

    def live(self):
        self.wait_for_agent()
        self.run(2)
        first = self.create(1)
        self.run(3)
        self.fault.fail_next_sync()  # the next transaction is refused; the one after it starts a new journal
        self.create(4)
        self.create(5)
        self.runs[3].kill()
        self.runs[3].wait()
        until("its slice is free", 20, lambda: 3 * GIB not in self.limits_of_runs())
        self.delete(first)
        self.wait_for_agent()

    def limits_of_runs(self):
        code, out, _ = self.m.carve("inspect", "-o", "json")
        if code != 0:
            return [3 * GIB]  # no answer; try again
        return [s["cards"][0]["limit_bytes"] for s in json.loads(out)["slices"] if s["kind"] == "run"]

    # -- the truth ---------------------------------------------------------------------------------------------

    def occupied_groups(self):
        """Slices with a process, from the kernel: id → pids."""
        groups = {}
        for name in os.listdir(self.m.cgroup):
            if os.path.isdir(f"{self.m.cgroup}/{name}"):
                with open(f"{self.m.cgroup}/{name}/cgroup.procs", encoding="utf-8") as file:
                    groups[name] = [int(line) for line in file]
        return groups

    def differences(self):
        """One sentence per difference between the ledger and what runs; empty when they agree."""
        said = []

        def differ(what, ledger, truth):
            if ledger != truth:
                said.append(f"{what}: Carve has {ledger}, the truth is {truth}")
        view = self.m.view()
        slices = {s["id"]: s for s in view["slices"]}
        runs = {i: s for i, s in slices.items() if s["kind"] == "run"}
        devices = {i: s for i, s in slices.items() if s["kind"] != "run"}
        groups = self.occupied_groups()
        living = {child.pid: gib * GIB for gib, child in self.runs.items() if child.poll() is None}
        differ("slices with processes", sorted(runs), sorted(i for i, pids in groups.items() if pids))
        differ("cgroups", sorted(slices), sorted(set(groups) | set(devices)))
        differ("limits of what runs", {pid: runs[i]["cards"][0]["limit_bytes"] for i in runs if i in groups
                                       for pid in groups[i]}, living)
        account = [p for p in self.m.truth("account")["processes"] if p["alive"]]
        differ("processes on the driver", {p["pid"] for s in runs.values() for p in s["processes"]},
               {p["pid"] for p in account})
        differ("slices of the driver's processes", {f"/{os.path.basename(self.m.cgroup)}/{i}" for i in runs},
               {p["cgroup"] for p in account})
        differ("memory set aside", sum(c["set_aside_bytes"] for c in view["cards"]),
               sum(living.values()) + sum(s["cards"][0]["limit_bytes"] for s in devices.values()))
        for slice_id, limit in self.made.items():
            differ("a slice that was answered", slice_id in slices and slices[slice_id]["cards"][0]["limit_bytes"],
                   False if slice_id in self.gone else limit)
        extra = set(devices) - set(self.made)
        if len(extra) > self.unanswered:
            said.append(f"slices that were never requested: {extra}")
        # CDI devices, slice folders and pages belong to exactly these slices.
        cdi = self.m.folder + "/cdi"
        differ("CDI devices", len(devices), len(os.listdir(cdi)) if os.path.isdir(cdi) else 0)
        differ("folders of slices", sorted(slices), sorted(os.listdir("/run/carve/slices")))
        pages = {name.rsplit("-", 1)[0] for name in os.listdir("/run/carve/arbiter/pages")}
        differ("pages", sorted(slices), sorted(pages))
        return said

    def must_agree(self, when):
        deadline = time.monotonic() + 10
        said = self.differences()
        while said and time.monotonic() < deadline:
            time.sleep(0.05)
            said = self.differences()
        assert not said, when + ":\n  " + "\n  ".join(said)

    def end(self):
        """Ends everything; nothing may be left."""
        for child in self.runs.values():
            child.kill()
            child.wait()
        for slice_id in list(self.m.slices()):
            self.m.carve("slice", "delete", slice_id)
        until("nothing left", 10, lambda: not self.m.slices())
        view = self.m.view()
        assert all(c["set_aside_bytes"] == 0 for c in view["cards"]), view["cards"]
        held = [p for p in self.m.truth("account")["processes"] if p["alive"]]
        assert not held, held


def one(bin_dir, library, point, every=0):
    """Runs the whole history with a death at `point` (0: none) and every `every` points after it (0: no other death).
    Returns the points that it passed and the number of deaths."""
    machine = Machine(bin_dir, "t4x2")
    fault = Fault(machine.folder, library)
    try:
        fault.kill_at(point, every)
        machine.up_process = machine.start_up()
        if not machine.up_process.stdout.readline().startswith("ready:"):
            # `carve up` gives up when an agent dies before it ever served, and says so. The operator then starts it
            # again.
            assert machine.up_process.wait(timeout=60) == 1 and "agent ended" in open(machine.folder + "/up.err").read()
            machine.up()
        Fault.release()
        history = History(machine, fault)
        history.live()
        history.must_agree("after the history")
        agent = machine.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        until("another agent", 20, lambda: machine.pid_of("agent") != agent and history.answers())
        history.must_agree("after one more restart")
        deaths = (fault.next_death() - point) // every if every else int(point != 0)
        fault.kill_at(0)
        assert fault.passed() >= point, "no process reached this point"
        points = fault.points()
        history.end()
        return points, deaths
    except BaseException:
        fault.kill_at(0)
        print(f"point {point}:", open(machine.folder + "/up.err").read()[-2000:], machine.logs()[-4000:])
        raise
    finally:
        machine.close()


def read_only(bin_dir, library):
    """The state folder becomes read-only under a running agent. Running slices continue, ended ones are freed, nothing
    new starts, and every command reports the reason. When the folder is writable again, everything works again."""
    machine = Machine(bin_dir, "t4x2")
    fault = Fault(machine.folder, library)
    try:
        machine.up()
        Fault.release()
        history = History(machine, fault)
        history.run(2)
        history.run(3)
        kept = history.create(1)
        before = sorted(machine.slices())
        fault.fail_all(errno.EROFS)
        for arguments in (["run", "--memory", "1Gi", "--", "true"], ["slice", "create", "--memory", "1Gi"]):
            code, _, err = machine.carve(*arguments)
            assert code in (1, 125) and "Read-only file system" in err, (arguments, code, err)
        assert sorted(machine.slices()) == before and history.runs[2].poll() is None
        held = history.held_by(history.runs[2].pid)
        assert held == GIB // 2, held
        history.runs[3].kill()
        history.runs[3].wait()
        until("the ended slice is freed nevertheless", 10, lambda: len(machine.slices()) == 2)
        fault.fail_all(0)
        assert machine.carve("run", "--memory", "1Gi", "--", "true")[0] == 0
        until("it is over", 10, lambda: len(machine.slices()) == 2)
        history.must_agree("when it can be written again")
        agent = machine.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        until("another agent", 20, lambda: machine.pid_of("agent") != agent and history.answers())
        history.must_agree("after a restart")
        assert kept in machine.slices()
        history.end()
    except BaseException:
        fault.fail_all(0)
        print(open(machine.folder + "/up.err").read()[-2000:], machine.logs()[-4000:])
        raise
    finally:
        machine.close()


def main():
    def value_of(flag):
        return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else None
    if os.geteuid() != 0 or cgroup2_mount() is None:
        print("SKIPPED: needs root and a cgroup2 mount")
        return 77
    enter_private_namespace()
    bin_dir, library = value_of("--bin"), value_of("--fault")
    if "--read-only" in sys.argv:
        read_only(bin_dir, library)
        print("journal: read-only for some time, nothing was lost")
        return 0
    if value_of("--at"):
        print(one(bin_dir, library, int(value_of("--at")), int(value_of("--every") or 0)))
        return 0
    points, _ = one(bin_dir, library, 0)
    kinds = {kind.split(" ", 1)[1] for kind in points}
    assert {"write", "of write", "fdatasync", "fsync", "rename", "creation"} <= kinds, kinds
    # With several deaths in one history fewer histories reach each point. In scripts/soak each history has one death.
    every = 0 if os.environ.get("CARVE_SOAK") else EVERY
    failed, deaths, histories = [], 0, min(every or len(points), len(points))
    for point in range(1, histories + 1):
        try:
            deaths += one(bin_dir, library, point, every)[1]
        except Exception as problem:  # the other points are tried too
            failed.append(f"killed {points[point - 1]} (--at {point} --every {every}, {len(points)} points): {problem}")
            print(failed[-1])
    print(f"journal: agent killed {deaths} times in {histories} histories of {len(points)} points ({len(kinds)} kinds of "
          f"calls): after {histories - len(failed)} histories the ledger equals what runs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
