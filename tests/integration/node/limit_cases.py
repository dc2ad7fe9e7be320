"""Limits on slices: a refusal names the limit, and root's share stays free. limit_cases.py --bin <build>/bin test_name."""
import json
import os
import socket
import struct
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import main  # noqa: E402

AGENT = "/run/carve/agent.sock"


def request_bytes(memory_bytes):
    """A request for a slice that exists until it is deleted, as `carve slice create` sends it."""
    text = json.dumps({"v": 1, "op": "allocate", "allocate": {
        "count": 1, "compute": 0, "whole": False, "model": "", "cards": [], "exclusive": False, "share": "besteffort",
        "priority": "standard", "policy": "binpack", "keep": True, "name": "x", "memory_bytes": memory_bytes}}).encode()
    return struct.pack("<I", len(text)) + text


def request_as(uid, count, memory_bytes):
    """Sends `count` requests as this user; returns the replies. Uses the socket directly from one forked child, because
    one `carve` process per slice would take minutes."""
    answer, far = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(far, "w") as text:
                text.write("\n".join(request_once(memory_bytes) for _ in range(count)))
            status = 0
        finally:
            if status != 0:
                traceback.print_exc()
            os._exit(status)        # never back into the runner
    os.close(far)
    with os.fdopen(answer) as text:
        said = text.read().split("\n")
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise AssertionError(f"the child that sends requests as user {uid} ended with status {status}")
    return said


def request_once(memory_bytes):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(AGENT)
        client.sendall(request_bytes(memory_bytes))
        (length,) = struct.unpack("<I", client.recv(4, socket.MSG_WAITALL))
        reply = json.loads(client.recv(length, socket.MSG_WAITALL))
    return "ok" if reply["ok"] else reply["code"] + ": " + reply["what"]


class LimitCases:
    def __init__(self, machine):
        self.m = machine
        machine.profile = "t4x1"

    def up(self, *lines):
        with open(self.m.folder + "/carve.conf", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        self.m.up("--config", self.m.folder + "/carve.conf")

    def test_ordinary_users_cannot_take_the_slices_kept_for_root(self):
        self.up("allow = everyone max-slices=200")
        said = request_as(65534, 128, 1 << 20)
        assert said[:112] == ["ok"] * 112, [line for line in said if line != "ok"][:2]
        for line in said[112:]:
            assert line.startswith("resource exhausted") and "112 slices are on it" in line, line
            assert "16 of 128 are kept for root" in line, line
        code, out, err = self.m.carve("run", "--memory", "1Gi", "--", self.m.program("carve-sample-alloc"), "--step",
                                      "64Mi")
        assert code == 0 and json.loads(out)["total"] == 1 << 30, (out, err, self.m.logs())
        said = request_as(0, 17, 1 << 20)
        assert said[:16] == ["ok"] * 16 and "128 slices are on it, a card has at most 128" in said[16], said
        code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
        assert code == 125 and "128 slices are on it, a card has at most 128" in err, err
        assert "pages" not in self.m.logs().partition("slice could not be set up")[2][:200], self.m.logs()

    def test_a_users_limit_can_be_raised_by_a_row(self):
        self.up("allow = user:nobody", "allow = user:daemon max-slices=40")
        said = request_as(65534, 33, 1 << 20)
        assert said[:32] == ["ok"] * 32, said
        assert "32 exist, at most 32 without max-slices" in said[32], said[32]
        said = request_as(1, 41, 1 << 20)
        assert said[:40] == ["ok"] * 40 and "40 exist, at most 40" in said[40], said

    def test_the_number_kept_for_root_is_a_setting(self):
        self.up("allow = everyone max-slices=200", "slices-for-root = 120")
        said = request_as(65534, 9, 1 << 20)
        assert said[:8] == ["ok"] * 8 and "120 of 128 are kept for root" in said[8], said
        with open(self.m.folder + "/bad.conf", "w", encoding="utf-8") as file:
            file.write("slices-for-root = 129\n")
        code, _, err = self.m.carve("up", "--config", self.m.folder + "/bad.conf", "--check-config")
        assert code == 2 and "slices-for-root" in err and "129" in err and "128" in err, err

    def test_a_slice_below_the_smallest_size_is_refused(self):
        self.up("allow = everyone")
        for uid in (0, 65534):
            (said,) = request_as(uid, 1, 1)
            assert said == ("invalid argument: memory: 1 bytes is not legal; ask for at least 1 MiB (1048576 bytes) of "
                            "each card"), said
        code, _, err = self.m.carve("run", "--memory", "4Ki", "--", "true")
        assert code != 0 and "memory: 4096 bytes is not legal; ask for at least 1 MiB" in err, err


if __name__ == "__main__":
    sys.exit(main(LimitCases))
