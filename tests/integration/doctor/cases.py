#!/usr/bin/env python3
"""`carve doctor --node` on intentionally broken hosts. Each case is a small tree of files, as reported from the field,
that the doctor uses as its root. cases.py --bin DIR [case]; exit code 77: skipped (needs root)."""
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import unittest

BIN = None
KERNEL = "5.14.0-100.el9.x86_64"
ALWAYS = {"agent-away", "no-cgroup2"}  # a tree of files has no processes and no mounts


class Host:
    """A host's files below a private folder."""

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="carve-host-")
        os.chmod(self.root, 0o755)
        self.file("/proc/sys/kernel/osrelease", KERNEL + "\n")
        self.file("/proc/filesystems", "nodev\toverlay\n")
        self.folder("/var/lib/carve")

    def path(self, name):
        return self.root + name

    def folder(self, name):
        os.makedirs(self.path(name), exist_ok=True)

    def file(self, name, text=""):
        self.folder(os.path.dirname(name))
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)

    def device(self, name, major, minor):
        self.folder(os.path.dirname(name))
        os.mknod(self.path(name), stat.S_IFCHR | 0o666, os.makedev(major, minor))

    def socket(self, name):
        self.folder(os.path.dirname(name))
        here = os.getcwd()
        os.chdir(os.path.dirname(self.path(name)))  # a socket's path may be 107 bytes long
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(os.path.basename(name))
        finally:
            os.chdir(here)

    def doctor(self):
        """The findings of the doctor, except notes and those that every tree has. A tree is no running node, so the
        exit code is always 1 here; the cluster scenario checks the exit code of a healthy node."""
        done = subprocess.run([BIN + "/carve", "doctor", "--node", "--host-root", self.root, "-o", "json"],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 1, done
        found = json.loads(done.stdout)
        assert all(f["what"] and f["cause"] and f["fix"] for f in found), found
        assert ALWAYS <= {f["id"] for f in found}, found
        return [f for f in found if f["id"] not in ALWAYS and f["severity"] != "note"]

    def close(self):
        shutil.rmtree(self.root)


class Broken(unittest.TestCase):
    def setUp(self):
        self.host = Host()
        self.addCleanup(self.host.close)

    def only(self, wanted, *words):
        """The doctor finds only this, and the finding contains these words."""
        found = self.host.doctor()
        self.assertEqual([f["id"] for f in found], [wanted], found)
        for word in words:
            self.assertIn(word, " ".join(found[0].values()))

    def fine(self):
        self.assertEqual(self.host.doctor(), [])

    def test_a_bare_host_only_lacks_the_agent(self):
        self.fine()

    # -- the driver ---------------------------------------------------------------------------------------
    def loaded(self, version="550.54.15"):
        self.host.file("/sys/module/nvidia/version", version + "\n")
        self.host.file("/proc/driver/nvidia/version", "NVRM version: …\n")

    def nodes(self):
        self.host.device("/dev/nvidiactl", 195, 255)
        self.host.device("/dev/nvidia-uvm", 510, 0)
        self.host.device("/dev/nvidia0", 195, 0)

    def test_a_card_on_the_bus_without_a_driver(self):
        self.host.file("/sys/bus/pci/devices/0000:17:00.0/vendor", "0x10de\n")
        self.host.file("/sys/bus/pci/devices/0000:17:00.0/class", "0x030200\n")
        self.host.file("/sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
        self.host.file("/sys/bus/pci/devices/0000:00:1f.0/class", "0x030000\n")
        self.only("driver-not-loaded", "1 NVIDIA card(s)", "nvidia.com/gpu", "modprobe")

    def test_two_packages_bring_the_module(self):
        self.host.file(f"/lib/modules/{KERNEL}/extra/nvidia.ko.xz")
        self.host.file(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
        self.only("driver-two-modules", "extra/nvidia.ko.xz", "updates/dkms/nvidia.ko")

    def test_one_module_is_fine(self):
        self.host.file(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko")
        self.fine()

    def test_headers_of_another_kernel(self):
        self.host.folder("/var/lib/dkms/nvidia/550.54.15")
        self.host.folder("/usr/src/kernels/5.14.0-70.el9.x86_64")
        self.only("kernel-headers", KERNEL, "5.14.0-70.el9.x86_64", "kernel-devel-" + KERNEL)

    def test_no_headers_at_all(self):
        self.host.folder("/var/lib/dkms/nvidia-open/550.54.15")
        self.only("kernel-headers", "missing")

    def test_device_nodes_that_do_not_exist(self):
        self.loaded()
        self.host.device("/dev/nvidiactl", 195, 255)
        self.only("device-node-missing", "/dev/nvidia-uvm", "nvidia-modprobe")

    def test_a_regular_file_in_place_of_a_device_node(self):
        self.loaded()
        self.host.device("/dev/nvidiactl", 195, 255)
        self.host.file("/dev/nvidia-uvm")
        self.only("device-node-missing", "/dev/nvidia-uvm")

    def test_a_cards_device_node_that_does_not_exist(self):
        self.loaded()
        self.host.device("/dev/nvidiactl", 195, 255)
        self.host.device("/dev/nvidia-uvm", 510, 0)
        self.host.file("/proc/driver/nvidia/gpus/0000:17:00.0/information", "Model: \t NVIDIA H200\nDevice Minor: \t 3\n")
        self.only("device-node-missing", "/dev/nvidia3")

    def test_a_library_of_another_version(self):
        self.loaded("550.54.15")
        self.nodes()
        self.host.file("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.555.42.02")
        self.only("driver-version-mismatch", "550.54.15", "555.42.02", "Driver/library version mismatch")

    def test_the_same_version_is_fine(self):
        self.loaded("550.54.15")
        self.nodes()
        self.host.file("/usr/lib64/libnvidia-ml.so.550.54.15")
        self.host.file("/usr/lib64/libnvidia-ml.so.1")
        self.fine()

    # -- engines ------------------------------------------------------------------------------------------
    def docker(self, **config):
        self.host.file("/etc/docker/daemon.json", json.dumps(config))

    def test_docker_without_a_default_runtime(self):
        self.docker(runtimes={"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}})
        self.only("docker-no-driver", "could not load NVML library", "features")

    def test_docker_with_cdi_is_fine(self):
        self.docker(runtimes={"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}, features={"cdi": True})
        self.fine()

    def test_docker_whose_default_shows_all_cards_to_all(self):
        self.docker(**{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "x"}}})
        self.only("everybody-sees-all", "NVIDIA_VISIBLE_DEVICES", "Docker")

    def test_containerd_whose_default_shows_all_cards_to_all(self):
        self.host.file("/etc/containerd/config.toml",
                       '[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "nvidia"\n')
        self.only("everybody-sees-all", "containerd")

    def test_a_default_runtime_that_ignores_the_environment_is_fine(self):
        self.host.file("/etc/containerd/config.toml", 'default_runtime_name = "nvidia"\n')
        self.host.file("/etc/nvidia-container-runtime/config.toml",
                       "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
        self.fine()

    def test_an_invalid_docker_file(self):
        self.host.file("/etc/docker/daemon.json", "{,}")
        self.only("docker-config")

    def test_a_wrapper_for_another_docker(self):
        self.host.file("/var/lib/dkms-is-not-here")
        self.host.file("/var/lib/dpkg/status",
                       "Package: nvidia-docker2\nStatus: install ok installed\nVersion: 2.0.3+docker18.09.0-1\n\n"
                       "Package: docker-ce\nStatus: install ok installed\nVersion: 5:18.03.1~ce-0~debian\n")
        self.only("docker-package", "18.09.0", "18.03.1")

    def test_containerd_that_ignores_cdi(self):
        self.host.file("/etc/containerd/config.toml", "[plugins.cri]\n  enable_cdi = false\n")
        self.only("containerd-cdi-off", "enable_cdi = true")

    def test_a_file_that_containerd_imports(self):
        self.host.file("/etc/containerd/config.toml", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
        self.host.file("/etc/containerd/conf.d/10.toml", "enable_cdi = false\n")
        self.only("containerd-cdi-off", "enable_cdi = true")

    def installed_containerd(self, version, config):
        self.host.file("/var/lib/dpkg/status", f"Package: containerd\nStatus: install ok installed\nVersion: {version}\n")
        self.host.file("/etc/containerd/config.toml", config)

    def test_an_older_containerd_without_the_setting(self):
        self.installed_containerd("1.7.22~ds1-1", "version = 2\n")
        self.only("containerd-cdi-off", "containerd 1.7")

    def test_an_older_containerd_with_the_setting_and_a_newer_one_are_fine(self):
        self.installed_containerd("1.7.22~ds1-1", "version = 2\nenable_cdi = true\n")
        self.fine()
        self.installed_containerd("2.1.0-1", "version = 3\n")
        self.fine()

    def test_crio_whose_default_shows_all_cards_and_that_reads_other_cdi_folders(self):
        self.host.file("/etc/crio/crio.conf.d/10-nvidia.conf", '[crio.runtime]\ndefault_runtime = "nvidia"\n')
        self.only("everybody-sees-all", "CRI-O")
        self.host.file("/etc/crio/crio.conf.d/10-nvidia.conf", 'cdi_spec_dirs = ["/etc/cdi"]\n')
        self.only("cdi-folders", "CRI-O")

    def test_containerd_that_reads_other_cdi_folders(self):
        self.host.file("/etc/containerd/config.toml", 'cdi_spec_dirs = ["/etc/cdi"]\n')
        self.only("cdi-folders", "/var/run/cdi")

    def test_a_systemd_reload_that_removes_cards(self):
        self.loaded()
        self.nodes()
        self.host.file("/etc/containerd/config.toml", "SystemdCgroup = true\n")
        self.host.file("/etc/nvidia-container-runtime/config.toml", "")
        for one in ("195:255", "510:0"):
            self.host.folder("/dev/char")
            os.symlink("../x", self.host.path("/dev/char/" + one))
        self.host.file("/dev/x")
        self.only("char-links", "/dev/char/195:0", "NVML: Unknown Error")

    # -- the kubelet --------------------------------------------------------------------------------------
    def test_a_removed_feature_gate(self):
        self.host.file("/var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--feature-gates=Accelerators=true"\n')
        self.only("kubelet-gate-accelerators", "kubeadm-flags.env")

    def checkpoint(self, **resources):
        self.host.file("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
                       json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": resources}, "Checksum": 1}))

    def test_another_plugin_for_the_same_cards(self):
        self.checkpoint(**{"nvidia.com/gpu": ["GPU-1"], "aliyun.com/gpu-mem": ["a"], "elasticgpu.io/slot": ["s"],
                           "smarter-devices/fuse": ["f"]})
        self.only("conflicting-plugin", "nvidia.com/gpu", "aliyun.com/gpu-mem")

    def test_an_unregistered_plugin_is_no_conflict(self):
        self.checkpoint(**{"nvidia.com/gpu": None})
        self.fine()

    # -- container devices --------------------------------------------------------------------------------
    def device_file(self, folder, name, kind="nvidia.com/gpu", device="0", host_path="/usr/bin/nvidia-smi"):
        self.host.file(f"{folder}/{name}", json.dumps(
            {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": device, "containerEdits": {
                "mounts": [{"hostPath": host_path, "containerPath": host_path}]}}]}))

    def test_a_device_whose_files_are_gone(self):
        self.device_file("/etc/cdi", "nvidia.json", host_path="/usr/lib64/libcuda.so.535.1")
        self.only("cdi-stale", "/usr/lib64/libcuda.so.535.1", "nvidia.com/gpu", "nvidia-ctk cdi generate")

    def test_a_device_in_two_files(self):
        self.host.file("/usr/bin/nvidia-smi")
        self.device_file("/var/run/cdi", "a.json")
        self.device_file("/var/run/cdi", "b.json")
        self.only("cdi-conflict", "nvidia.com/gpu=0", "a.json", "b.json")

    def test_the_later_folder_may_redefine_it(self):
        self.host.file("/usr/bin/nvidia-smi")
        self.device_file("/etc/cdi", "a.json")
        self.device_file("/var/run/cdi", "b.json")
        self.fine()

    def test_an_invalid_device_file(self):
        self.host.file("/var/run/cdi/half.yaml", "kind: [\n")
        self.only("cdi-unreadable", "half.yaml")

    # -- what the doctor cannot see ------------------------------------------------------------------------
    def test_an_empty_folder_is_no_host(self):
        shutil.rmtree(self.host.path("/proc"))
        self.only("host-not-seen", "--host-root")

    def test_a_path_that_cannot_be_checked_is_not_called_missing(self):
        self.device_file("/etc/cdi", "nvidia.json", host_path="/" + "x" * 300)
        self.only("not-looked-at", "too long")

    def test_a_file_that_cannot_be_read_is_reported(self):
        self.host.folder("/etc/docker/daemon.json")  # a folder in place of a file: reading fails, but it is not absent
        self.only("not-looked-at", "/etc/docker/daemon.json")


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: needs root (chroot, device nodes)")
        sys.exit(77)
    at = sys.argv.index("--bin")
    BIN = os.path.abspath(sys.argv[at + 1])
    del sys.argv[at:at + 2]
    unittest.main()
