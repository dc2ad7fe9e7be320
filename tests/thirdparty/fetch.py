"""Installs third-party programs once, in pinned versions, into a cache folder outside the repository.

Everything comes from public registries with their ordinary clients (pip, apt-get download) and is unpacked in
$CARVE_CACHE or ~/.cache/carve. Nothing is installed on the machine, and nothing is ever committed. A program that is
not available raises Unavailable with the reason; the test prints it and skips.
"""
import fcntl
import os
import shutil
import subprocess
import sys

CACHE = os.environ.get('CARVE_CACHE') or os.path.join(os.environ.get('HOME', '/root'), '.cache/carve')
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# One row per set of programs, with exact versions, so that a test means the same next year.
PYTHON_SETS = {
    'py13': ['cuda-bindings==13.4.4', 'cuda-core==1.2.2', 'nvidia-cuda-nvrtc==13.5.37',
             'nvidia-cuda-runtime==13.5.37', 'tinygrad==0.14.0', 'nvidia-ml-py==13.615.71',
             'nvitop==1.7.2', 'gpustat==1.1.1', 'numpy==2.4.6'],
    'py12': ['cuda-bindings==12.9.10'],
    'soak': ['numba-cuda[cu13]==0.30.4', 'numpy==2.4.6'],
    'pycuda': ['numpy==2.4.6', 'setuptools==80.9.0', 'wheel==0.45.1', 'pytools==2025.2.5',
               'platformdirs==4.5.0', 'mako==1.3.10',
               'nvidia-cuda-profiler-api-cu12==12.9.79'],
}
# Debian packages from contrib and non-free, and a library that they need; unpacked, not installed.
DEBIAN_SETS = {
    'contrib': ['nvtop', 'libhwloc-contrib-plugins', 'hwloc-nox', 'libhwloc15'],
    'prometheus': ['prometheus'],
    'driver535': ['libcuda1', 'libnvidia-ml1'],
    'smi535': ['nvidia-smi'],
    'smi550': ['nvidia-smi'],
    'smi555': ['nvidia-smi'],
}
DEBIAN_SUITES = {'smi550': 'trixie', 'smi555': 'experimental'}  # the others: bookworm
KEYRING = '/usr/share/keyrings/debian-archive-keyring.gpg'


class Unavailable(Exception):
    """This program is not available on this machine now; the text gives the reason."""


def _once(folder, make):
    """Runs make(folder) unless an earlier run finished it; one process at a time."""
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, 'lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = os.path.join(folder, '.complete')
        if not os.path.exists(done):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            make(folder)
            open(done, 'w').close()
    return folder


def _call(what, command, **kwargs):
    r = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if r.returncode != 0:
        lines = (r.stderr or r.stdout).strip().splitlines() or ['no output']
        raise Unavailable(f'{what}: {lines[-1]}')
    return r.stdout


def python_set(name):
    """The interpreter of a virtual environment with this set."""
    stamp = '-'.join(sorted(PYTHON_SETS[name])).replace('==', '').replace('/', '')
    folder = os.path.join(CACHE, 'python', f'{name}-{abs(hash_text(stamp)):x}')

    def make(target):
        _call('python venv', [sys.executable, '-m', 'venv', target])
        pip = [os.path.join(target, 'bin/pip'), 'install', '-q', '--disable-pip-version-check']
        _call(f'pip install {name}', pip + PYTHON_SETS[name])

    return os.path.join(_once(folder, make), 'bin/python')


def hash_text(text):
    """A hash that is the same in every process (Python's own is salted)."""
    value = 0
    for c in text:
        value = (value * 131 + ord(c)) % (1 << 61)
    return value


def _apt(folder, suite):
    """Our own apt configuration with contrib and non-free; the machine's configuration does not change."""
    if not shutil.which('apt-get') or not os.path.exists(KEYRING):
        raise Unavailable('no apt-get or Debian keyring here: contrib and non-free need Debian 12')
    for part in ('lists/partial', 'cache/archives/partial'):
        os.makedirs(os.path.join(folder, part), exist_ok=True)
    with open(os.path.join(folder, 'sources.list'), 'w') as f:
        f.write(f'deb [signed-by={KEYRING}] http://deb.debian.org/debian {suite} '
                'main contrib non-free\n')
    path = os.path.join(folder, 'apt.conf')
    with open(path, 'w') as f:
        f.write(f'Dir::Etc::sourcelist "{folder}/sources.list";\nDir::Etc::sourceparts "-";\n'
                f'Dir::State::lists "{folder}/lists";\nDir::Cache "{folder}/cache";\n'
                'APT::Sandbox::User "root";\n')
    return dict(os.environ, APT_CONFIG=path)


def debian_set(name):
    """The root folder into which the set's packages are unpacked."""
    folder = os.path.join(CACHE, 'debian', name)

    def make(target):
        suite = DEBIAN_SUITES.get(name, 'bookworm')
        env = _apt(os.path.join(target, 'apt'), suite)
        _call(f'apt-get update ({suite}: contrib, non-free)', ['apt-get', 'update', '-qq'], env=env)
        debs = os.path.join(target, 'debs')
        os.makedirs(debs)
        for package in DEBIAN_SETS[name]:
            _call(f'apt-get download {package}', ['apt-get', 'download', '-qq', package], env=env,
                  cwd=debs)
        for deb in sorted(os.listdir(debs)):
            _call(f'unpack {deb}', ['dpkg-deb', '-x', os.path.join(debs, deb),
                                    os.path.join(target, 'root')])

    return os.path.join(_once(folder, make), 'root')


def pycuda(build):
    """An interpreter with PyCUDA, built from source against the simulated driver's link name."""
    python = python_set('pycuda')
    include = os.path.join(headers(), 'cuda-12.9/nvidia/cuda_runtime/include')
    packages = _call('site-packages', [python, '-c', 'import site; print(site.getsitepackages()[0])'])
    include += f',{packages.strip()}/nvidia/cuda_profiler_api/include'

    def make(target):
        _call('pip download pycuda', [python, '-m', 'pip', 'download', '-q', '--no-deps', '--no-binary',
                                      'pycuda', '--no-build-isolation', '-d', target,
                                      'pycuda==2026.1'])
        _call('unpack pycuda', ['tar', '-xf', 'pycuda-2026.1.tar.gz'], cwd=target)
        source = os.path.join(target, 'pycuda-2026.1')
        _call('configure pycuda', [python, 'configure.py', f'--cuda-inc-dir={include}',
                                   f'--cudadrv-lib-dir={build}/sim/lib',
                                   '--no-cuda-enable-curand'], cwd=source)
        _call('build pycuda', ['nice', python, '-m', 'pip', 'install', '-q', '--no-build-isolation',
                               '--no-deps', '.'], cwd=source)

    _once(os.path.join(CACHE, 'pycuda-2026.1'), make)
    return python


def headers():
    """The folder with the headers of CUDA 12.9 and 13.5 (sim/export/fetch_headers)."""
    script = os.path.join(REPOSITORY, 'sim/export/fetch_headers')
    return _call('headers from PyPI', [script, os.path.join(CACHE, 'headers')]).strip()
