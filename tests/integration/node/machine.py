"""A private machine for a test: its own mount namespace, /dev, /run and state folders, with Carve's processes and the
simulated driver. Assertions about memory and time read carve-simctl."""
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]


def enter_private_namespace():
    """Moves this process into a mount namespace with an empty /run and a small /dev. Needs root."""
    os.makedirs("/run/carve", exist_ok=True)
    libc = __import__("ctypes").CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0:
        raise OSError("unshare(CLONE_NEWNS) failed")
    sh("mount --make-rprivate /")
    dev = tempfile.mkdtemp(prefix="carve-dev-")
    sh(f"mount -t tmpfs -o mode=0755 carve-test {dev}")
    for name in DEVICES:
        open(f"{dev}/{name}", "w").close()
        sh(f"mount --bind /dev/{name} {dev}/{name}")
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}")
        sh(f"mount --rbind /dev/{name} {dev}/{name}")
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    sh(f"mount --move {dev} /dev")
    os.rmdir(dev)
    sh("mount -t tmpfs -o mode=0755 carve-test /run")


def see_only_own_processes():
    """Executes this program again in a PID namespace of its own. The agent looks for the holders of a card's device file
    among all processes of the host, and the simulated cards of all tests have the same numbers. Needs root."""
    if os.environ.get("CARVE_TEST_OWN_PROCESSES"):
        return
    os.environ["CARVE_TEST_OWN_PROCESSES"] = "1"
    # The shell is process 1 there: it reaps the processes of ended parents.
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$0" "$@"; exit $?',
                          sys.executable, *sys.argv])


def sh(command):
    subprocess.run(command, shell=True, check=True)


def until(what, seconds, condition):
    """Polls a condition that has no event; on timeout fails with `what`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def cgroup2_mount():
    for line in open("/proc/self/mountinfo", encoding="utf-8"):
        left, right = line.split(" - ")
        if right.split()[0] == "cgroup2":
            return left.split()[4]
    return None


class Machine:
    def __init__(self, bin_dir, profile="h200x2"):
        self.bin = bin_dir
        self.profile = profile
        self.folder = tempfile.mkdtemp(prefix="carve-node-")
        os.chmod(self.folder, 0o755)
        self.state = self.folder + "/state"
        # Not the process ID: in a PID namespace of its own every test has the same one.
        self.cgroup = f"{cgroup2_mount()}/{os.path.basename(self.folder)}"
        self.host = ["--state-dir", self.state, "--cdi-dir", self.folder + "/cdi", "--cgroup-root", self.cgroup]
        self.up_process = None
        self.children = []

    def carve(self, *args, **kwargs):
        """Runs carve until it exits: (exit code, stdout, stderr)."""
        done = subprocess.run([self.bin + "/carve", *args], capture_output=True, text=True,
                              timeout=kwargs.pop("timeout", 60), **kwargs)
        return done.returncode, done.stdout, done.stderr

    def start_up(self, *extra):
        return subprocess.Popen([self.bin + "/carve", "up", "--simulate", self.profile, *self.host, *extra],
                                stdout=subprocess.PIPE, stderr=open(self.folder + "/up.err", "a"), text=True)

    def up(self, *extra):
        self.up_process = self.start_up(*extra)
        line = self.up_process.stdout.readline()
        if not line.startswith("ready:"):
            raise AssertionError(f"carve up said: {line!r} {open(self.folder + '/up.err').read()}{self.logs()}")
        return line

    def kill_agent(self):
        """Kills the agent and waits for its end: until then its sockets accept connections that get no answer."""
        agent = self.pid_of("agent")
        ended = os.pidfd_open(agent)
        os.kill(agent, signal.SIGKILL)
        assert select.select([ended], [], [], 10)[0], "the killed agent has not ended"
        os.close(ended)

    def logs(self):
        text = ""
        for root, _, files in os.walk("/run/carve/log"):
            for name in files:
                text += f"\n--- {name}\n" + open(os.path.join(root, name), encoding="utf-8").read()[-3000:]
        return text

    def start(self, *args, **kwargs):
        """Starts carve and leaves it running."""
        process = subprocess.Popen([self.bin + "/carve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, **kwargs)
        self.children.append(process)
        return process

    def view(self):
        code, out, err = self.carve("inspect", "-o", "json")
        assert code == 0, err
        return json.loads(out)

    def slices(self):
        return {s["id"]: s for s in self.view()["slices"]}

    def pid_of(self, service):
        """The PID of the running service. A starting service has taken its lock but not yet written its PID."""
        def written():
            with open(f"/run/carve/{service}.lock", encoding="utf-8") as lock:
                return lock.read().partition(" ")[0].strip()
        return int(until(f"{service} has written its PID", 5, written))

    def truth(self, *args):
        """A report of the simulated driver's own account."""
        done = subprocess.run([self.bin + "/carve-simctl", *args], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def program(self, name):
        return f"{self.bin}/{name}"

    def close(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        for service in ("agent", "arbiter"):
            try:
                os.kill(self.pid_of(service), signal.SIGCONT)
            except (OSError, AssertionError):
                pass
        self.carve("down", "--force", "--cgroup-root", self.cgroup)
        if self.up_process is not None:
            if self.up_process.poll() is None:
                self.up_process.terminate()
            self.up_process.wait(timeout=60)
        subprocess.run(["umount", "-l", self.state], stderr=subprocess.DEVNULL, check=False)  # when a test mounted one
        shutil.rmtree(self.folder, ignore_errors=True)
