"""A private environment for one test: simulated cards, their device nodes and the driver, invisible outside.

run.py uses it and re-executes itself under `unshare --mount`. In that mount namespace /run is a tmpfs, /dev is a
small one with its own nodes, and the simulated driver's libraries are mounted over the usual library folder, as a
real driver's would be: programs find them without any environment variable.
"""
import ctypes
import os
import stat
import subprocess
import time

LIBRARIES = '/usr/lib/x86_64-linux-gnu'


class Stage:
    """`mode` selects what installs the driver at the usual names: 'stage' (bare), 'slice' (carve-in-slice) or 'carve'
    (`carve up` also starts the simulated driver, and `carve run` creates the mounts)."""

    def __init__(self, build, profile, mode='stage'):
        self.build = build
        self.profile = profile
        self.mode = mode
        self.daemon = None

    def __enter__(self):
        _mount('tmpfs', '/run', 'tmpfs')
        _private_dev()
        if self.mode == 'stage':
            _mount('overlay', LIBRARIES, 'overlay',
                   f'lowerdir={self.build}/sim/lib:{LIBRARIES}')
        if self.mode == 'carve':
            self._carve_up()
        else:
            self._simulated_driver()
        return self

    def _carve_up(self):
        os.makedirs('/run/state')
        self.log = open('/run/carve-up.log', 'w+')
        self.daemon = subprocess.Popen(
            [f'{self.build}/bin/carve', 'up', '--simulate', self.profile, '--state-dir', '/run/state',
             '--lib-source', f'{self.build}/preload', '--cdi-dir', '/run/cdi', '--cgroup-root',
             f'{_cgroup2()}/carve-thirdparty-{os.getpid()}'], stdout=self.log, stderr=self.log)
        end = time.monotonic() + 30
        while time.monotonic() < end and self.daemon.poll() is None:
            r = subprocess.run([f'{self.build}/bin/carve', 'inspect'], capture_output=True)
            if r.returncode == 0:
                return
            time.sleep(0.1)
        self.log.seek(0)
        raise RuntimeError(f'carve up did not start:\n{self.log.read()}')

    def _simulated_driver(self):
        os.makedirs('/run/nvidia-sim')
        read_end, write_end = os.pipe()
        self.daemon = subprocess.Popen(
            [f'{self.build}/bin/carve-simd', '--profile', self.profile, '--die-with-parent',
             '--ready-fd', str(write_end)], pass_fds=[write_end])
        os.close(write_end)
        if os.read(read_end, 1) == b'':
            raise RuntimeError(f'carve-simd --profile {self.profile} did not start')
        os.close(read_end)

    def __exit__(self, *_):
        if self.mode == 'carve':  # also ends the driver's processes and a slice that is just ending
            subprocess.run([f'{self.build}/bin/carve', 'down', '--force'], capture_output=True, timeout=60)
        self.daemon.terminate()
        try:
            self.daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()


def _cgroup2():
    """The mount point of the cgroup2 hierarchy."""
    for line in open('/proc/self/mountinfo'):
        fields = line.split()
        if 'cgroup2' in fields[fields.index('-'):]:
            return fields[4]
    raise RuntimeError('no cgroup2 hierarchy is mounted')


def first_uuid(build):
    """The first card's UUID, read from the simulated NVML."""
    nvml = ctypes.CDLL(f'{build}/sim/lib/libnvidia-ml.so.1')
    device, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)):
        raise RuntimeError('the simulated NVML shows no card')
    nvml.nvmlDeviceGetUUID(device, text, 96)
    nvml.nvmlShutdown()
    return text.value.decode()


def _mount(source, target, kind, options='', flags=0):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f'mount {kind} on {target}')


def _private_dev():
    """A private /dev: the daemon's nodes must not appear on the machine, and a real card's nodes not here."""
    bind, recursive = 4096, 16384
    keep = [n for n in ('pts', 'shm') if os.path.isdir(f'/dev/{n}')]
    nodes = [n for n in ('null', 'zero', 'full', 'random', 'urandom', 'tty', 'ptmx')
             if os.path.exists(f'/dev/{n}')]
    facts = [(n, os.stat(f'/dev/{n}')) for n in nodes]
    os.makedirs('/run/olddev')
    _mount('/dev', '/run/olddev', '', flags=bind | recursive)
    _mount('tmpfs', '/dev', 'tmpfs', 'mode=755')
    for n in keep:
        os.makedirs(f'/dev/{n}')
        _mount(f'/run/olddev/{n}', f'/dev/{n}', '', flags=bind | recursive)
    for n, st in facts:
        if n == 'ptmx':
            os.symlink('pts/ptmx', '/dev/ptmx')
            continue
        os.mknod(f'/dev/{n}', stat.S_IFCHR | 0o666, st.st_rdev)
        os.chmod(f'/dev/{n}', 0o666)
    for name, target in (('fd', '/proc/self/fd'), ('stdin', 'fd/0'), ('stdout', 'fd/1'),
                         ('stderr', 'fd/2')):
        os.symlink(target, f'/dev/{name}')
