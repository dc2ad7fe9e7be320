"""Faults under `carve up`: injected into the simulated driver with carve-simctl, observed with `carve inspect`.
health_cases.py --bin <build>/bin test_name."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import main  # noqa: E402
from machine import until  # noqa: E402

SECONDS = 10  # within which a broken card must be detected
HANGING = 30  # the same for a library that hangs: one late answer is not an error (docs/health.md)


class HealthCases:
    def __init__(self, machine):
        self.m = machine

    def up(self, *extra):
        self.m.up(*extra)
        self.cards = [card["uuid"] for card in self.m.truth("cards")["cards"]]

    def simctl(self, *words):
        subprocess.run([self.m.bin + "/carve-simctl", *map(str, words)], check=True)

    def card(self, index):
        (found,) = [card for card in self.m.view()["cards"] if card["uuid"] == self.cards[index]]
        return found

    def well(self, index=0):
        return self.card(index)["healthy"]

    def spin_on(self, index=0):
        """A program that keeps the card busy and exits as soon as its context dies; also checks which card it got."""
        child = self.m.start("run", "--memory", "1Gi", "--cores", "30", "--", self.m.program("carve-sample-spin"),
                             "--seconds", "100", "--sync")
        until("it runs", 10, lambda: any(p["alive"] and p["gpu_ns"] > 0 and p["card"] == index
                                         for p in self.m.truth("account")["processes"]))
        return child

    def test_health_an_xid_refuses_new_slices_until_the_card_returns(self):
        self.up()
        child = self.spin_on(0)
        begun = time.monotonic()
        self.simctl("xid", 0, 64)
        until("known", SECONDS, lambda: not self.well())
        print(f"known after {time.monotonic() - begun:.2f} s")
        assert "XID 64: memory row could not be remapped" in self.card(0)["health_reason"], self.card(0)
        assert self.card(1)["healthy"]
        code, _, err = self.m.carve("run", "--cards", "2", "--memory", "1Gi", "--", "true")
        assert code == 125 and "unhealthy: XID 64" in err, err
        other = self.m.start("run", "--memory", "1Gi", "--", "sleep", "100")
        # Wait until it runs: if its process had not joined yet, the next agent would find an empty cgroup and end the
        # slice.
        until("a slice on the other card", 10, lambda: any(c["card"] == self.cards[1] and s["state"] == "running"
                                           for s in self.m.slices().values() for c in s["cards"]))
        assert child.poll() is None
        assert any("card unhealthy" in s["state"] for s in self.m.slices().values())
        # The card still needs a reset after a restart of the agent.
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        until("another agent", 10, lambda: self.m.pid_of("agent") != agent and self.m.carve("inspect")[0] == 0)
        assert "XID 64" in self.card(0)["health_reason"]
        self.simctl("return", 0)
        until("recovered", 20, self.well)
        assert child.poll() is None and other.poll() is None
        assert self.m.carve("run", "--cards", "2", "--memory", "1Gi", "--", "true")[0] == 0

    def test_health_a_programs_error_ends_that_program_only(self):
        self.up()
        guilty, other = self.spin_on(0), self.spin_on(0)
        pids = [p["pid"] for p in self.m.truth("account")["processes"] if p["alive"]]
        self.simctl("xid", 0, 31, "--pid", pids[0])
        until("one has ended", 10, lambda: (guilty.poll() is None) != (other.poll() is None))
        until("counted", SECONDS, lambda: "31 (1)" in self.card(0)["remark"])
        assert self.well() and any(e["kind"] == "xid" for e in self.m.view()["events"])

    def test_health_a_lost_card_is_reported_and_recovers(self):
        self.up()
        child = self.spin_on(0)
        self.simctl("lose", 0)
        until("known", SECONDS, lambda: not self.well())
        assert len(self.m.view()["cards"]) == 2 and self.card(1)["healthy"]
        assert child.wait(timeout=20) != 0, "its context must die"
        until("its slice is freed", 5, lambda: not self.m.slices())
        code, _, err = self.m.carve("run", "--cards", "2", "--memory", "1Gi", "--", "true")
        assert code == 125 and "XID 79: fallen off the bus" in err, err
        # An agent that never saw the card healthy knows it nevertheless, with its size.
        size = self.card(0)["memory_bytes"]
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        until("another agent", 10, lambda: self.m.pid_of("agent") != agent and self.m.carve("inspect")[0] == 0)
        until("both cards", 10, lambda: len(self.m.view()["cards"]) == 2)
        assert not self.well() and self.card(0)["memory_bytes"] == size
        self.simctl("return", 0)
        until("back", 45, self.well)
        assert self.m.carve("run", "--cards", "2", "--memory", "1Gi", "--", "true")[0] == 0

    def test_health_a_hanging_library_refuses_new_slices(self):
        self.up()
        child = self.spin_on(0)
        self.simctl("hang", "on")
        until("known", HANGING, lambda: not self.well(0) and not self.well(1))
        assert "hanging" in self.card(0)["health_reason"], self.card(0)
        code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
        assert code == 125 and "the driver is hanging" in err, err
        assert child.poll() is None
        self.simctl("hang", "off")
        until("recovered", 20, lambda: self.well(0) and self.well(1))
        assert child.poll() is None
        assert self.m.carve("run", "--memory", "1Gi", "--", "true")[0] == 0
        self.simctl("xid", 1, 58)
        until("it is watched again", SECONDS, lambda: not self.well(1))

    def test_health_a_gone_driver_keeps_running_programs_and_the_totals(self):
        self.up()
        child = self.spin_on(0)
        before = {c["uuid"]: c["memory_bytes"] for c in self.m.view()["cards"]}
        self.simctl("driver", "gone")
        until("known", SECONDS, lambda: not self.well(0) and not self.well(1))
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        until("another agent", 20, lambda: self.m.pid_of("agent") != agent and self.m.carve("inspect")[0] == 0)
        assert {c["uuid"]: c["memory_bytes"] for c in self.m.view()["cards"]} == before
        assert len(self.m.slices()) == 1 and child.poll() is None
        code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
        assert code == 125 and "unhealthy" in err, err
        self.simctl("driver", "back")
        until("back", 20, lambda: self.well(0) and self.well(1))
        assert child.poll() is None
        assert self.m.carve("run", "--memory", "1Gi", "--", "true")[0] == 0

    def test_health_an_operators_policy_is_obeyed_and_a_wrong_one_named(self):
        policy = self.m.folder + "/policy"
        with open(policy, "w", encoding="utf-8") as file:
            file.write("xid 31 unhealthy heal-after=2s \"we send these back\"\nxid 48 ignore\n")
        self.up("--health-policy", policy)
        self.simctl("xid", 0, 48)
        self.simctl("xid", 1, 31)
        until("known", SECONDS, lambda: not self.well(1))
        assert self.card(1)["health_reason"] == "XID 31: we send these back", self.card(1)
        until("recovered", 20, lambda: self.well(1))
        with open(policy, "w", encoding="utf-8") as file:
            file.write("xid 31 broken\n")
        code, _, err = self.m.carve("agent", "--standalone", *self.m.host, "--health-policy", policy)
        assert code == 2 and "policy:1: action: \"broken\" is unknown; legal: ignore, application" in err, err


if __name__ == "__main__":
    sys.exit(main(HealthCases))
