"""The real nvidia-smi in every mode that reads a card, while a process holds memory.

  nvidia_smi_modes.py --tool <nvidia-smi> --cards N --memory BYTES --name NAME --neighbour PID [--alone]

--alone: the neighbour must not be visible. Inside a slice, this process and its children are processes of the slice.
"""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

HELD = 512 << 20


def hold():
    """Allocates memory on the first card until this process ends."""
    cuda = ctypes.CDLL('libcuda.so.1')
    context, at = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(HELD)) == 0


class Tool:
    def __init__(self, path):
        self.path = path
        self.shown = []  # the output of every mode, to search it for the neighbour

    def __call__(self, *words):
        done = subprocess.run([self.path, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        assert 'Unknown Error' not in done.stdout, (words, done.stdout[-2000:])
        self.shown.append((words, done.stdout))
        return done.stdout


def mib(text):
    return int(re.match(r'(\d+) ?MiB', text.strip()).group(1))


def lists_process(words, text, pid):
    """True when the output of nvidia-smi's mode `words` lists the process. A clock of 960 MHz is not process 960:
    reports label their processes, and two modes print only numbers of cards."""
    if words and words[0] == '-q':
        return re.search(rf'(<pid>|Process ID *: ){pid}\b', text) is not None
    if words and (words[0] == 'dmon' or words[0].startswith('--query-gpu')):
        return False
    return re.search(rf'(^|[\s,|]){pid}([\s,|]|$)', text, re.M) is not None


def main():
    parser = argparse.ArgumentParser()
    for name in ('--tool', '--cards', '--memory', '--name', '--neighbour'):
        parser.add_argument(name, required=True)
    parser.add_argument('--alone', action='store_true')
    options = parser.parse_args()
    cards, total = int(options.cards), int(options.memory) >> 20
    hold()
    smi = Tool(options.tool)

    screen = smi()
    totals = re.findall(r'MiB / +(\d+)(?:MiB|\.\.\.)', screen)  # older versions truncate the column
    assert len(totals) == cards and all(str(total).startswith(one) for one in totals), screen
    own = [line for line in screen.splitlines() if re.search(rf' {os.getpid()} +C ', line)]
    assert own and mib(own[0].split()[-2]) >= HELD >> 20, screen
    listed = smi('-L').splitlines()
    assert len(listed) == cards and all(options.name in line and 'UUID: GPU-' in line for line in listed), listed

    full = smi('-q')
    assert full.count(options.name) == cards, full[:2000]
    assert lists_process(('-q',), full, os.getpid()), full
    text = smi('-q', '-x')
    assert lists_process(('-q', '-x'), text, os.getpid()), text
    report = xml.fromstring(text)
    gpus = report.findall('gpu')
    assert len(gpus) == cards and report.find('attached_gpus').text == str(cards)
    memory = gpus[0].find('fb_memory_usage')
    used, free = mib(memory.find('used').text), mib(memory.find('free').text)
    assert mib(memory.find('total').text) == total, xml.tostring(memory)
    assert used >= HELD >> 20 and free <= total - used, xml.tostring(memory)
    for section in ('MEMORY', 'UTILIZATION', 'ECC', 'TEMPERATURE', 'POWER', 'CLOCK', 'COMPUTE', 'PIDS', 'PERFORMANCE',
                    'SUPPORTED_CLOCKS', 'PAGE_RETIREMENT', 'ACCOUNTING', 'ENCODER_STATS', 'ROW_REMAPPER'):
        smi('-q', '-d', section)

    fields = ('index,name,uuid,pci.bus_id,driver_version,pstate,memory.total,memory.used,memory.free,utilization.gpu,'
              'utilization.memory,temperature.gpu,power.draw,power.limit,clocks.sm,clocks.mem,compute_mode,ecc.mode.current')
    rows = [row.split(', ') for row in smi(f'--query-gpu={fields}', '--format=csv,noheader,nounits').splitlines()]
    assert len(rows) == cards and {row[1] for row in rows} == {options.name}, rows
    assert int(rows[0][6]) == total and int(rows[0][7]) >= HELD >> 20, rows[0]
    assert all('N/A' not in row and '[' not in ''.join(row) for row in rows), rows

    apps = smi('--query-compute-apps=pid,process_name,used_memory', '--format=csv,noheader')
    assert re.search(rf'^{os.getpid()}, ', apps, re.M), apps
    smi('topo', '-m')
    one = smi('dmon', '-c', '1')
    assert len([line for line in one.splitlines() if not line.startswith('#')]) == cards, one
    one = smi('pmon', '-c', '1')
    assert re.search(rf'^ *0 +{os.getpid()} ', one, re.M), one
    for words in (('topo', '-p2p', 'r'), ('nvlink', '--status'), ('-q', '-d', 'VOLTAGE'), ('--list-gpus',), ('dmon', '-s', 'pucvmet', '-c', '1')):
        smi(*words)

    if options.alone:
        seen = [words for words, text in smi.shown if lists_process(words, text, options.neighbour)]
        assert not seen, (options.neighbour, seen)
    print(f'{os.path.basename(options.tool)}: {len(smi.shown)} modes, {used} of {total} MiB used')
    print('workout complete')


if __name__ == '__main__':
    sys.exit(main())
