#!/usr/bin/env python3
"""Runs one third-party program, unmodified, on the simulated driver and checks its output.

  run.py --build <build folder> <case> [--profile h200x2] [--within "<command prefix>"]

Exit code 0: passed; 1: failed; 77: the program is not available here (the reason is printed).
--slice runs the same program with the same checks inside a slice of one card: libcarve at the driver's names, 4 GiB
and 30 %. --carve does so with `carve up` and `carve run`. --within runs it behind any prefix, such as "carve run
--memory 4Gi --cores 30 --"; then --cards and --memory give what it must see there.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import cases  # noqa: E402
import fetch  # noqa: E402
import stage  # noqa: E402

SKIP = 77
SLICE_BYTES = 4 << 30
SLICE_CORES = 30
# The profiles of sim/model/profiles.cc: bytes of card memory and name. Intentionally repeated here: the tests do not
# ask the code under test.
MACHINES = {
    'h200x1': {'cards': 1, 'memory': 143771 << 20, 'name': 'NVIDIA H200 (SIMULATED)'},
    'h200x2': {'cards': 2, 'memory': 143771 << 20, 'name': 'NVIDIA H200 (SIMULATED)'},
    't4x1': {'cards': 1, 'memory': 15360 << 20, 'name': 'Tesla T4 (SIMULATED)'},
    'a100x8': {'cards': 8, 'memory': 81920 << 20, 'name': 'NVIDIA A100-SXM4-80GB (SIMULATED)'},
}


def enter_namespace(arguments):
    if os.geteuid() != 0:
        print('SKIPPED: needs root (a private mount namespace with device nodes)')
        sys.exit(SKIP)
    os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', sys.executable,
                          os.path.abspath(__file__), '--staged'] + arguments)


def check_account(context, in_slice):
    """Checks the simulated driver's account afterwards: the driver was used and everything was freed. In a slice, no
    more than the slice was held, and the driver itself refused nothing."""
    r = subprocess.run([f'{context.build}/bin/carve-simctl', 'account'], capture_output=True, text=True,
                       timeout=30)
    if r.returncode != 0:
        raise cases.Failed(f'carve-simctl account: {r.stderr}')
    rows = json.loads(r.stdout)['processes']
    held = max((row['explicit_high_bytes'] for row in rows), default=0)
    if held == 0:
        raise cases.Failed('the simulated driver granted no memory: did the program use it?')
    left = [row for row in rows if row['alive'] or row['explicit_bytes'] or row['context_bytes']]
    if left:
        raise cases.Failed(f'not freed: {left}')
    refused = sum(row['refused'] for row in rows)
    if in_slice and (held > SLICE_BYTES or refused):
        raise cases.Failed(f'held {held} of {SLICE_BYTES} bytes; {refused} requests reached the driver '
                           'although they did not fit')
    print(f'account: most held at any time {held >> 20} MiB, refused by the driver {refused}')


def slice_prefix(build):
    """carve-in-slice: the mounts and the socket of a slice with constant grants."""
    return [f'{build}/bin/carve-in-slice', f'{build}/sim/lib', f'{build}/preload/libcarve-cuda.so',
            f'{build}/preload/libcarve-nvml.so', stage.first_uuid(build), str(SLICE_BYTES),
            str(SLICE_CORES), '--']


def expectations(options):
    expect = dict(MACHINES[options.profile])
    if options.cards is not None:
        expect['cards'] = options.cards
    if options.memory is not None:
        expect['memory'] = options.memory
    return expect


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', required=True)
    parser.add_argument('--profile', default='h200x2', choices=sorted(MACHINES))
    parser.add_argument('--within', default='')
    parser.add_argument('--slice', action='store_true')
    parser.add_argument('--carve', action='store_true')
    parser.add_argument('--cards', type=int)
    parser.add_argument('--memory', type=int)
    parser.add_argument('--staged', action='store_true')
    parser.add_argument('case', choices=sorted(cases.CASES))
    options = parser.parse_args()
    if options.slice:
        options.profile, options.cards, options.memory = 'h200x1', 1, SLICE_BYTES
    if options.carve:
        options.cards, options.memory = 1, SLICE_BYTES
    case = cases.CASES[options.case]
    try:
        prepared = case.prepare(os.path.abspath(options.build))
        if not options.staged and case.needs_cards:
            enter_namespace(sys.argv[1:])
        context = cases.Context(build=os.path.abspath(options.build),
                                expect=expectations(options), prepared=prepared,
                                within=shlex.split(options.within))
        if not case.needs_cards:
            case.run(context)
        else:
            mode = 'slice' if options.slice else 'carve' if options.carve else 'stage'
            with stage.Stage(context.build, options.profile, mode):
                if options.slice:
                    context.within = slice_prefix(context.build)
                if options.carve:
                    context.within = [f'{context.build}/bin/carve', 'run', '--memory',
                                      str(SLICE_BYTES), '--cores', str(SLICE_CORES), '--']
                case.run(context)
                if case.computes:
                    check_account(context, options.slice or options.carve)
    except fetch.Unavailable as reason:
        print(f'SKIPPED: {reason}')
        sys.exit(SKIP)
    except cases.Failed as why:
        print(f'FAILED {options.case}: {why}')
        sys.exit(1)
    except subprocess.TimeoutExpired as why:
        print(f'FAILED {options.case}: {why}')
        sys.exit(1)
    print(f'{options.case}: holds')


if __name__ == '__main__':
    main()
