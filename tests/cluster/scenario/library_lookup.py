"""How programs in a pod's container find the driver: through the loader's cache, which the hook of a CDI device updates.
tests/integration/node/container_cases.py has the same tests for podman."""
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))
import control  # noqa: E402
from ring import images, paths  # noqa: E402
from ring.testing import main  # noqa: E402

GIB = 1 << 30
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PYTHON, DISTROLESS = "local.test/python:1", "local.test/distroless:1"
LOOK_UP = paths.REPOSITORY / "tests/integration/node"
INTERPRETER = Path(sys.executable).resolve()
# One dialect whose containers get slots; the request is 4 GiB.
REQUEST = {"aliyun.com/gpu-mem": 4}


def setUpModule():
    control.setUpModule()


def tree(folder, name):
    root = Path(folder) / name
    for one in ("bin", "sbin", "lib64", "tmp", "run", "dev", "proc", "sys", "etc", LIBRARIES.lstrip("/")):
        (root / one).mkdir(parents=True)
    os.symlink("usr/lib", root / "lib")
    return root


class LibraryLookup(control.ControlTest):
    """Two images: an ordinary one (Python, ldconfig, a cache that ldconfig wrote), and one with a program alone."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        install, copy = images.oci_archive.install, images.oci_archive.copy
        with tempfile.TemporaryDirectory() as folder:
            usual, alone = tree(folder, "python"), tree(folder, "distroless")
            install(usual, INTERPRETER, "bin")
            copy(os.path.realpath("/lib/x86_64-linux-gnu/libffi.so.8"), usual / LIBRARIES.lstrip("/") / "libffi.so.8")
            copy("/sbin/ldconfig", usual / "sbin/ldconfig")
            subprocess.run(["ldconfig", "-r", usual], check=True, stderr=subprocess.DEVNULL)
            install(alone, cls.ring.build / "bin/carve-sample-alloc", "bin")
            for root, name in ((usual, PYTHON), (alone, DISTROLESS)):
                archive = Path(folder) / f"{root.name}.tar"
                images.oci_archive.write(root, name, archive)
                for node in cls.ring.nodes:
                    node.import_images([archive])

    def ended(self, image, command, read_only, mounts=(), environment=()):
        """Runs a pod to its end and returns its log. mounts: (host folder, path inside), read-only."""
        made = control.asking(self.name(), REQUEST, command)
        container, = made["spec"]["containers"]
        container.update(image=image, securityContext={"readOnlyRootFilesystem": read_only},
                         env=[{"name": key, "value": value} for key, value in dict(environment).items()],
                         volumeMounts=[{"name": f"m{i}", "mountPath": inside, "readOnly": True}
                                       for i, (_, inside) in enumerate(mounts)])
        made["spec"]["volumes"] = [{"name": f"m{i}", "hostPath": {"path": path, "type": "Directory"}}
                                   for i, (path, _) in enumerate(mounts)]
        phase, log = self.run_to_end(made)
        self.assertEqual(phase, "Succeeded", log)
        return log

    def test_tritons_and_ctypes_look_up_find_the_slice(self):
        library = sysconfig.get_paths()["stdlib"]
        for read_only in (False, True):
            log = self.ended(PYTHON, [f"/bin/{INTERPRETER.name}", "/look/look_up.py"], read_only,
                             mounts=((library, library), (str(LOOK_UP), "/look")),
                             environment={"PYTHONHOME": sys.base_prefix, "PYTHONDONTWRITEBYTECODE": "1"})
            self.assertEqual(log.splitlines(), [f"triton {LIBRARIES}", "ctypes libcuda.so.1", "ctypes libnvidia-ml.so.1",
                                                "loaded 0", "others libc.so.6"], f"read-only root: {read_only}")

    def test_an_image_without_a_cache_gets_the_slice(self):
        for read_only in (False, True):
            log = self.ended(DISTROLESS, ["/bin/carve-sample-alloc", "--step", "64Mi"], read_only)
            self.assertEqual(json.loads(log)["total"], 4 * GIB, f"read-only root: {read_only}")


if __name__ == "__main__":
    main()
