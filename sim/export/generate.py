#!/usr/bin/env python3
"""Writes the generated part of a simulated driver library from its fact table. The build runs it.

  generate.py cuda cuda_symbols.tsv out.cc    stubs + kProcTable (proc_address.h)
  generate.py nvml nvml_symbols.tsv out.cc    stubs

A stub is a weak definition that returns "not supported". A definition in sim/cuda or sim/nvml is strong and replaces
the stub at link time, so there is no list of modelled names to maintain: write the function and its stub disappears.
tools/simulated_driver_table reads from the linked library which definitions are weak and writes
docs/simulated-driver.md.
"""
import sys

HEAD = '// Generated from {}; do not edit.\n#include "sim/export/proc_address.h"\n\n'
STUB = ('extern "C" __attribute__((weak, visibility("default"))) int {0}() {{ return {1}; }}\n')
OBJECT = ('extern "C" {{ alignas(8) __attribute__((weak, visibility("default"))) char {0}[{1}] = {{}}; }}\n')
NOT_SUPPORTED = {'cuda': 801, 'nvml': 3}


def rows(path):
    lines = [x.rstrip('\n').split('\t') for x in open(path) if not x.startswith('#')]
    return [dict(zip(lines[0], x)) for x in lines[1:]]


def main():
    library, table, out = sys.argv[1:4]
    symbols = rows(table)
    text = HEAD.format(table.rsplit('/', 1)[-1])
    for s in symbols:
        if s.get('kind') == 'object':
            text += OBJECT.format(s['symbol'], s['size'])
        else:
            text += STUB.format(s['symbol'], NOT_SUPPORTED[library])
    if library == 'cuda':
        offered = [s for s in symbols if s['kind'] not in ('hidden', 'object')]
        offered.sort(key=lambda s: (s['base'], s['kind'] != 'legacy', int(s['version'])))
        text += '\nnamespace carve::sim {\n\nconst ProcVariant kProcTable[] = {\n'
        for s in offered:
            text += '    {{"{}", {}, {}, reinterpret_cast<void*>(&{})}},\n'.format(
                s['base'], s['version'], 'false' if s['kind'] == 'legacy' else 'true', s['symbol'])
        text += '};\nconst unsigned kProcCount = sizeof kProcTable / sizeof kProcTable[0];\n\n'
        text += '}  // namespace carve::sim\n'
    with open(out, 'w') as f:
        f.write(text)


if __name__ == '__main__':
    main()
