"""Holds the mount namespace of one node: every process started in it sees the machine as that node.

usage: python3 node_namespace.py FOLDER      (started in the node's cgroup and the ring's network)
In the namespace /var/lib and /var/log are the node's own folders, /run is empty, /dev is small, and writes to /usr/lib
and /etc stay on the node. So every default path (the kubelet's, containerd's, Carve's) belongs to the node, as on a
real machine. Writes FOLDER/mounted when done.
"""
import ctypes
import os
import subprocess
import sys

KEPT_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse")
KEPT_FOLDERS = ("pts", "shm", "mqueue", "hugepages")


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def small_dev(folder):
    """The usual devices, bound one by one: what a driver adds on this node stays on this node."""
    dev = folder + "/dev"
    os.makedirs(dev, exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=0755", "ring-dev", dev)
    for name in KEPT_DEVICES:
        if os.path.exists("/dev/" + name):
            open(f"{dev}/{name}", "w").close()
            mount("--bind", "/dev/" + name, f"{dev}/{name}")
    for name in KEPT_FOLDERS:
        if os.path.isdir("/dev/" + name):
            os.mkdir(f"{dev}/{name}")
            mount("--rbind", "/dev/" + name, f"{dev}/{name}")
    for name, target in (("ptmx", "pts/ptmx"), ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"),
                         ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
        os.symlink(target, f"{dev}/{name}")
    mount("--move", dev, "/dev")


def own_layer(folder, path):
    """The machine's folder below, the node's changes above it. On tmpfs, because an overlay on an overlay is
    refused."""
    above = f"{folder}/above"
    name = path.strip("/").replace("/", "-")
    if not os.path.isdir(above):
        os.mkdir(above)
        mount("-t", "tmpfs", "-o", "mode=0755", "ring-above", above)
    os.makedirs(f"{above}/{name}/up")
    os.makedirs(f"{above}/{name}/work")
    mount("-t", "overlay", "-o", f"lowerdir={path},upperdir={above}/{name}/up,workdir={above}/{name}/work",
          "ring-" + name, path)


def main():
    folder = sys.argv[1]
    if ctypes.CDLL(None, use_errno=True).unshare(0x00020000) != 0:
        sys.exit(f"unshare(CLONE_NEWNS): {os.strerror(ctypes.get_errno())}")
    mount("--make-rprivate", "/")
    for name in ("lib", "log"):
        own = f"{folder}/var-{name}"
        os.makedirs(own, exist_ok=True)
        mount("--bind", own, f"/var/{name}")
    own_layer(folder, "/usr/lib")
    own_layer(folder, "/etc")
    small_dev(folder)
    mount("-t", "tmpfs", "-o", "mode=0755", "ring-run", "/run")
    # Private towards the machine, shared inside: containers may ask for mount propagation, as on a real node.
    mount("--make-rshared", "/")
    for made in ("/var/lib/kubelet/device-plugins", "/var/lib/containerd", "/var/lib/cni/net.d", "/run/cdi",
                 "/var/log/pods", "/run/lock"):
        os.makedirs(made, exist_ok=True)
    open(folder + "/mounted", "w").close()
    os.execvp("sleep", ["sleep", "infinity"])


if __name__ == "__main__":
    main()
