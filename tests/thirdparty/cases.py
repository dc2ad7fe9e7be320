"""The programs and the required result of each. One row of CASES per program; run.py runs one row."""
import ctypes
import dataclasses
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

import fetch

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, 'programs')
TIMEOUT = 120


class Failed(Exception):
    """The program ran and failed its check; the text contains what it showed."""


@dataclasses.dataclass
class Context:
    build: str
    expect: dict
    prepared: Any
    within: list

    def program(self, *command, env=None, timeout=TIMEOUT):
        """The output of the program (run behind the prefix); Failed when it fails."""
        # Variables are set behind the prefix, because the program that creates a slice may remove some.
        settings = [f'{name}={value}' for name, value in (env or {}).items()]
        r = subprocess.run(self.within + ['env'] + settings + list(command), capture_output=True,
                           text=True, timeout=timeout)
        if r.returncode != 0:
            raise Failed(f'{os.path.basename(command[0])} exit code {r.returncode}:\n'
                         f'{r.stdout[-3000:]}{r.stderr[-3000:]}')
        return r.stdout + r.stderr

    def expected(self):
        """The arguments that tell a program what it must see."""
        return ['--cards', str(self.expect['cards']), '--memory', str(self.expect['memory']),
                '--name', self.expect['name']]


@dataclasses.dataclass
class Case:
    prepare: Callable[[str], Any]  # takes the build folder
    run: Callable[[Context], None]
    needs_cards: bool = True
    computes: bool = False  # creates a context and allocates memory, which the driver's account must show


def workout(script, *more):
    """A case that runs our script with the prepared interpreter."""
    def run(context):
        out = context.program(context.prepared, os.path.join(PROGRAMS, script),
                              *context.expected(), *more)
        if 'workout complete' not in out:
            raise Failed(f'{script} ended early:\n{out[-3000:]}')
    return run


def make_cubin(compiler, path):
    r = subprocess.run([compiler, os.path.join(PROGRAMS, 'make_cubin.py'), path], capture_output=True,
                       text=True, timeout=TIMEOUT)
    if r.returncode != 0:
        raise Failed(f'no cubin: {r.stdout}{r.stderr}')


def cuda_bindings(context):
    python, compiler = context.prepared
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, 'workout.cubin')
        make_cubin(compiler, cubin)
        out = context.program(python, os.path.join(PROGRAMS, 'cuda_bindings_workout.py'),
                              *context.expected(), '--cubin', cubin)
    if 'workout complete' not in out:
        raise Failed(out[-3000:])


def pycuda(context):
    python, compiler = context.prepared
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, 'workout.cubin')
        make_cubin(compiler, cubin)
        out = context.program(python, os.path.join(PROGRAMS, 'pycuda_workout.py'),
                              *context.expected(), '--cubin', cubin)
    if 'workout complete' not in out:
        raise Failed(out[-3000:])


def gpustat(context):
    tool = os.path.join(os.path.dirname(context.prepared), 'gpustat')
    gpus = json.loads(context.program(tool, '--json').strip())['gpus']
    seen = [(g['name'], g['memory.total']) for g in gpus]
    wanted = [(context.expect['name'], context.expect['memory'] >> 20)] * context.expect['cards']
    if seen != wanted:
        raise Failed(f'gpustat shows {seen}, wanted {wanted}')


def nvitop(context):
    workout('nvitop_api.py')(context)
    tool = os.path.join(os.path.dirname(context.prepared), 'nvitop')
    out = context.program(tool, '-1', env={'COLUMNS': '120', 'TERM': 'xterm'})
    short = context.expect['name'].replace('NVIDIA ', '')[:12]
    if out.count(short) != context.expect['cards']:
        raise Failed(f'nvitop -1 does not show {context.expect["cards"]} × {short}:\n{out}')


def on_terminal(command, env, seconds, enough):
    """The output of a full-screen program until `enough(text)` or the timeout; then q."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    text, end = b'', time.monotonic() + seconds
    while time.monotonic() < end and not enough(text):
        if select.select([fd], [], [], 0.2)[0]:
            try:
                text += os.read(fd, 65536)
            except OSError:
                break
    try:
        os.write(fd, b'q')
    except OSError:
        pass
    os.close(fd)
    os.waitpid(pid, 0)
    return text.decode(errors='replace')


def nvidia_smi(context):
    """NVIDIA's own tool, with a neighbour on the card. When the tool runs in a slice, the neighbour is in none."""
    python, root = context.prepared
    tool = os.path.join(root, 'usr/lib/nvidia/current/nvidia-smi')
    neighbour = subprocess.Popen([f'{context.build}/bin/carve-sample-alloc', '--target', '1Gi', '--hold', '300'],
                                 env=dict(os.environ, LD_LIBRARY_PATH=f'{context.build}/sim/lib'), stdout=subprocess.PIPE, text=True)
    try:
        neighbour.stdout.readline()
        alone = ['--alone'] if context.within else []
        out = context.program(python, os.path.join(PROGRAMS, 'nvidia_smi_modes.py'), '--tool', tool, '--neighbour',
                              str(neighbour.pid), *alone, *context.expected())
    finally:
        neighbour.kill()
        neighbour.wait()
    if 'workout complete' not in out:
        raise Failed(out[-3000:])


def nvtop(context):
    tool = os.path.join(context.prepared, 'usr/bin/nvtop')
    env = dict(os.environ, TERM='xterm', COLUMNS='160', LINES='50')
    name = context.expect['name'].encode()
    # "Device 0 [NVIDIA H200 (SIMULATED)]"; the screen is drawn piece by piece.
    text = on_terminal(context.within + [tool], env, 20,
                       lambda t: t.count(name) >= context.expect['cards'])
    plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)
    if plain.count(context.expect['name']) < context.expect['cards']:
        raise Failed(f'nvtop shows:\n{plain[-2000:]}')


def hwloc(context):
    root = context.prepared
    library = os.path.join(root, 'usr/lib/x86_64-linux-gnu')
    tool = os.path.join(root, 'usr/bin/lstopo-no-graphics')
    env = {'HWLOC_PLUGINS_PATH': os.path.join(library, 'hwloc'), 'LD_LIBRARY_PATH': library,
           'HWLOC_COMPONENTS_VERBOSE': '1'}
    out = context.program(tool, '--whole-io', '--of', 'xml', env=env)
    # hwloc attaches its objects to the PCI devices of the real machine. A simulated card is on no bus, so it appears at
    # the root.
    seen = re.findall(r'name="(nvml\d+)"', out)
    if len(seen) != context.expect['cards']:
        raise Failed(f'hwloc shows {seen}, wanted {context.expect["cards"]}:\n{out[-3000:]}')
    if out.count(context.expect['name']) < context.expect['cards']:
        raise Failed('hwloc does not show the model name')


def cudart(context):
    library = None
    for folder, _, files in os.walk(os.path.dirname(os.path.dirname(context.prepared))):
        for f in files:
            if f.startswith('libcudart.so'):
                library = os.path.join(folder, f)
    out = context.program(context.prepared, os.path.join(PROGRAMS, 'cudart_refused.py'), library,
                          timeout=30)
    explained = [x for x in out.splitlines() if 'imulated' in x]
    if len(explained) != 1:
        raise Failed(f'wanted one line that explains, got {len(explained)}:\n{out}')


def nvrtc_is_quiet(context):
    """NVRTC also asks the driver for a table and continues without it: no message about programs that cannot run."""
    out = context.program(context.prepared, os.path.join(PROGRAMS, 'nvrtc_compiles.py'))
    if 'workout complete' not in out or 'imulated' in out or 'SIMULATED' in out:
        raise Failed(out[-3000:])


def exports(context):
    """Finds every name of the fact tables with dlsym, in both link names."""
    for library, table in (('cuda', 'cuda_symbols.tsv'), ('nvidia-ml', 'nvml_symbols.tsv')):
        rows = table_rows(table)
        for link in (f'lib{library}.so', f'lib{library}.so.1'):
            handle = ctypes.CDLL(os.path.join(context.build, 'sim/lib', link))
            missing = [r['symbol'] for r in rows if not hasattr(handle, r['symbol'])]
            if missing:
                raise Failed(f'{link} lacks {len(missing)} names: {missing[:10]}')


def table_rows(name):
    path = os.path.join(fetch.REPOSITORY, 'sim/export', name)
    lines = [x.rstrip('\n').split('\t') for x in open(path) if not x.startswith('#')]
    return [dict(zip(lines[0], x)) for x in lines[1:]]


def tables_match_headers(context):
    script = os.path.join(fetch.REPOSITORY, 'sim/export/read_headers.py')
    r = subprocess.run([sys.executable, script, '--cache', context.prepared, '--check'],
                       capture_output=True, text=True)
    if r.returncode != 0:
        raise Failed(r.stdout + r.stderr)


def layout(source, *folders):
    """Compiles a source of static_asserts with NVIDIA's headers of both releases."""
    def run(context):
        for folder in folders:
            r = subprocess.run([shutil.which('c++') or 'g++', '-std=c++20', '-fsyntax-only',
                                '-I', os.path.join(context.prepared, folder), '-I', fetch.REPOSITORY,
                                os.path.join(HERE, source)], capture_output=True, text=True)
            if r.returncode != 0:
                raise Failed(f'{folder}: {r.stderr[-3000:]}')
    return run


def proc_address(context):
    import proc_address as check
    found = check.against_headers(context.build, context.prepared)
    if found:
        raise Failed(found)


def proc_address_oracle(context):
    import proc_address as check
    found = check.against_driver(context.build, context.prepared)
    if found:
        raise Failed(found)


def headers(_):
    return fetch.headers()


def py13(_):
    return fetch.python_set('py13')


def debian(name):
    return lambda _: fetch.debian_set(name)


CASES = {
    'tables_match_headers': Case(headers, tables_match_headers, needs_cards=False),
    'cuda_layout': Case(headers, layout('cuda_layout.cc', 'cuda-12.9/nvidia/cuda_runtime/include',
                                        'cuda-13.5/nvidia/cu13/include'), needs_cards=False),
    'nvml_layout': Case(headers, layout('nvml_layout.cc', 'nvml-12.9/nvidia/nvml_dev/include',
                                        'nvml-13.5/nvidia/cu13/include'), needs_cards=False),
    'exports': Case(lambda _: None, exports, needs_cards=False),
    'proc_address': Case(headers, proc_address, needs_cards=False),
    'proc_address_oracle': Case(debian('driver535'), proc_address_oracle, needs_cards=False),
    'cuda_bindings_13': Case(lambda b: (py13(b), py13(b)), cuda_bindings, computes=True),
    'cuda_bindings_12': Case(lambda b: (fetch.python_set('py12'), py13(b)), cuda_bindings, computes=True),
    'cuda_core': Case(py13, workout('cuda_core_workout.py'), computes=True),
    'tinygrad': Case(py13, workout('tinygrad_workout.py'), computes=True),
    'nvidia_ml_py': Case(py13, workout('nvml_workout.py')),
    'nvidia_ml_py_with_context': Case(py13, workout('nvml_workout.py', '--hold', str(1 << 30)), computes=True),
    'nvitop': Case(py13, nvitop),
    'gpustat': Case(py13, gpustat),
    'nvidia_smi_535': Case(lambda _: (sys.executable, fetch.debian_set('smi535')), nvidia_smi, computes=True),
    'nvidia_smi_550': Case(lambda _: (sys.executable, fetch.debian_set('smi550')), nvidia_smi, computes=True),
    'nvidia_smi_555': Case(lambda _: (sys.executable, fetch.debian_set('smi555')), nvidia_smi, computes=True),
    'nvtop': Case(debian('contrib'), nvtop),
    'hwloc': Case(debian('contrib'), hwloc),
    'cudart_refused': Case(py13, cudart),
    'nvrtc_is_quiet': Case(py13, nvrtc_is_quiet),
    # These need minutes of download and compilation: label soak.
    'numba_cuda': Case(lambda _: fetch.python_set('soak'), workout('numba_workout.py'), computes=True),
    'pycuda': Case(lambda b: (fetch.pycuda(b), py13(b)), pycuda, computes=True),
}
