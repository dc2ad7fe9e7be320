"""The behaviour that a user of `carve up` and `carve run` relies on. One method is one test; run as root:
cases.py --bin <build>/bin test_name. Exit code 77: skipped, with the reason."""
import ctypes
import errno
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cluster", "ring"))
from stolen import Stolen  # noqa: E402
from machine import Machine, cgroup2_mount, enter_private_namespace, sh, until  # noqa: E402

GIB = 1 << 30
# The first message of a process to the socket of a slice (abi/hello.h), and the status in the reply.
HELLO = ("import socket, struct, sys\n"
         "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
         "s.connect(sys.argv[1])\n"
         "s.send(struct.pack('<IHHII', 0x48564143, 1, 1, 1, 0))\n"
         "print('status', struct.unpack('<IHHI', s.recv(32)[:12])[3])\n")


def hello_as(uid, path, mounts="", engine=None):
    """The reply of the socket at `path` to a process of this user, or the error on the way to it. With `engine`: in a
    container of that user, with the socket's folder at /mnt. Forked: other users may not start this interpreter."""
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result):
        if result != 0:
            raise OSError(ctypes.get_errno(), "")

    def become(user):
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)

    def ask():
        if engine:
            become(engine)
        if mounts:
            must(libc.unshare(0x00020000 | (0x10000000 if engine else 0)))  # NEWNS, NEWUSER
            must(libc.mount(mounts.encode(), b"/mnt", None, 4096, None))  # BIND
        if not engine:
            become(uid)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(path)
            client.send(struct.pack("<IHHII", 0x48564143, 1, 1, 1, 0))
            return f"status {struct.unpack('<IHHI', client.recv(32)[:12])[3]}"

    answer, far = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = ask()
        except OSError as error:
            said = errno.errorcode[error.errno]
        os.write(far, said.encode())
        os._exit(0)
    os.close(far)
    with os.fdopen(answer) as text:
        said = text.read()
    os.waitpid(child, 0)
    return said


class Cases:
    def __init__(self, machine):
        self.m = machine

    # -- life of a slice ---------------------------------------------------------------------------------

    def test_up_prints_ready_and_shows_the_cards(self):
        line = self.m.up()
        assert "2 × NVIDIA H200 (SIMULATED)" in line, line
        code, out, err = self.m.carve("inspect")
        assert code == 0 and "free" in out, out + err
        assert len(self.m.view()["cards"]) == 2
        code, out, _ = self.m.carve("doctor", *self.m.host)
        assert code == 0, out

    def test_run_gives_the_limit_and_frees_it(self):
        self.m.up()
        code, out, err = self.m.carve("run", "--memory", "4Gi", "--cores", "30", "--",
                                      self.m.program("carve-sample-alloc"), "--step", "64Mi")
        assert code == 0, err + self.m.logs()
        seen = json.loads(out)
        assert seen["out_of_memory"] and 3 * GIB < seen["bytes"] <= 4 * GIB, out
        assert seen["total"] == 4 * GIB, out
        until("the slice is freed", 3, lambda: not self.m.slices())

    def test_a_slice_ends_with_its_last_process(self):
        self.m.up()
        # The command exits immediately, its child stays, and so does the slice.
        self.m.carve("run", "--memory", "1Gi", "--", "sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $! > %s/pid" % self.m.folder)
        assert len(self.m.slices()) == 1
        os.kill(int(open(self.m.folder + "/pid").read()), signal.SIGKILL)
        until("the slice is freed", 3, lambda: not self.m.slices())

    def test_exit_codes_and_signals_are_the_commands_own(self):
        self.m.up()
        ask = ["run", "--memory", "1Gi", "--"]
        assert self.m.carve(*ask, "sh", "-c", "exit 7")[0] == 7
        assert self.m.carve(*ask, "sh", "-c", "kill -TERM $$")[0] == -signal.SIGTERM
        assert self.m.carve(*ask, "/nonexistent/program")[0] == 127
        assert self.m.carve(*ask, "/etc/passwd")[0] == 126
        child = self.m.start(*ask, "sh", "-c", "trap 'exit 9' INT; echo up; while :; do sleep 0.05; done")
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 9

    def test_the_terminal_is_the_commands_own(self):
        self.m.up()
        main, other = pty.openpty()
        child = self.m.start("run", "--memory", "1Gi", "--", "sh", "-c", "tty; read x; echo got-$x", stdin=other)
        os.write(main, b"hello\n")
        out, _ = child.communicate(timeout=20)
        assert "/dev/pts/" in out and "got-hello" in out, out

    def test_programs_that_use_no_card_run_unchanged(self):
        self.m.up()
        ask = ["run", "--memory", "1Gi", "--"]
        assert self.m.carve(*ask, "cat", "/proc/self/cmdline")[1] == "cat\0/proc/self/cmdline\0"
        source = self.m.folder + "/static.c"
        with open(source, "w", encoding="utf-8") as file:
            file.write('#include <stdio.h>\nint main(void) { puts("static"); return 3; }\n')
        sh(f"cc -static -o {self.m.folder}/static {source}")
        assert self.m.carve(*ask, self.m.folder + "/static")[:2] == (3, "static\n")
        if subprocess.run(["which", "musl-gcc"], capture_output=True).returncode == 0:
            sh(f"musl-gcc -o {self.m.folder}/musl {source}")
            assert self.m.carve(*ask, self.m.folder + "/musl")[:2] == (3, "static\n")
        before = dict(os.environ)
        out = self.m.carve(*ask, "env", "-0")[1]
        inside = dict(entry.split("=", 1) for entry in out.split("\0") if "=" in entry)
        assert inside == before, set(inside.items()) ^ set(before.items())

    def test_programs_find_the_driver_by_the_loaders_cache(self):
        self.m.up()
        before = open("/etc/ld.so.cache", "rb").read()
        look = os.path.join(os.path.dirname(os.path.abspath(__file__)), "look_up.py")
        for ask in (["--memory", "1Gi"], ["--whole"]):
            code, out, err = self.m.carve("run", *ask, "--", sys.executable, look)
            assert code == 0, (ask, out, err)
            assert out.splitlines() == ["triton /usr/lib/x86_64-linux-gnu", "ctypes libcuda.so.1",
                                        "ctypes libnvidia-ml.so.1", "loaded 0", "others libc.so.6"], (ask, out)
        assert open("/etc/ld.so.cache", "rb").read() == before, "the machine's own cache is unchanged"

    def test_whole_cards_get_no_library(self):
        self.m.up()
        code, out, err = self.m.carve("run", "--whole", "--", "sh", "-c",
                                      "ls /run/carve; cat /usr/lib/x86_64-linux-gnu/libcuda.so.1 | md5sum; "
                                      "%s --step 1Gi" % self.m.program("carve-sample-alloc"))
        assert code == 0, err
        driver = subprocess.run(["md5sum", self.m.state + "/simulated-driver/libcuda.so.1"], capture_output=True,
                                text=True, check=True).stdout.split()[0]
        assert driver in out and "slices" not in out, out
        assert json.loads(out.strip().split("\n")[-1])["bytes"] > 100 * GIB

    def test_other_cards_and_sockets_are_out_of_reach(self):
        self.m.up()
        code, out, err = self.m.carve("run", "--memory", "1Gi", "--", "sh", "-c",
                                      "ls -R /run/carve; for n in 0 1; do cat /dev/nvidia$n && echo open-$n; done; true")
        assert code == 0, err
        assert out.count("open-") == 1, out + err
        for name in ("agent.sock", "control", "mask", "log"):
            assert name not in out, out
        assert "No such device or address" in err, err

    def test_a_slice_is_joined_from_its_own_cgroup_only(self):
        """A process that knows the socket's name can reach it: a hello (abi/hello.h) from another cgroup is refused."""
        self.m.up()
        child = self.m.start("run", "--memory", "1Gi", "--", "sleep", "1000")
        until("running", 5, lambda: [s for s in self.m.slices().values() if s["state"] == "running"])
        (other,) = self.m.slices()
        folder = "/run/carve/slices"
        stranger = subprocess.run([sys.executable, "-c", HELLO, f"{folder}/{other}/s"], capture_output=True, text=True)
        assert stranger.stdout == "status 5\n", stranger
        code, out, err = self.m.carve("run", "--memory", "1Gi", "--", "sh", "-c", f"ls {folder}; {sys.executable} -c "
                                      f"\"$0\" {folder}/*/s", HELLO)
        assert code == 0 and out.endswith("status 0\n") and other not in out, (out, err)
        child.kill()

    def test_an_engines_slice_is_reached_by_its_mount_only(self):
        """No cgroup identifies a process in a container: any process that reaches the socket gets writable pages."""
        with open(self.m.folder + "/carve.conf", "w", encoding="utf-8") as file:
            file.write("allow = user:nobody\n")
        self.m.up("--config", self.m.folder + "/carve.conf")
        sh(f"cp {self.m.program('carve')} {self.m.folder}/carve")  # only root may enter the build folder
        self.m.bin, real = self.m.folder, self.m.bin
        try:
            code, out, err = self.m.carve("slice", "create", "--memory", "1Gi", "-o", "id", user=65534, group=65534,
                                          extra_groups=[], cwd="/")
        finally:
            self.m.bin = real
        assert code == 0, err
        slice_id = out.strip()
        with open(f"{self.m.folder}/cdi/carve-slice-{slice_id}.json", encoding="utf-8") as file:
            mounts = json.load(file)["devices"][0]["containerEdits"]["mounts"]
        inside = f"/run/carve/slices/{slice_id}"
        (source,) = [m["hostPath"] for m in mounts if m["containerPath"] == inside]

        for path in (f"{inside}/s", f"{source}/s"):
            assert hello_as(1, path) == "EACCES", path
        assert hello_as(1, "/mnt/s", mounts=source, engine=1) == "EACCES"
        assert hello_as(4711, "/mnt/s", mounts=source, engine=0) == "status 0"  # a container of any user
        assert hello_as(65534, "/mnt/s", mounts=source, engine=65534) == "status 0"  # the owner, without root
        # The arbiter sees the end of the last process a moment after it.
        until("the slice is deleted", 3, lambda: self.m.carve("slice", "delete", slice_id)[0] == 0)
        assert os.listdir("/run/carve/slices") == []

    def test_a_run_killed_before_it_joined_leaves_nothing(self):
        """The slice was granted and the run killed before it reported that it joined: the slice is freed immediately."""
        self.m.up()
        asked = json.dumps({"v": 1, "op": "allocate", "allocate": {
            "count": 1, "compute": 30, "whole": False, "model": "", "cards": [], "exclusive": False, "share": "burst",
            "priority": "standard", "policy": "binpack", "keep": False, "name": "x", "memory_bytes": GIB}}).encode()
        told, far = os.pipe()
        child = os.fork()
        if child == 0:
            client = socket.socket(socket.AF_UNIX)
            client.connect("/run/carve/agent.sock")
            client.sendall(struct.pack("<I", len(asked)) + asked)
            (length,) = struct.unpack("<I", client.recv(4, socket.MSG_WAITALL))
            os.write(far, client.recv(length, socket.MSG_WAITALL))
            time.sleep(1000)
        grant = json.loads(os.read(told, 1 << 16))
        assert grant["ok"], grant
        assert [s["state"] for s in self.m.slices().values()] == ["starting"]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        begin = time.monotonic()
        until("the slice is freed", 3, lambda: not self.m.slices())
        print(f"free {(time.monotonic() - begin) * 1000:.0f} ms after the kill")

    def test_two_cards_are_two_cards(self):
        self.m.up()
        child = self.m.start("run", "--cards", "2", "--memory", "1Gi", "--cores", "10", "--", "sleep", "1000")
        until("running", 5, lambda: [s for s in self.m.slices().values() if s["state"] == "running"])
        assert sorted(len(s["cards"]) for s in self.m.slices().values()) == [2]
        child.kill()
        until("freed", 3, lambda: not self.m.slices())

    def test_what_does_not_fit_is_refused_with_the_numbers(self):
        self.m.up()
        code, _, err = self.m.carve("run", "--memory", "200Gi", "--", "true")
        assert code == 125 and "GiB" in err and "200 GiB" in err, err
        hold = self.m.start("run", "--memory", "100Gi", "--cards", "2", "--", "sleep", "1000")
        until("running", 5, self.m.slices)
        code, _, err = self.m.carve("run", "--memory", "100Gi", "--", "true")
        assert code == 125 and "100 GiB" in err, err
        waiting = self.m.start("run", "--memory", "100Gi", "--wait=60s", "--", "echo", "ran")
        until("waits", 5, lambda: self.m.view()["waiting"] == 1)
        hold.kill()
        out, err = waiting.communicate(timeout=20)
        assert out == "ran\n" and "waiting:" in err, (out, err)

    # -- permissions --------------------------------------------------------------------------------------

    def test_an_ordinary_user_needs_a_row_and_then_gets_the_same(self):
        with open(self.m.folder + "/carve.conf", "w", encoding="utf-8") as file:
            file.write("# nobody may, within a ceiling\nallow = user:nobody max-memory=2Gi max-slices=1\n")
        self.m.up("--config", self.m.folder + "/carve.conf")

        def nobody(*args, **kwargs):
            return self.m.carve(*args, user=65534, group=65534, extra_groups=[], cwd="/", **kwargs)

        def daemon(*args):
            return self.m.carve(*args, user=1, group=1, extra_groups=[], cwd="/")

        # The build may be in a folder that only root can enter, but the program must be accessible.
        program = self.m.folder + "/alloc"
        sh(f"cp {self.m.program('carve-sample-alloc')} {program}")
        carve = self.m.folder + "/carve"
        sh(f"cp {self.m.program('carve')} {carve}")
        self.m.bin, real = self.m.folder, self.m.bin
        try:
            code, _, err = daemon("run", "--memory", "1Gi", "--", "true")
            assert code == 125 and "user 1 may not" in err, err
            code, _, err = nobody("run", "--memory", "3Gi", "--", "true")
            assert code == 125 and "at most 2 GiB" in err, err
            code, out, err = nobody("run", "--memory", "2Gi", "--cores", "10", "--", program, "--step", "16Mi")
            assert code == 0, err
            assert json.loads(out)["total"] == 2 * GIB, out
            code, out, err = nobody("run", "--memory", "1Gi", "--", "sh", "-c", "id -u; ls /run/carve/slices | wc -l")
            assert (code, out) == (0, "65534\n1\n"), (code, out, err)
        finally:
            self.m.bin = real

    def test_others_do_not_read_a_command_line(self):
        with open(self.m.folder + "/carve.conf", "w", encoding="utf-8") as file:
            file.write("allow = user:nobody\nallow = user:daemon\n")
        self.m.up("--config", self.m.folder + "/carve.conf")
        sh(f"cp {self.m.program('carve')} {self.m.folder}/carve")  # only root may enter the build folder
        child = self.m.start("run", "--memory", "1Gi", "--", "/bin/sh", "-c", "sleep 1000 # --token secret")
        until("running", 5, lambda: [s for s in self.m.slices().values() if s["state"] == "running"])
        for form in (["slice", "list"], ["slice", "list", "-o", "json"], ["inspect"], ["inspect", "-o", "json"],
                     ["top", "--once"], ["top", "--once", "-o", "json"]):
            assert "secret" in self.m.carve(*form)[1] or form[-1] == "--once", form
            done = subprocess.run([self.m.folder + "/carve", *form], user=1, group=1, extra_groups=[], cwd="/",
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 0 and "secret" not in done.stdout and "sh" in done.stdout, (form, done)
        child.kill()

    def test_output_that_does_not_arrive_is_an_error(self):
        self.m.up()
        for words in ("inspect", "inspect -o json", "top --once", "top --once -o json", "slice list",
                      "slice list -o json", "doctor", "version", "completion bash", "run --help", "--help",
                      "slice create --memory 1Gi", "slice create --memory 1Gi -o id", "slice create --memory 1Gi -o docker",
                      "slice create --memory 1Gi -o json"):
            with open("/dev/full", "w", encoding="utf-8") as full:
                flags = self.m.host if words == "doctor" else []
                done = subprocess.run([self.m.bin + "/carve", *words.split(), *flags], stdout=full,
                                      stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 1 and "standard output: " in done.stderr, (words, done)
        assert not self.m.slices(), "a slice is freed if its ID was never printed"
        assert self.m.carve("run", "--memory", "1Gi", "--", "sh", "-c", "exit 7")[0] == 7

    def standing(self):
        """All state that a command could change: slices, the queue, and the state on disk and in the kernel."""
        view = self.m.view()
        files = {}
        for root, folders, names in os.walk(self.m.state):
            # The agent records the history every 10 s.
            folders[:] = [name for name in folders if name not in ("lib", "simulated-driver", "history")]
            for name in names:
                with open(os.path.join(root, name), "rb") as file:
                    files[os.path.join(root, name)] = file.read()
        cdi = self.m.folder + "/cdi"
        return {"slices": view["slices"], "waiting": view["waiting"],
                "cards": [(c["uuid"], c["set_aside_bytes"], c["healthy"]) for c in view["cards"]],
                "state": files, "pids": [self.m.pid_of(name) for name in ("agent", "arbiter", "driver")],
                "devices": os.listdir(cdi) if os.path.isdir(cdi) else [],
                "folders": sorted(os.listdir("/run/carve")), "slice folders": os.listdir("/run/carve/slices"),
                "cgroups": [name for name in os.listdir(self.m.cgroup) if os.path.isdir(f"{self.m.cgroup}/{name}")]}

    def test_bad_input_changes_nothing(self):
        self.m.up()
        before = self.standing()
        assert before["state"] and before["folders"], before
        table = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bad_input.tsv")
        rows = [line.rstrip("\n").split("\t") for line in open(table, encoding="utf-8") if not line.startswith("#")]
        wrong = []
        for args, expected in rows:
            code, _, err = self.m.carve(*args.split())
            if code != 2 or expected not in err:
                wrong.append(f"{args}: exit {code}, said: {err}")
        assert not wrong, "\n".join(wrong)
        after = self.standing()
        for what, value in before.items():
            assert after[what] == value, (what, value, after[what])
        print(f"{len(rows)} rows of bad input, each with exit code 2")

    def test_bad_configuration_names_every_line(self):
        path = self.m.folder + "/bad.conf"
        with open(path, "w", encoding="utf-8") as file:
            file.write("allow = user:no-such-user\nfrobnicate = 1\non-memory-breach = shout\nstate-dir = x\nnonsense\n")
        code, _, err = self.m.carve("up", "--check-config", "--config", path)
        assert code == 2, err
        for number, word in ((1, "no-such-user"), (2, "unknown key"), (3, "shout"), (4, "absolute"), (5, "key = value")):
            assert f"bad.conf:{number}:" in err and word in err, err

    def test_a_nodes_agent_ends_for_another_configuration_and_goes_on_with_a_bad_one(self):
        folder = self.m.folder
        conf, log = folder + "/carve.conf", folder + "/agent.err"

        def change(text):       # in one step, as the kubelet changes a mounted ConfigMap
            with open(conf + ".next", "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(conf + ".next", conf)

        def times(words):
            with open(log, encoding="utf-8") as file:
                return file.read().count(words)

        def said(words):
            return times(words) > 0
        change("on-memory-breach = report\n")
        sh(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {folder}/key.pem "
           f"-out {folder}/ca.pem -days 2 -subj /CN=nobody 2>/dev/null")
        with open(folder + "/kubeconfig", "w", encoding="utf-8") as file:      # no server listens there
            json.dump({"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                       "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1",
                                                              "certificate-authority": folder + "/ca.pem"}}],
                       "users": [{"name": "u", "user": {"token": "t"}}]}, file)
        with open(log, "w", encoding="utf-8") as err:
            agent = subprocess.Popen([self.m.program("carve"), "agent", "--node-name", "n1", "--plugins", "dra",
                                      "--config", conf, "--kubeconfig", folder + "/kubeconfig",
                                      "--kubelet-dir", folder + "/kubelet", *self.m.host], stderr=err)
        self.m.children.append(agent)
        until("the agent serves", 20, lambda: said("agent serves"))
        for word in ("explode", "shout"):       # reading the second proves that it did not end for the first
            change(f"on-memory-breach = {word}\n")
            until(f"it says what is wrong with {word}", 20, lambda word=word: said(word))
            assert agent.poll() is None, "it ended and would not start again"
            code, _, err = self.m.carve("probe", "agent", "--config", conf)
            assert code == 0 and f'"{word}"' in err, f"a pod's probe needs no configuration: {code}, {err}"
        assert said("carve.conf:1: on-memory-breach: ")
        for turn, word in enumerate(("kill", "report", "kill"), start=2):
            began = time.monotonic()
            change(f"on-memory-breach = {word}\n")
            until(f"start {turn} serves", 20, lambda turn=turn: times("agent serves") == turn)
            assert agent.poll() is None, "the container would end, and the kubelet would wait before the next start"
            assert time.monotonic() - began < 5, "one second to notice, less than two without an agent"
        assert times("the settings changed") == 3
        agent.terminate()
        assert agent.wait(timeout=20) == 0

    def test_a_bad_profile_is_refused(self):
        code, _, err = self.m.carve("up", "--simulate", "gtx9x2", *self.m.host)
        assert code == 2 and "gtx9" in err and "h200" in err, err
        assert not os.path.exists("/run/carve/agent.sock")

    # -- deaths -------------------------------------------------------------------------------------------

    def spin(self, cores, *flags):
        child = self.m.start("run", "--memory", "2Gi", "--cores", str(cores), *flags, "--",
                             self.m.program("carve-sample-spin"), "--seconds", "120", "--kernel-us", "1000")
        until("on the card", 10, lambda: any(p["pid"] == child.pid and p["gpu_ns"] > 0
                                             for p in self.m.truth("account")["processes"])
              or (child.poll() is not None and self.fail(child)))
        return child.pid

    @staticmethod
    def fail(child):
        out, err = child.communicate()
        raise AssertionError(f"it ended with {child.returncode}: {out}{err}")

    def shares(self, pids, seconds):
        """The delivered percentage of each process over the next seconds, from the driver's own account."""
        def gpu_ns():
            by_pid = {p["pid"]: p["gpu_ns"] for p in self.m.truth("account")["processes"]}
            return [by_pid[pid] for pid in pids], time.monotonic_ns()
        before, start = gpu_ns()
        time.sleep(seconds)  # the measurement itself
        after, end = gpu_ns()
        return [100.0 * (b - a) / (end - start) for a, b in zip(before, after)]

    def assert_shares(self, what, pids, wanted, points, seconds=2):
        host, got = Stolen(), self.shares(pids, seconds)
        taken = host.percent()
        text = f"{what}: wanted {wanted}, delivered {[round(x, 1) for x in got]}, the host took {taken:.1f} % of the processors"
        print(text)
        assert all(abs(g - w) <= points + taken for g, w in zip(got, wanted)), text

    # A program that allocates all it can, frees everything and repeats, for ever. It records each refusal.
    GRABBER = """
import ctypes, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
refusals = 0
while True:
    held, result = [], 0
    while result == 0:
        at = ctypes.c_uint64()
        result = cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(32 << 20))
        if result == 0:
            held.append(at)
        time.sleep(0.005)
    if result != 2:
        sys.exit(result)
    refusals += 1
    os.pwrite(file, str(refusals).encode(), 0)
    for at in held:
        assert cuda.cuMemFree_v2(at) == 0
"""

    def grab(self, gibibytes):
        """Starts it in a slice with memory only. Returns a function that checks whether the limit has held so far."""
        path = f"{self.m.folder}/refusals"
        child = self.m.start("run", "--memory", f"{gibibytes}Gi", "--", sys.executable, "-c", self.GRABBER, path)

        def refusals():
            if child.poll() is not None:
                self.fail(child)
            return int(open(path, encoding="utf-8").read() or 0) if os.path.exists(path) else 0

        def look(when):
            """It was refused since the last check, and never had more than the slice's limit."""
            more = refusals() + 1
            until(f"{when}: a refusal", 10, lambda: refusals() >= more)
            (own,) = [p for p in self.m.truth("account")["processes"] if p["pid"] == child.pid and p["contexts"]]
            room = gibibytes * GIB - own["context_bytes"]
            assert room - (32 << 20) < own["explicit_high_bytes"] <= room, (when, own)
        until("it takes memory", 20, lambda: refusals() > 0)
        return child, look

    def worker(self):
        """The agent's child process that talks to the driver; None while there is none."""
        agent = self.m.pid_of("agent")
        for pid in os.listdir("/proc"):
            try:
                if pid.isdigit() and f"PPid:\t{agent}\n" in open(f"/proc/{pid}/status").read():
                    return int(pid)
            except OSError:
                pass
        return None

    def assert_delivered_as_shown(self, wanted):
        """Compares the shares in `carve top` with the driver's own account of the same seconds."""
        for _ in range(3):  # a second that begins during the check may differ, but not three times
            since = time.monotonic_ns()
            time.sleep(1.5)  # top shows the last second
            code, out, err = self.m.carve("top", "--once", "-o", "json")
            assert code == 0, err
            shown = sorted(round(s["cards"][0]["delivered_percent"], 1) for s in json.loads(out)["slices"])
            rows = self.m.truth("windows", "--ms", "100", "--since", str(since))["windows"]
            starts = sorted({r["start_ns"] for r in rows})[-10:]
            truth = sorted([0.0] + [sum(r["gpu_ns"] for r in rows if r["pid"] == pid and r["start_ns"] in starts) /
                                    (len(starts) * 1e6) for pid in wanted])
            text = f"carve top shows {shown}, the driver accounts {[round(x, 1) for x in truth]}"
            print(text)
            if len(shown) == len(truth) and all(abs(s - t) <= 5 for s, t in zip(shown, truth)):
                return
        raise AssertionError(text)

    def test_shares_and_limits_hold_while_everything_dies(self):
        self.m.up()
        pids = [self.spin(30), self.spin(70)]
        grabber, limit_held = self.grab(2)
        time.sleep(1)  # real time, here and below: shares are judged after one second
        self.assert_shares("all alive", pids, (30, 70), 5)
        self.assert_delivered_as_shown(pids)
        limit_held("all alive")
        first = until("a worker", 5, self.worker)
        os.kill(first, signal.SIGKILL)
        self.assert_shares("worker killed", pids, (30, 70), 5)
        limit_held("worker killed")
        second = until("another worker", 10, lambda: self.worker() not in (None, first) and self.worker())
        until("recovered", 15, lambda: self.m.view()["gpu_state"] == "ok")
        os.kill(second, signal.SIGSTOP)
        self.assert_shares("worker stopped", pids, (30, 70), 5)
        limit_held("worker stopped")
        until("a third worker", 15, lambda: self.m.view()["gpu_state"] == "ok" and self.worker() not in (None, second))
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        self.assert_shares("agent killed", pids, (30, 70), 5)
        limit_held("agent killed")
        until("another agent", 10, lambda: self.m.pid_of("agent") != agent and self.m.carve("inspect")[0] == 0)
        assert len(self.m.slices()) == 3
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGSTOP)
        self.assert_shares("agent stopped", pids, (30, 70), 5)
        limit_held("agent stopped")
        os.kill(agent, signal.SIGCONT)
        arbiter = self.m.pid_of("arbiter")
        os.kill(arbiter, signal.SIGSTOP)
        time.sleep(0.5)
        got = self.shares(pids, 2)
        print("arbiter stopped: delivered", [round(x, 1) for x in got])
        # Each slice continues on its own, at most at its last rate. They overlap on the card, which switches between
        # them: each gets at least two thirds of its rate.
        assert 30 * 2 / 3 <= got[0] <= 35 and 70 * 2 / 3 <= got[1] <= 75, got
        limit_held("arbiter stopped")
        os.kill(arbiter, signal.SIGCONT)
        time.sleep(1)
        self.assert_shares("arbiter continues, after 1 s", pids, (30, 70), 5)
        os.kill(arbiter, signal.SIGKILL)
        limit_held("arbiter killed")
        until("another arbiter", 10, lambda: self.m.pid_of("arbiter") != arbiter)
        time.sleep(1)
        self.assert_shares("1 s after the arbiter was replaced", pids, (30, 70), 5)
        agent, arbiter = self.m.pid_of("agent"), self.m.pid_of("arbiter")
        os.kill(arbiter, signal.SIGKILL)
        os.kill(agent, signal.SIGKILL)
        limit_held("both killed")
        until("both back", 10, lambda: self.m.pid_of("arbiter") != arbiter and self.m.pid_of("agent") != agent
              and self.m.carve("inspect")[0] == 0)
        time.sleep(1)
        self.assert_shares("both killed, 1 s after they are back", pids, (30, 70), 5)
        until("all is well", 5, lambda: self.m.view()["arbiter_state"] == "ok")
        self.assert_delivered_as_shown(pids)
        limit_held("all is well again")
        grabber.kill()
        os.kill(pids[0], signal.SIGKILL)
        os.kill(pids[1], signal.SIGKILL)
        until("freed", 3, lambda: not self.m.slices())

    def test_the_second_line_catches_another_driver_library(self):
        self.m.up()
        copy = os.path.join(os.path.dirname(self.m.bin), "sim", "lib")
        time.sleep(1.2)  # the arbiter's list of registered processes is valid after its first second
        start = time.monotonic()
        child = self.m.start("run", "--memory", "1Gi", "--", "env", "LD_LIBRARY_PATH=" + copy,
                             self.m.program("carve-sample-alloc"), "--step", "64Mi", "--target", "3Gi", "--hold", "60")
        code = child.wait(timeout=20)
        took = time.monotonic() - start
        assert code == -signal.SIGKILL, (code, child.communicate())
        events = [e for e in self.m.view()["events"] if e["kind"] == "breach-unregistered"]
        assert events and f"process {child.pid}" in events[0]["text"], events
        print(f"caught {took * 1000:.0f} ms after its start")
        assert took < 1.5, took  # includes the start of the program and two rounds of the watchdog
        code, out, _ = self.m.carve("doctor", *self.m.host)
        assert code == 1 and "second line acted" in out, out

    def test_honest_jobs_are_left_alone_by_the_second_line(self):
        self.m.up()
        children = []
        for cores, share, kernel_us in ((10, "burst", 3_000_000), (20, "fixed", 500), (30, "burst", 5000)):
            children.append(self.m.start("run", "--memory", "2Gi", "--cores", str(cores), "--share", share, "--",
                                         self.m.program("carve-sample-spin"), "--seconds", "60", "--kernel-us",
                                         str(kernel_us)))
        until("running", 10, lambda: len(self.m.slices()) == 3)
        time.sleep(8)  # real time: four times the span after which compute is a breach
        assert all(child.poll() is None for child in children)
        events = [e for e in self.m.view()["events"] if e["kind"].startswith("breach")]
        assert not events, events

    def test_refused_memory_and_waits_for_a_lease_are_counted(self):
        self.m.up()
        self.m.start("run", "--memory", "1Gi", "--", self.m.program("carve-sample-alloc"), "--step", "64Mi", "--hold", "60")
        until("inspect shows the refusal", 10, lambda: "its memory limit refused 1 request for 64 MiB in all" in
              self.m.carve("inspect")[1])
        for cores in (30, 30):
            self.m.start("run", "--memory", "1Gi", "--cores", str(cores), "--share", "fixed", "--",
                         self.m.program("carve-sample-spin"), "--seconds", "60", "--kernel-us", "500")

        def counted():
            code, out, err = self.m.carve("top", "--once", "-o", "json")
            assert code == 0, err
            return [one["cards"][0]["counters"] for one in json.loads(out)["slices"]   # not before they are first read
                    if one["cards"][0]["compute"] == 30 and "counters" in one["cards"][0]]
        until("both were held back by their share", 20, lambda: len(counted()) == 2 and
              all(one["capped_ns"] > 1e9 for one in counted()))
        clocks = [(card["sm_clock_mhz"] > 0, card["memory_clock_mhz"] > 0) for card in self.m.view()["cards"]]
        assert clocks and all(one == (True, True) for one in clocks), clocks
        for one in counted():
            assert sum(one["waits"]) > 10 and one["gated_launches"] > 10 and one["waited_ns"] >= one["capped_ns"] > 0, one
            assert one["refused_requests"] == 0, one

    def test_a_process_outside_any_slice_is_shown_and_left_alone(self):
        self.m.up()
        env = dict(os.environ, LD_LIBRARY_PATH=self.m.state + "/simulated-driver")
        child = subprocess.Popen([self.m.program("carve-sample-alloc"), "--target", "1Gi", "--hold", "60"], env=env,
                                 stdout=subprocess.DEVNULL)
        self.m.children.append(child)
        until("shown", 5, lambda: [p for c in self.m.view()["cards"] for p in c["foreign"] if p["pid"] == child.pid])
        assert "foreign" in self.m.carve("top", "--once")[1]
        # The second line ends a process that bypasses the library in a slice, and leaves this one alone in the same
        # rounds.
        copy = os.path.join(os.path.dirname(self.m.bin), "sim", "lib")
        in_slice = self.m.start("run", "--memory", "1Gi", "--", "env", "LD_LIBRARY_PATH=" + copy,
                                self.m.program("carve-sample-alloc"), "--target", "3Gi", "--hold", "60")
        assert in_slice.wait(timeout=20) == -signal.SIGKILL, in_slice.communicate()
        assert child.poll() is None

    def test_the_agent_is_small_and_quiet(self):
        self.m.up()
        agent = self.m.pid_of("agent")

        def cpu():
            fields = open(f"/proc/{agent}/stat").read().rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before = cpu()
        time.sleep(5)  # the measurement itself
        percent = (cpu() - before) / 5 * 100
        rss = int([line for line in open(f"/proc/{agent}/status") if line.startswith("VmRSS")][0].split()[1])
        print(f"idle: {percent:.2f} % of a core, {rss / 1024:.1f} MiB resident")
        assert percent <= 2 and rss <= 30 * 1024, (percent, rss)

    def test_a_second_up_is_refused(self):
        self.m.up()
        code, _, err = self.m.carve("up", "--simulate", "h200x2", *self.m.host)
        assert code == 1 and "already runs" in err and str(self.m.up_process.pid) in err, err

    def test_up_killed_leaves_everything_running_and_is_adopted(self):
        self.m.up()
        child = self.m.start("run", "--memory", "1Gi", "--", "sleep", "1000")
        until("running", 5, self.m.slices)
        pids = {name: self.m.pid_of(name) for name in ("agent", "arbiter", "driver")}
        self.m.up_process.kill()
        self.m.up_process.wait()
        assert len(self.m.slices()) == 1
        self.m.up()
        assert {name: self.m.pid_of(name) for name in pids} == pids
        assert len(self.m.slices()) == 1 and child.poll() is None

    def test_agent_killed_comes_back_with_the_same_slices(self):
        self.m.up()
        stays = self.m.start("run", "--memory", "3Gi", "--cores", "20", "--", "sleep", "1000")
        goes = self.m.start("run", "--memory", "2Gi", "--", "sleep", "1000")
        until("running", 5, lambda: len([s for s in self.m.slices().values() if s["state"] == "running"]) == 2)
        before = self.m.slices()
        agent = self.m.pid_of("agent")
        os.kill(agent, signal.SIGKILL)
        goes.kill()
        goes.wait()
        until("another agent", 10, lambda: self.m.pid_of("agent") != agent and self.m.carve("inspect")[0] == 0)
        until("only the running one", 5, lambda: len(self.m.slices()) == 1)
        (left,) = self.m.slices()
        assert before[left]["cards"][0]["limit_bytes"] == self.m.slices()[left]["cards"][0]["limit_bytes"] == 3 * GIB
        stays.kill()
        until("freed", 3, lambda: not self.m.slices())

    def test_a_client_waits_while_the_agent_is_started_again(self):
        self.m.up()
        for _ in range(3):
            self.m.kill_agent()
            code, _, err = self.m.carve("inspect")
            assert code == 0, err
            self.m.kill_agent()
            code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
            assert code == 0, err
        self.m.carve("down", "--force", "--cgroup-root", self.m.cgroup)
        self.m.up_process.wait(timeout=20)
        begin = time.monotonic()
        code, _, err = self.m.carve("inspect")
        assert code == 1 and "start it with `carve up`" in err and time.monotonic() - begin < 3, "nothing starts the agent"

    def test_doctor_reads_the_settings_of_the_running_instance(self):
        """The instance was started with its own folders, which the doctor command does not get."""
        self.m.up()
        assert not os.path.isdir("/var/lib/carve/journal.d"), "this machine has an instance in the usual place"
        code, out, err = self.m.carve("doctor")
        assert code == 0 and "nothing is wrong" in out and "/var/lib/carve" not in out, out + err
        code, out, err = self.m.carve("slice", "create", "--memory", "1Gi", "-o", "docker")
        assert code == 0 and "--mount=" in out, err  # through the file in its CDI folder

    def test_a_damaged_journal_names_the_remedy(self):
        folder = self.m.state + "/journal.d"
        self.m.up()
        child = self.m.start("run", "--memory", "1Gi", "--", "sh", "-c", "echo runs; exec sleep 1000")
        assert child.stdout.readline() == "runs\n"
        self.m.up_process.kill()
        self.m.up_process.wait()
        self.m.kill_agent()
        with open(folder + "/journal", "r+b") as file:
            file.seek(40)
            file.write(b"damage")
        before = open(folder + "/journal", "rb").read()
        code, _, err = self.m.carve("up", "--simulate", self.m.profile, *self.m.host)
        assert code == 1 and "journal" in err and "To recover: `mv " in err, err
        assert open(folder + "/journal", "rb").read() == before, "nothing was changed"
        code, out, _ = self.m.carve("doctor", *self.m.host)
        assert code == 1 and "journal-damaged" in out, out
        remedy = err.split("To recover: `")[1].split("`")[0]
        sh(remedy)
        self.m.up()
        assert child.wait(timeout=10) == -signal.SIGKILL and not self.m.slices(), "as the remedy says"
        assert self.m.carve("run", "--memory", "1Gi", "--", "true")[0] == 0

    def test_doctor_recognises_a_read_only_cgroup2_mount(self):
        mount = cgroup2_mount()
        sh(f"mount --bind {mount} {mount} && mount -o remount,bind,ro {mount}")
        try:
            code, out, _ = self.m.carve("doctor", *self.m.host)
            assert code == 1 and f"mount -o remount,rw {mount}" in out and "mount -t cgroup2" not in out, out
            process = self.m.start_up()
            assert process.stdout.readline().startswith("ready:"), self.m.logs()
            self.m.up_process = process
            code, out, _ = self.m.carve("doctor", *self.m.host)
            assert code == 1 and f"mount -o remount,rw {mount}" in out and "Read-only file system" in out, out
        finally:
            sh(f"umount {mount}")

    def test_worker_killed_or_stopped_is_replaced_and_named(self):
        self.m.up()
        first = until("a worker", 5, self.worker)
        os.kill(first, signal.SIGKILL)
        second = until("another worker", 10, lambda: self.worker() not in (None, first) and self.worker())
        # A worker that initialises cards has 15 s; a worker that is queried for their use has 1 s.
        until("recovered", 15, lambda: self.m.view()["gpu_state"] == "ok")
        os.kill(second, signal.SIGSTOP)
        until("named", 10, lambda: any(e["kind"] == "driver-hanging" for e in self.m.view()["events"]))
        until("recovered", 15, lambda: self.m.view()["gpu_state"] == "ok" and self.worker() not in (None, second))

    def test_arbiter_stopped_is_named_and_refuses_new_slices(self):
        self.m.up()
        arbiter = self.m.pid_of("arbiter")
        os.kill(arbiter, signal.SIGSTOP)
        try:
            until("named", 10, lambda: self.m.view()["arbiter_state"] == "stopped")
            code, out, _ = self.m.carve("doctor", *self.m.host)
            assert code == 1 and "arbiter is stopped" in out, out
            code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
            assert code == 125, err
        finally:
            os.kill(arbiter, signal.SIGCONT)
        until("recovered", 10, lambda: self.m.view()["arbiter_state"] == "ok")
        assert not self.m.slices()
        assert self.m.carve("run", "--memory", "1Gi", "--", "true")[0] == 0

    def test_a_program_that_starts_while_no_arbiter_answers_waits_for_one(self):
        """Most programs never call cuInit again after an error. A stopped arbiter is like one without a processor."""
        self.m.up()
        program = f"echo ready; read line; exec {self.m.program('carve-sample-alloc')} --step 64Mi --target 64Mi"
        waiting = [self.m.start("run", "--memory", "1Gi", "--", "sh", "-c", program, stdin=subprocess.PIPE)
                   for _ in range(2)]
        for child in waiting:
            assert child.stdout.readline() == "ready\n"
        arbiter = self.m.pid_of("arbiter")
        os.kill(arbiter, signal.SIGSTOP)
        try:
            for child in waiting:
                child.stdin.write("\n")
                child.stdin.flush()
            time.sleep(7)  # longer than the library waits when there is no arbiter
            assert [child.poll() for child in waiting] == [None, None]
        finally:
            os.kill(arbiter, signal.SIGCONT)
        for child in waiting:
            assert child.wait(timeout=20) == 0, child.communicate()

    def test_a_stale_socket_is_replaced(self):
        self.m.up()
        self.m.up_process.kill()
        self.m.up_process.wait()
        os.kill(self.m.pid_of("agent"), signal.SIGKILL)
        until("dead", 5, lambda: self.m.carve("inspect")[0] == 1)
        code, out, _ = self.m.carve("doctor", *self.m.host)
        assert code == 1 and "stale" in out, out
        self.m.up()
        assert self.m.carve("inspect")[0] == 0

    def test_a_full_disk_refuses_and_loses_nothing(self):
        os.makedirs(self.m.state)
        sh(f"mount -t tmpfs -o size=40m carve-test {self.m.state}")
        self.m.up()
        child = self.m.start("run", "--memory", "1Gi", "--", "sleep", "1000")
        until("running", 5, self.m.slices)
        subprocess.run(f"dd if=/dev/zero of={self.m.state}/fill bs=4k", shell=True, capture_output=True)
        # The journal's last block has some space left; after that the disk is full.
        for _ in range(40):
            code, _, err = self.m.carve("run", "--memory", "1Gi", "--", "true")
            if code != 0:
                break
        assert code == 125 and "No space left" in err, (code, err)
        code, out, _ = self.m.carve("doctor", *self.m.host)
        assert code == 1 and "full" in out, out
        assert child.poll() is None, child.communicate()
        until("only the running one", 3, lambda: len(self.m.slices()) == 1)
        child.kill()
        until("freed on a full disk", 3, lambda: not self.m.slices())
        os.unlink(self.m.state + "/fill")
        assert self.m.carve("run", "--memory", "1Gi", "--", "true")[0] == 0

    def test_a_read_only_state_folder_is_a_clear_error(self):
        os.makedirs(self.m.state)
        sh(f"mount -t tmpfs -o ro carve-test {self.m.state}")
        code, _, err = self.m.carve("up", "--simulate", "h200x2", *self.m.host)
        assert code == 1 and "Read-only" in err, err

    def test_another_journal_version_is_a_clear_error_and_kept(self):
        # A later version: there never was one before version 1 (tests/fixtures/journal has a journal of each).
        folder = self.m.state + "/journal.d"
        os.makedirs(folder)
        with open(folder + "/journal", "w", encoding="utf-8") as file:
            file.write("carve-journal 99\n")
        before = open(folder + "/journal", "rb").read()
        code, _, err = self.m.carve("up", "--simulate", "h200x2", *self.m.host)
        assert code == 1 and "journal" in err, err
        assert open(folder + "/journal", "rb").read() == before

    def test_down_refuses_while_slices_live_and_then_removes_what_was_made(self):
        self.m.up()
        child = self.m.start("run", "--memory", "1Gi", "--", "sleep", "1000")
        until("running", 5, self.m.slices)
        code, _, err = self.m.carve("down", "--cgroup-root", self.m.cgroup)
        assert code == 1 and "--force" in err, err
        code, out, err = self.m.carve("down", "--force", "--cgroup-root", self.m.cgroup)
        assert code == 0, out + err
        assert child.wait(timeout=10) == -signal.SIGKILL
        assert self.m.up_process.wait(timeout=10) == 0
        left = [name for name in os.listdir("/run/carve") if name not in ("log",)]
        assert not left, subprocess.run("ps axf | grep carve; ls -la /run/carve", shell=True, capture_output=True, text=True).stdout
        assert not [name for name in os.listdir("/dev") if name.startswith("nvidia")], os.listdir("/dev")
        assert not os.path.exists(self.m.cgroup)
        assert "carve-pages" not in open("/proc/self/mountinfo").read()

    def test_a_down_that_is_killed_is_finished_by_the_next(self):
        for milliseconds in (5, 15, 30, 45, 60, 90, 130, 200):
            self.m.up()
            children = [self.m.start("run", "--memory", "1Gi", "--", "sleep", "1000") for _ in range(3)]
            assert self.m.carve("slice", "create", "--memory", "1Gi")[0] == 0
            until("running", 5, lambda: [one["state"] for one in self.m.slices().values()].count("running") == 4)
            down = self.m.start("down", "--force", "--cgroup-root", self.m.cgroup)
            time.sleep(milliseconds / 1000)  # the time decides in which step it dies
            down.kill()
            down.wait()
            code, out, err = self.m.carve("down", "--force", "--cgroup-root", self.m.cgroup)
            assert code == 0, (milliseconds, out + err)
            for child in children:
                assert child.wait(timeout=10) == -signal.SIGKILL, milliseconds
            assert self.m.up_process.wait(timeout=10) == 0
            left = [name for name in os.listdir("/run/carve") if name != "log"]
            assert not left and not os.path.exists(self.m.cgroup), (milliseconds, left)
            assert not os.listdir(self.m.folder + "/cdi"), milliseconds
            assert "carve-pages" not in open("/proc/self/mountinfo").read(), milliseconds

    # -- devices ------------------------------------------------------------------------------------------

    def test_a_slice_for_containers_is_a_device_until_it_is_deleted(self):
        self.m.up()
        code, out, err = self.m.carve("slice", "create", "--memory", "4Gi", "--cores", "30", "-o", "json")
        assert code == 0, err
        grant = json.loads(out)
        (name,) = os.listdir(self.m.folder + "/cdi")
        spec = json.load(open(f"{self.m.folder}/cdi/{name}"))
        assert grant["device"] == "carve.elasticgpu.io/slice=" + spec["devices"][0]["name"]
        os.kill(self.m.pid_of("agent"), signal.SIGKILL)
        until("back", 10, lambda: self.m.carve("inspect")[0] == 0)
        assert list(self.m.slices()) == [grant["slice"]]
        assert self.m.carve("slice", "delete", grant["slice"])[0] == 0
        assert not self.m.slices() and not os.listdir(self.m.folder + "/cdi")
        code, _, err = self.m.carve("slice", "delete", grant["slice"])
        assert code == 1 and "no slice" in err, err


    def test_down_of_a_node_removes_nothing_under_an_agent_that_does_not_answer(self):
        root = self.m.folder + "/root"
        journal = root + "/var/lib/carve/journal.d"
        os.makedirs(journal)
        with open(journal + "/lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)        # like a stopped agent, which does not serve its socket
            down = self.m.start("down", "--node-name", "n1", "--host-root", root, "--kubeconfig", root + "/none")
            time.sleep(2)  # real time: it checks once a second, which is not visible
            assert down.poll() is None and os.path.isdir(journal), down.communicate()
        _, err = down.communicate(timeout=10)       # the agent has ended: next is the API server, which does not exist
        assert down.returncode != 0 and "none" in err and "another carve agent" not in err, err

    # -- texts --------------------------------------------------------------------------------------------

    def test_every_command_has_help_with_an_example(self):
        for command in ("", "up", "down", "agent", "arbiter", "run", "slice create", "slice delete", "slice list",
                        "inspect", "top", "doctor", "probe", "version", "completion", "lint", "convert", "explain", "dialects"):
            code, out, err = self.m.carve(*command.split(), "--help")
            assert code == 0 and "carve " in out, (command, err)
            assert "Example" in out or "Start here" in out, command

    def test_version_names_commit_and_page_abi(self):
        code, out, _ = self.m.carve("version")
        assert code == 0 and "commit " in out and "page ABI " in out, out

    def test_completion_completes(self):
        script = ("source <(%s/carve completion bash); COMP_WORDS=(carve %s); COMP_CWORD=%d; _carve; "
                  "echo ${COMPREPLY[@]}")

        def complete(words, index):
            return subprocess.run(["bash", "-c", script % (self.m.bin, words, index)], capture_output=True, text=True,
                                  check=True).stdout.split()
        assert complete("ins", 1) == ["inspect"]
        assert complete("run --mem", 2) == ["--memory"]
        assert complete("slice cr", 2) == ["create"]
        assert complete("slice create --sh", 3) == ["--share"]
        for command in ("probe", "keep-files", "agent"):    # its own flags, not the words of `carve`
            words = complete(command, 2)
            assert "--help" in words and "inspect" not in words, (command, words)
        assert complete("keep", 1) == [], "only suggested where a person starts it"
        assert self.m.carve("completion", "zsh")[1].startswith("autoload")

    def test_manifests_are_checked_and_converted_without_an_agent(self):
        folder = self.m.folder + "/manifests"
        os.makedirs(folder + "/below")
        os.makedirs(self.m.folder + "/empty")
        old = ("apiVersion: extensions/v1beta1\nkind: DaemonSet\nmetadata: {name: d}\nspec:\n  template:\n"
               "    metadata: {labels: {app: d}}\n    spec:\n      containers:\n      - {name: c, image: i, "
               "resources: {limits: {aliyun.com/gpu-mem: 2}}}\n")
        other = "# kept\nkind: ConfigMap\napiVersion: v1\nmetadata: {name:   m}\n"
        for name, text in (("b.yaml", old), ("below/a.yml", other), ("notes.txt", "not: a manifest")):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        code, out, err = self.m.carve("lint", folder)
        assert code == 1 and f"{folder}/b.yaml:9: reads: DaemonSet d: container c: gpushare: 2 GiB, besteffort\n" in out, out
        assert out.endswith("2 file(s), 0 error(s), 2 fixable by `carve convert`\n"), out
        code, out, err = self.m.carve("convert", folder)
        assert code == 0 and "apiVersion: apps/v1\n" in out and out.endswith("---\n" + other), (code, out, err)
        assert err.count("changed: DaemonSet d: ") == 2, err
        code, again, err = self.m.carve("convert", "-", input=out)
        assert code == 0 and again == out and not err, "what is converted stays"
        code, out, _ = self.m.carve("lint", "-", input=out)
        assert code == 0 and "stdin:" in out, out
        code, out, _ = self.m.carve("convert", "--to", "dra", "-", input=old)
        assert code == 0 and "kind: ResourceClaimTemplate\n" in out, out
        hami = old.replace("aliyun.com/gpu-mem: 2", "nvidia.com/gpu: 1, nvidia.com/gpumem: 1024")
        code, out, _ = self.m.carve("lint", "-", input=hami)
        assert code == 1 and "error: DaemonSet d: container c: nvidia.com/gpumem: " in out, out
        assert "dialects.hami = on" in out, out
        settings = self.m.folder + "/cluster.conf"
        with open(settings, "w", encoding="utf-8") as file:
            file.write("dialects.hami = on\n")
        code, out, _ = self.m.carve("lint", "--cluster-config", settings, "-", input=hami)
        assert "container c: hami: 1 GiB" in out and " 0 error(s)" in out, out
        code, out, _ = self.m.carve("lint", "-", input="kind: [\n")
        assert code == 1 and "stdin:2: error: not YAML: " in out, out
        for args, expected in ((["lint", folder + "/none"], "no such file"), (["lint"], "FILE"),
                               (["convert", "--to", "x", folder], '"x" is not a spelling; legal are native, claim or dra'),
                               (["lint", self.m.folder + "/empty"], "no .yaml"), (["lint", "--cluster-config", folder, folder], folder)):
            code, _, err = self.m.carve(*args)
            assert code == 2 and expected in err, (args, code, err)

    def test_top_is_live_on_a_terminal_and_one_object_as_json(self):
        self.m.up()
        main, other = pty.openpty()
        live = subprocess.Popen([self.m.bin + "/carve", "top", "--every", "100ms"], stdout=other, stdin=other)
        self.m.children.append(live)
        text = b""
        while text.count(b"H200 (SIMULATED)") < 4:
            text += os.read(main, 65536)
        live.send_signal(signal.SIGINT)
        assert live.wait(timeout=10) == 0
        assert text.startswith(b"\x1b[?1049h")
        code, out, err = self.m.carve("top", "--once", "-o", "json")
        assert code == 0 and len(json.loads(out)["cards"]) == 2, err

    def test_watch_prints_again_when_something_changes_and_only_then(self):
        self.m.up()
        watch = subprocess.Popen([self.m.bin + "/carve", "slice", "list", "--watch", "-o", "name"], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.m.children.append(watch)
        first, second = (self.m.carve("slice", "create", "--memory", "1Gi", "-o", "id")[1].strip() for _ in range(2))
        time.sleep(2.5)  # two more looks, at which nothing has changed
        code, _, err = self.m.carve("slice", "delete", second)
        assert code == 0, err
        until("the list without it", 10, lambda: second not in self.m.carve("slice", "list", "-o", "name")[1])
        time.sleep(1.5)  # the next look
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=5)
        assert watch.returncode == 0, err
        lines = out.split()
        assert lines[-1] == first and second in lines, out
        # Each change prints the whole list: at most [], [first], [first, second], [first].
        assert lines.count(second) == 1 and lines.count(first) <= 3, out

    def test_top_ends_immediately_while_it_waits_for_an_answer(self):
        """An agent, or a cluster's API server, accepts the connection and does not answer."""
        os.makedirs("/run/carve", exist_ok=True)
        agent = socket.socket(socket.AF_UNIX)
        agent.bind("/run/carve/agent.sock")
        server = socket.create_server(("127.0.0.1", 0))
        config = self.m.folder + "/kubeconfig"
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                       "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{server.getsockname()[1]}"}}],
                       "users": [{"name": "u", "user": {"token": "t"}}]}, file)
        agent.listen()
        for listener, words in ((agent, ["top"]), (server, ["top", "--cluster", "--kubeconfig", config])):
            for sent in (signal.SIGINT, signal.SIGTERM):
                main, far = pty.openpty()
                top = subprocess.Popen([self.m.bin + "/carve", *words], stdout=far, stderr=subprocess.PIPE, text=True)
                os.close(far)
                listener.settimeout(20)
                asking, _ = listener.accept()
                begin = time.monotonic()
                top.send_signal(sent)
                assert top.wait(timeout=5) == 0, (words, sent, top.stderr.read())
                took = time.monotonic() - begin
                text = b""
                while select.select([main], [], [], 0 if text.endswith(b"\x1b[?1049l") else 2)[0]:   # in pieces
                    try:
                        text += os.read(main, 65536)
                    except OSError:     # the program has ended, and all is read
                        break
                assert text.startswith(b"\x1b[?1049h") and text.endswith(b"\x1b[?1049l"), (words, sent, text)
                assert took < 1, (words, sent, took)  # the timeout of an answer is 10 s
                asking.close()
                os.close(main)

    def test_podman_runs_a_container_in_a_slice(self):
        for program in ("podman", "runc"):
            if subprocess.run(["which", program], capture_output=True).returncode != 0:
                raise SkipTest(program + " is not installed")
        self.m.host[self.m.host.index("--cdi-dir") + 1] = "/var/run/cdi"
        self.m.up()
        root = self.m.folder + "/image"
        program = self.m.program("carve-sample-alloc")
        for path in ("/bin", "/usr/lib/x86_64-linux-gnu", "/lib64", "/tmp", "/run", "/dev", "/proc", "/sys", "/etc"):
            os.makedirs(root + path)
        os.symlink("usr/lib", root + "/lib")
        sh(f"cp {program} {root}/bin/alloc")
        for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split("\n"):
            paths = [word for word in line.split() if word.startswith("/")]
            for path in paths:
                sh(f"cp -L {path} {root}/{'lib64' if 'ld-linux' in path else 'usr/lib/x86_64-linux-gnu'}/")
        for name in ("librt.so.1", "libdl.so.2", "libpthread.so.0"):
            sh(f"cp -L /lib/x86_64-linux-gnu/{name} {root}/usr/lib/x86_64-linux-gnu/")
        podman = ["podman", "--runtime", "runc", "--root", self.m.folder + "/podman", "--runroot", "/run/podman-test", "--storage-driver",
                  "vfs", "--cgroup-manager", "cgroupfs"]
        sh(f"tar -C {root} -c . | {' '.join(podman)} import - carve-test > /dev/null 2>&1")
        container = [*podman, "run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit",
                     "nproc=1000:1000"]
        shown = {}
        for form in ("id", "docker"):
            code, out, err = self.m.carve("slice", "create", "--memory", "4Gi", "--cores", "30", "-o", form)
            assert code == 0, err
            (slice_id,) = self.m.slices()
            device = ["--device", "carve.elasticgpu.io/slice=" + slice_id] if form == "id" else out.split("\n")[:-1]
            run = subprocess.run([*container, *device, "carve-test", "/bin/alloc", "--step", "64Mi"], capture_output=True,
                                 text=True, timeout=120)
            assert run.returncode == 0, run.stderr + run.stdout
            seen = json.loads(run.stdout)
            assert seen["total"] == 4 * GIB and seen["out_of_memory"] and seen["bytes"] <= 4 * GIB, run.stdout
            held = [p for p in self.m.truth("account")["processes"] if p["name"].startswith("alloc")]
            assert held and held[-1]["explicit_high_bytes"] <= 4 * GIB, held
            # The other contents of the container, from the kernel's own tables of devices and mounts.
            look = subprocess.run([*container, *device, "-v", f"{self.busybox()}:/bin/busybox:ro", "carve-test",
                                   "/bin/busybox", "sh", "-c",
                                   "/bin/busybox ls -1 /dev | /bin/busybox grep nvidia; /bin/busybox echo $NVIDIA_VISIBLE_DEVICES;"
                                   " /bin/busybox awk '{print $5}' /proc/self/mountinfo | /bin/busybox sort"],
                                  capture_output=True, text=True, timeout=120)
            assert look.returncode == 0, look.stderr
            shown[form] = look.stdout.replace(slice_id, "SLICE")
            assert list(self.m.slices()) == [slice_id], "the slice outlives its containers"
            code, _, err = self.m.carve("slice", "delete", slice_id)
            assert code == 0, err
        for what in ("nvidia", "void", "libcuda.so.1", "/run/carve/slices/SLICE"):
            assert what in shown["id"], (what, shown["id"])
        assert shown["id"] == shown["docker"], "\n".join([shown["id"], "---", shown["docker"]])

    @staticmethod
    def busybox():
        for path in ("/bin/busybox", "/usr/bin/busybox"):
            if os.path.exists(path):
                return path
        raise SkipTest("busybox-static is not installed")

    def test_the_form_for_nvidias_runtime_is_for_whole_cards(self):
        self.m.up()
        code, _, err = self.m.carve("slice", "create", "--memory", "4Gi", "--cores", "30", "-o", "nvidia-runtime")
        assert code == 2 and "needs --whole" in err and not self.m.slices(), err
        code, out, err = self.m.carve("slice", "create", "--cards", "2", "--whole", "-o", "nvidia-runtime")
        assert code == 0, err
        uuids = {c["uuid"] for c in self.m.truth("cards")["cards"]}
        first, second = out.split()
        assert set(first.partition("=")[2].split(",")) == uuids and first.startswith("NVIDIA_VISIBLE_DEVICES="), out
        assert second == "NVIDIA_DRIVER_CAPABILITIES=compute,utility", out


class SkipTest(Exception):
    pass


def main(cases=Cases):
    bin_dir = sys.argv[sys.argv.index("--bin") + 1]
    name = sys.argv[-1]
    if os.geteuid() != 0:
        print("SKIPPED: needs root")
        return 77
    if cgroup2_mount() is None:
        print("SKIPPED: no cgroup2 mount")
        return 77
    enter_private_namespace()
    machine = Machine(bin_dir)
    try:
        getattr(cases(machine), name)()
    except SkipTest as skip:
        print(f"SKIPPED: {skip}")
        return 77
    except BaseException:
        print(machine.logs()[-6000:])
        raise
    finally:
        machine.close()
    print("passed: " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
