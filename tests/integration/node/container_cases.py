"""How programs in a container find the driver: through the loader's cache, which the hook of a CDI device updates.
container_cases.py --bin <build>/bin test_name."""
import json
import os
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import SkipTest, main  # noqa: E402
from machine import sh  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
USUAL = "/usr/lib/x86_64-linux-gnu"
GIB = 1 << 30


def needed_by(program):
    """The libraries that a program is linked with, according to the loader."""
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [word for word in out.split() if word.startswith("/")]


class ContainerCases:
    def __init__(self, machine):
        self.m = machine
        for program in ("podman", "runc"):
            if subprocess.run(["which", program], capture_output=True).returncode != 0:
                raise SkipTest(program + " is not installed")
        machine.host[machine.host.index("--cdi-dir") + 1] = "/var/run/cdi"
        machine.up()
        self.podman = ["podman", "--runtime", "runc", "--root", machine.folder + "/podman", "--runroot",
                       "/run/podman-test", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        code, out, err = machine.carve("slice", "create", "--memory", "4Gi", "--cores", "30", "-o", "id")
        assert code == 0, err
        self.slice = out.strip()

    def tree(self, name):
        """The root of an empty image."""
        root = f"{self.m.folder}/{name}"
        for path in ("/bin", "/sbin", USUAL, "/lib64", "/tmp", "/run", "/dev", "/proc", "/sys", "/etc"):
            os.makedirs(root + path)
        os.symlink("usr/lib", root + "/lib")
        return root

    @staticmethod
    def install(root, program, inside, *libraries):
        """Installs a program with its linked libraries, and libraries that it opens by name."""
        sh(f"cp -L {program} {root}{inside}")
        for path in [*needed_by(program), *libraries]:
            sh(f"cp -L {path} {root}{'/lib64' if 'ld-linux' in path else USUAL}/")

    def glibc_image(self, name):
        """An ordinary image: python, ldconfig, and a cache that ldconfig created."""
        root = self.tree(name)
        plain = [f"/lib/x86_64-linux-gnu/{lib}" for lib in ("librt.so.1", "libdl.so.2", "libpthread.so.0", "libffi.so.8")]
        self.install(root, os.path.realpath(sys.executable), "/bin/python3", *plain)
        sh(f"cp -L /sbin/ldconfig {root}/sbin/ldconfig && ldconfig -r {root} 2> /dev/null")
        self.pack(root, name)

    def pack(self, root, name):
        sh(f"tar -C {root} -c . | {' '.join(self.podman)} import - {name} > /dev/null 2>&1")

    def run(self, image, *command, flags=()):
        return subprocess.run([*self.podman, "run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024",
                               "--ulimit", "nproc=1000:1000", "--device", "carve.elasticgpu.io/slice=" + self.slice,
                               *flags, image, *command], capture_output=True, text=True, timeout=120)

    def python(self, image, *command, flags=()):
        library = sysconfig.get_paths()["stdlib"]
        return self.run(image, "/bin/python3", *command,
                        flags=["-v", f"{library}:{library}:ro", "-v", f"{HERE}:/look:ro", "-e",
                               "PYTHONHOME=" + sys.base_prefix, "-e", "PYTHONDONTWRITEBYTECODE=1", *flags])

    def test_container_programs_find_the_driver_by_the_loaders_cache(self):
        self.glibc_image("usual")
        for flags in ((), ("--read-only",)):
            done = self.python("usual", "/look/look_up.py", flags=flags)
            assert done.returncode == 0, done.stdout + done.stderr
            said = done.stdout.splitlines()
            assert said == [f"triton {USUAL}", "ctypes libcuda.so.1", "ctypes libnvidia-ml.so.1", "loaded 0",
                            "others libc.so.6"], (flags, said, done.stderr)
            assert "carve-hook" not in done.stderr, done.stderr
        # The links exist, and the `ldconfig` of a package manager still works and keeps them listed.
        done = self.python("usual", "-c", "import os, subprocess; print(*sorted(n for n in os.listdir('%s') if "
                           "'cuda' in n)); subprocess.run(['/sbin/ldconfig'], check=True); "
                           "print(subprocess.check_output(['/sbin/ldconfig', '-p'], text=True))" % USUAL)
        assert done.returncode == 0, done.stdout + done.stderr
        names, _, listed = done.stdout.partition("\n")
        assert {"libcuda.so", "libcuda.so.1"} <= set(names.split()) and "libcuda.so.1 (libc6,x86-64)" in listed, done.stdout
        # The image's own cache is unchanged: the next container without a card finds no driver.
        bare = subprocess.run([*self.podman, "run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024",
                               "--ulimit", "nproc=1000:1000", "usual", "/sbin/ldconfig", "-p"], capture_output=True,
                              text=True, timeout=120)
        assert bare.returncode == 0 and "libc.so.6" in bare.stdout and "libcuda" not in bare.stdout, bare.stdout

    def test_container_an_image_with_its_own_libcuda_gets_the_slice(self):
        """NVIDIA's forward-compatibility images list their own libcuda.so.1 in the loader's cache."""
        root = self.tree("compat")
        self.install(root, self.m.program("carve-sample-alloc"), "/bin/alloc")
        for lib in ("librt.so.1", "libdl.so.2", "libpthread.so.0"):
            sh(f"cp -L /lib/x86_64-linux-gnu/{lib} {root}{USUAL}/")
        os.makedirs(root + "/usr/local/cuda/compat")
        sh(f"cp {os.path.dirname(self.m.bin)}/sim/lib/libcuda.so.1 {root}/usr/local/cuda/compat/")
        with open(root + "/etc/ld.so.conf", "w", encoding="utf-8") as file:
            file.write("/usr/local/cuda/compat\n")
        sh(f"ldconfig -r {root} 2> /dev/null")
        listed = subprocess.run(["ldconfig", "-r", root, "-p"], capture_output=True, text=True, check=True).stdout
        assert "compat/libcuda.so.1" in listed, listed
        self.pack(root, "compat")
        done = self.run("compat", "/bin/alloc", "--step", "64Mi")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["total"] == 4 * GIB, done.stdout

    def test_container_a_distroless_image_starts_and_names_the_driver(self):
        """No ldconfig, no shell, no cache; a tool that is mounted into the image finds a cache."""
        root = self.tree("distroless")
        self.install(root, self.m.program("carve-sample-alloc"), "/bin/alloc")
        for lib in ("librt.so.1", "libdl.so.2", "libpthread.so.0"):
            sh(f"cp -L /lib/x86_64-linux-gnu/{lib} {root}{USUAL}/")
        assert not os.path.exists(root + "/etc/ld.so.cache")
        self.pack(root, "distroless")
        for flags in ((), ("--read-only",)):
            done = self.run("distroless", "/bin/alloc", "--step", "64Mi", flags=flags)
            assert done.returncode == 0, done.stdout + done.stderr
            assert json.loads(done.stdout)["total"] == 4 * GIB, done.stdout
            done = self.run("distroless", "/tool", "-p", flags=["-v", "/sbin/ldconfig:/tool:ro", *flags])
            assert done.returncode == 0 and f"libcuda.so.1 (libc6,x86-64) => {USUAL}/libcuda.so.1" in done.stdout, done

    def test_container_an_image_without_glibc_starts_unharmed(self):
        if subprocess.run(["which", "musl-gcc"], capture_output=True).returncode != 0:
            raise SkipTest("musl-gcc is not installed")
        root = self.tree("musl")
        source = self.m.folder + "/hello.c"
        with open(source, "w", encoding="utf-8") as file:
            file.write('#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n')
        sh(f"musl-gcc -o {root}/bin/hello {source} && cp -L /lib/ld-musl-x86_64.so.1 {root}/usr/lib/")
        sh(f"musl-gcc -static -o {root}/bin/static {source}")
        self.pack(root, "musl")
        os.rename(root + "/etc", root + "/none")  # and an image without /etc, except what the engine creates
        self.pack(root, "bare")
        for image in ("musl", "bare"):
            for program in ("/bin/hello", "/bin/static"):
                done = self.run(image, program)
                assert (done.returncode, done.stdout) == (3, "hello\n"), (image, program, done.stderr)

    def test_container_a_whole_card_is_found_the_same_way(self):
        self.glibc_image("usual")
        assert self.m.carve("slice", "delete", self.slice)[0] == 0
        code, out, err = self.m.carve("slice", "create", "--whole", "-o", "id")
        assert code == 0, err
        self.slice = out.strip()
        done = self.python("usual", "/look/look_up.py")
        assert done.returncode == 0 and f"triton {USUAL}" in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(ContainerCases))
