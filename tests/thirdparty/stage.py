"""A private world for one test: simulated cards, their device nodes and driver, seen by nobody else.

Used by run.py, which re-executes itself under `unshare --mount`. In that mount namespace /run is a
tmpfs, /dev a small one with nodes of its own, and the simulated driver's libraries lie over the usual
library folder, where a real driver's would: programs find them without any environment variable.
"""
import ctypes
import os
import stat
import subprocess

LIBRARIES = '/usr/lib/x86_64-linux-gnu'


class Stage:
    def __init__(self, build, profile, driver_in_place=True):
        self.build = build
        self.profile = profile
        self.driver_in_place = driver_in_place  # else somebody else puts it under the usual names
        self.daemon = None

    def __enter__(self):
        _mount('tmpfs', '/run', 'tmpfs')
        _private_dev()
        if self.driver_in_place:
            _mount('overlay', LIBRARIES, 'overlay',
                   f'lowerdir={self.build}/sim/lib:{LIBRARIES}')
        os.makedirs('/run/nvidia-sim')
        read_end, write_end = os.pipe()
        self.daemon = subprocess.Popen(
            [f'{self.build}/bin/carve-simd', '--profile', self.profile, '--die-with-parent',
             '--ready-fd', str(write_end)], pass_fds=[write_end])
        os.close(write_end)
        if os.read(read_end, 1) == b'':
            raise RuntimeError(f'carve-simd --profile {self.profile} did not come up')
        os.close(read_end)
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        try:
            self.daemon.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()


def first_uuid(build):
    """The first card's UUID, asked of the simulated NVML itself."""
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
    """A /dev of our own: the daemon's nodes must not appear on the machine, nor a real card's here."""
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
