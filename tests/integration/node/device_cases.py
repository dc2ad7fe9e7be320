"""The cards' device files, where they belong to Carve (own-devices = on): processes outside slices cannot open them,
processes of slices can. device_cases.py --bin <build>/bin test_name."""
import errno
import json
import os
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import main  # noqa: E402
from machine import sh, until  # noqa: E402

GIB = 1 << 30
NOBODY = 65534
DAEMON = 1
CARD = "/dev/nvidia0"
# Opens each file in the arguments and prints the name of the error, or "open".
OPEN = ("import errno, os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: os.close(os.open(path, os.O_RDWR)); print('open')\n"
        "    except OSError as error: print(errno.errorcode[error.errno])\n")


def opened_by(uid, path):
    """The result of open() for a process of this user outside slices: "open", or the error's name. It forks, because
    other users may not be able to execute this interpreter."""
    answer, far = os.pipe()
    child = os.fork()
    if child == 0:
        said = "open"
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            said = errno.errorcode[error.errno]
        os.write(far, said.encode())
        os._exit(0)
    os.close(far)
    with os.fdopen(answer) as text:
        said = text.read()
    os.waitpid(child, 0)
    return said


def rights(path):
    info = os.lstat(path)
    return stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid


def make_card(n, mode, uid=0, gid=0):
    """Creates a device file that the simulated driver finds and does not remove: not with /dev/null's numbers."""
    path = f"/dev/nvidia{n}"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    os.chown(path, uid, gid)
    os.chmod(path, mode)


class DeviceCases:
    def __init__(self, machine):
        self.m = machine

    def up(self, *lines):
        with open(self.m.folder + "/carve.conf", "w", encoding="utf-8") as file:
            file.write("\n".join(("allow = user:nobody", *lines)) + "\n")
        sh(f"cp {self.m.program('carve')} {self.m.program('carve-sample-alloc')} {self.m.folder}/")
        self.m.up("--config", self.m.folder + "/carve.conf")

    def as_nobody(self, *words, **how):
        return subprocess.run([self.m.folder + "/carve", *words], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/",
                              capture_output=True, text=True, timeout=60, **how)

    def down(self, *words):
        code, out, err = self.m.carve("down", "--force", "--cgroup-root", self.m.cgroup, *words)
        assert code == 0, (out, err, self.m.logs())
        self.m.up_process.wait(timeout=30)
        return err

    def findings(self):
        code, out, err = self.m.carve("doctor", "-o", "json", *self.m.host)
        assert code in (0, 1), err
        return {one["id"]: one for one in json.loads(out)}

    def test_without_own_devices_every_user_opens_the_cards_and_doctor_reports_it(self):
        self.up()
        assert opened_by(DAEMON, CARD) == "open"
        note = self.findings()["devices-open"]
        assert "without a slice" in note["what"] and "/dev/nvidia0 (0666)" in note["what"], note
        assert "own-devices is off" in note["cause"] and "own-devices = on" in note["fix"], note
        assert not os.path.exists("/dev/carve")

    def test_with_own_devices_only_slices_open_the_cards(self):
        make_card(0, 0o666)
        make_card(1, 0o640, DAEMON, 6)
        before = [rights(f"/dev/nvidia{n}") for n in (0, 1)]
        self.up("own-devices = on")
        for n in (0, 1):
            assert rights(f"/dev/nvidia{n}") == (0o600, 0, 0)
            assert opened_by(NOBODY, f"/dev/nvidia{n}") == "EACCES"
        assert "devices-open" not in self.findings() and "device-file-mode" not in self.findings()

        done = self.as_nobody("run", "--memory", "1Gi", "--", self.m.folder + "/carve-sample-alloc", "--step", "16Mi")
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == GIB, (done, self.m.logs())
        for ask in (["--memory", "1Gi"], ["--whole"]):
            done = self.as_nobody("run", *ask, "--", "sh", "-c", "for n in 0 1; do true < /dev/nvidia$n && echo open-$n; "
                                  "done; ls -A /dev/carve")
            assert done.stdout.count("open-") == 1 and len(done.stdout.split()) == 1, (ask, done)
        done = subprocess.run([self.m.bin + "/carve", "run", "--memory", "1Gi", "--", sys.executable, "-c", OPEN, CARD,
                               "/dev/nvidia1"], capture_output=True, text=True, timeout=60)
        assert sorted(done.stdout.split()) == ["ENXIO", "open"], done
        until("the slices' nodes are gone", 3, lambda: os.listdir("/dev/carve") == [])

        self.down()
        assert [rights(f"/dev/nvidia{n}") for n in (0, 1)] == before
        assert not os.path.exists("/dev/carve") and not os.path.exists(self.m.state + "/card-files")

    def test_a_running_slices_node_is_only_for_its_user_and_namespace(self):
        self.up("own-devices = on")
        child = subprocess.Popen([self.m.folder + "/carve", "run", "--memory", "1Gi", "--", "sleep", "1000"], cwd="/",
                                 user=NOBODY, group=NOBODY, extra_groups=[])
        self.m.children.append(child)
        until("running", 5, lambda: [s for s in self.m.slices().values() if s["state"] == "running"])
        (slice_id,) = self.m.slices()
        (node,) = [f"/dev/carve/{slice_id}/{name}" for name in os.listdir("/dev/carve/" + slice_id)]
        assert opened_by(DAEMON, node) == "EACCES", "another user, who knows the name"
        for n in (0, 1):
            assert opened_by(NOBODY, f"/dev/nvidia{n}") == "EACCES", "its own user, outside it"
        # A slice of root, in which a program drops root's rights.
        done = subprocess.run([self.m.bin + "/carve", "run", "--memory", "1Gi", "--", "setpriv", "--reuid=65534",
                               "--regid=65534", "--clear-groups", "sh", "-c", "for n in 0 1; do true < /dev/nvidia$n && "
                               "echo open; done; ls -A /dev/carve"], capture_output=True, text=True, timeout=60)
        assert done.stdout == "open\n", done
        child.kill()
        until("freed", 3, lambda: not self.m.slices())
        assert not os.path.exists(node)

    def test_a_containers_device_names_the_slices_own_node(self):
        self.up("own-devices = on")
        done = self.as_nobody("slice", "create", "--memory", "1Gi", "-o", "docker")
        assert done.returncode == 0, done
        (slice_id,) = self.m.slices()
        (device,) = [w for w in done.stdout.split() if w.startswith("--device=/dev/carve/")]
        node, inside = device.partition("=")[2].split(":")
        assert node.startswith(f"/dev/carve/{slice_id}/nvidia") and inside.startswith("/dev/nvidia"), device
        with open(f"{self.m.folder}/cdi/carve-slice-{slice_id}.json", encoding="utf-8") as file:
            spec = json.load(file)
        (card,) = [n for n in spec["devices"][0]["containerEdits"]["deviceNodes"] if "hostPath" in n]
        assert card == {"path": inside, "hostPath": node} and spec["cdiVersion"] == "0.5.0", spec
        assert opened_by(NOBODY, node) == "open" and opened_by(DAEMON, node) == "EACCES"
        self.m.kill_agent()
        until("the next agent answers", 10, lambda: self.m.carve("inspect")[0] == 0)
        assert opened_by(NOBODY, node) == "open"
        assert self.m.carve("slice", "delete", slice_id)[0] == 0
        assert not os.path.exists(node)

    def test_members_of_the_group_can_open_the_cards(self):
        self.up("own-devices = on", "own-devices-group = daemon")
        assert rights(CARD) == (0o660, 0, 1)
        assert opened_by(DAEMON, CARD) == "open" and opened_by(NOBODY, CARD) == "EACCES"
        code, _, err = self.m.carve("up", "--own-devices", "on", "--own-devices-group", "no-such-group")
        assert code == 2 and "own-devices-group" in err and "no-such-group" in err, err
        with open(self.m.folder + "/bad.conf", "w", encoding="utf-8") as file:
            file.write("own-devices = yes\n")
        code, _, err = self.m.carve("up", "--config", self.m.folder + "/bad.conf", "--check-config")
        assert code == 2 and "own-devices" in err and '"yes"; legal are on and off' in err, err

    def test_the_previous_mode_survives_kills_and_a_second_up(self):
        make_card(0, 0o644, DAEMON, 6)
        self.up("own-devices = on")
        self.m.kill_agent()
        assert opened_by(NOBODY, CARD) == "EACCES", "while no agent runs"
        until("the next agent answers", 10, lambda: self.m.carve("inspect")[0] == 0)
        # Supervisor and agent are killed together. Then a second `up`, then `down` with the same state folder.
        for _ in range(2):
            agent = self.m.pid_of("agent")
            os.kill(self.m.up_process.pid, signal.SIGKILL)
            os.kill(agent, signal.SIGKILL)
            self.m.up_process.wait(timeout=30)
            assert rights(CARD) == (0o600, 0, 0)
            self.m.up("--config", self.m.folder + "/carve.conf")
        agent = self.m.pid_of("agent")
        os.kill(self.m.up_process.pid, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        self.down("--state-dir", self.m.state)
        assert rights(CARD) == (0o644, DAEMON, 6)

    def test_off_at_the_next_start_restores_the_files(self):
        make_card(0, 0o644, DAEMON, 6)
        self.up("own-devices = on")
        self.m.up_process.terminate()
        assert self.m.up_process.wait(timeout=30) == 0
        assert rights(CARD) == (0o644, DAEMON, 6), "the end of the supervisor restores like down"
        self.up("own-devices = on")
        agent = self.m.pid_of("agent")
        os.kill(self.m.up_process.pid, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        self.m.up_process.wait(timeout=30)
        self.up("own-devices = off")
        assert rights(CARD) == (0o644, DAEMON, 6)
        assert "devices-open" in self.findings()

    def test_a_file_that_is_opened_again_is_reported_and_closed(self):
        make_card(0, 0o666)
        self.up("own-devices = on")
        os.chmod(CARD, 0o666)
        until("closed again", 3, lambda: rights(CARD) == (0o600, 0, 0))
        until("reported", 3, lambda: any(e["kind"] == "device-file" and CARD in e["text"] for e in self.m.view()["events"]))
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGSTOP)
        os.chmod(CARD, 0o666)
        os.kill(agent, signal.SIGCONT)
        until("closed again", 3, lambda: rights(CARD) == (0o600, 0, 0))
        # A link replaces the file: neither the link nor its target is changed, and doctor reports it.
        shadow = self.m.folder + "/shadow"
        with open(shadow, "w", encoding="utf-8") as file:
            file.write("secret")
        os.chmod(shadow, 0o640)
        os.unlink(CARD)
        os.symlink(shadow, CARD)
        until("doctor reports it", 5, lambda: "own-devices" in self.findings())
        assert CARD in self.findings()["own-devices"]["cause"], self.findings()
        err = self.down()
        assert os.path.islink(CARD) and rights(shadow)[0] == 0o640, err
        assert "another file" in err or "another file" in open(self.m.folder + "/up.err", encoding="utf-8").read()

    def test_a_card_file_that_disappeared_does_not_stop_down(self):
        make_card(0, 0o666)
        make_card(1, 0o640)
        self.up("own-devices = on")
        os.unlink(CARD)
        self.down()
        assert not os.path.exists(CARD) and rights("/dev/nvidia1") == (0o640, 0, 0)
        assert not os.path.exists(self.m.state + "/card-files")


if __name__ == "__main__":
    sys.exit(main(DeviceCases))
