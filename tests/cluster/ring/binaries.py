"""The binaries of the ring, built from the pinned Go modules into a cache that is keyed by all inputs."""
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from . import paths, toolchain


class Component:
    """One wrapper module: the packages to build in it, and with which flags."""

    def __init__(self, module, packages, version_of, ldflags, tags=""):
        self.module = module
        self.folder = paths.MODULES / module
        self.packages = packages                       # binary name -> package path
        self.version = self._pinned(version_of)
        self.ldflags = "-s -w " + ldflags(self.version)
        self.tags = tags

    def _pinned(self, module):
        text = (self.folder / "go.mod").read_text()
        return re.search(rf"(?m)^(?:require|\s)\s*{re.escape(module)} v(\S+)", text).group(1)

    def flags(self):
        return ["-trimpath", "-ldflags", self.ldflags] + (["-tags", self.tags] if self.tags else [])

    def folder_of_binaries(self, go_version):
        """Keyed by all inputs. Of Go's version only the minor one counts, so that a patch release costs no build."""
        digest = hashlib.sha256()
        for name in sorted(p.name for p in self.folder.iterdir()):
            digest.update(name.encode() + b"\0" + (self.folder / name).read_bytes() + b"\0")
        digest.update(repr((self.flags(), self.packages, go_version.rsplit(".", 1)[0], "CGO_ENABLED=0")).encode())
        return paths.cache() / f"{self.module}-{self.version}-{digest.hexdigest()[:16]}" / "bin"


def _kubernetes_flags(version):
    major, minor, _ = version.split(".", 2)
    base = "k8s.io/component-base/version"
    return f"-X {base}.gitVersion=v{version} -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"


def kubernetes_module():
    """The folder of modules/ for Kubernetes. Env CARVE_RING_KUBERNETES=1.34 selects an older one."""
    version = os.environ.get("CARVE_RING_KUBERNETES")
    name = f"kubernetes-{version}" if version else "kubernetes"
    if not (paths.MODULES / name).is_dir():
        raise SystemExit(f"ring: CARVE_RING_KUBERNETES={version}: there is no {paths.MODULES / name}")
    return name


def components():
    return [
        Component("etcd", {"etcd": "."}, "go.etcd.io/etcd/server/v3", lambda _: ""),
        Component("plugin", {"ring-plugin": "."}, "k8s.io/kubelet", lambda _: ""),
        Component("containerd",
                  {name: f"github.com/containerd/containerd/v2/cmd/{name}"
                   for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
                  "github.com/containerd/containerd/v2",
                  lambda version: f"-X github.com/containerd/containerd/v2/version.Version={version}",
                  tags="no_btrfs no_devmapper no_zfs"),
        Component(kubernetes_module(),
                  {name: f"k8s.io/kubernetes/cmd/{name}"
                   for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")},
                  "k8s.io/kubernetes", _kubernetes_flags),
        # Last: the Kubernetes packages that it needs are compiled by then.
        Component("helm", {"ring-helm": "."}, "helm.sh/helm/v3", lambda _: ""),
        *_soak_components(),
    ]


def _soak_components():
    """Helm itself takes five minutes of CPU to compile. ring-helm renders the same objects without it."""
    if not os.environ.get("CARVE_SOAK"):
        return []
    return [Component("helm-cli", {"helm": "helm.sh/helm/v3/cmd/helm"}, "helm.sh/helm/v3",
                      lambda version: f"-X helm.sh/helm/v3/internal/version.version=v{version}")]


def _environment():
    intermediate = paths.cache() / "intermediate"
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-p=2 -mod=readonly -buildvcs=false",
            "GOCACHE": str(intermediate / "build"), "GOMODCACHE": str(intermediate / "modules"),
            **_collector()}


def _collector():
    """Settings of the garbage collector of Go's compilers and linker: less often where memory is plenty (a fifth of the
    time goes into it)."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:") and int(line.split()[1]) > 8 << 20:  # KiB
            return {"GOGC": "400"}
    # Two compilers and one linker within 2 GiB: the limit only makes the collector work harder.
    return {"GOMEMLIMIT": "1800MiB"}


def _build_one(go, component, name, target):
    target.mkdir(parents=True, exist_ok=True)
    unfinished = target / f".{name}.unfinished"
    started = time.monotonic()
    subprocess.run(["nice", "-n", "10", str(go), "build", *component.flags(), "-o", str(unfinished),
                    component.packages[name]], cwd=component.folder, env=_environment(), check=True)
    size = unfinished.stat().st_size
    unfinished.rename(target / name)
    print(f"ring: built {name:26} v{component.version:8} {time.monotonic() - started:6.0f} s {size >> 20:5} MiB", flush=True)


def find() -> dict:
    """Name -> path of every binary of the ring. SystemExit with the command to run when one is missing."""
    _, go_version = toolchain.find()
    found = {}
    for component in components():
        for name in component.packages:
            found[name] = component.folder_of_binaries(go_version) / name
    missing = [name for name, path in found.items() if not path.exists()]
    if missing:
        raise SystemExit(f"ring: not built yet: {', '.join(missing)}; run tests/cluster/build")
    return found


def build(keep_intermediate=False) -> None:
    """Builds what is missing (a second start continues where the first ended) and prints how long each binary took.

    Go does not limit its build cache. So the build uses a separate one here (about 5 GB with the modules' sources),
    which is deleted once everything is built. Waits while another build runs.
    """
    started = time.monotonic()
    paths.cache().mkdir(parents=True, exist_ok=True)
    go, go_version = toolchain.find()
    if not _missing(go_version):      # without the lock: another build may still be deleting its intermediate files
        print("ring: all binaries are built", flush=True)
        return
    with open(paths.cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = _missing(go_version)
        for component, name in missing:
            _build_one(go, component, name, component.folder_of_binaries(go_version))
        if missing and not keep_intermediate:
            _drop_intermediate()
        _drop_superseded(go_version)
    print(f"ring: {len(missing)} binaries built with {go_version} in {time.monotonic() - started:.0f} s", flush=True)


def _missing(go_version) -> list:
    """(component, name) of each binary that is not built."""
    return [(component, name) for component in components() for name in component.packages
            if not (component.folder_of_binaries(go_version) / name).exists()]


def _drop_intermediate():
    folder = paths.cache() / "intermediate"
    for path, _, _ in os.walk(folder):           # Go makes its module folders read-only
        os.chmod(path, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def _drop_superseded(go_version):
    """Keeps the newest other build of each module (for another branch), deletes older ones."""
    for component in components():
        current = component.folder_of_binaries(go_version).parent
        form = re.compile(re.escape(component.module) + r"-\d+\.\d+\.\d+-[0-9a-f]{16}")
        others = sorted((p for p in paths.cache().iterdir() if form.fullmatch(p.name) and p != current),
                        key=lambda p: p.stat().st_mtime, reverse=True)
        for folder in others[1:]:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(build())
