"""cuGetProcAddress for every name × version × flags, compared with the headers and with a real driver."""
import ctypes
import os
import re
import sys

import fetch

NOT_FOUND, INVALID_VALUE = 500, 1


def _load(path):
    library = ctypes.CDLL(path)
    library.cuGetProcAddress_v2.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int,
                                            ctypes.c_uint64, ctypes.c_void_p]
    library.cuGetProcAddress.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int,
                                         ctypes.c_uint64]
    return library


def _ask(library, name, version, flags):
    """(error, pointer or None, status) of the second form."""
    pointer, status = ctypes.c_void_p(0xdead), ctypes.c_int(77)
    error = library.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), version, flags,
                                        ctypes.byref(status))
    return error, pointer.value, status.value


def _address(library, symbol):
    return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value


def _variants(cache):
    """{base: [(version, per_thread, symbol)]}, read from the headers."""
    sys.path.insert(0, os.path.join(fetch.REPOSITORY, 'sim/export'))
    import read_headers
    found = {}
    text = read_headers.cuda_table(read_headers.folders(cache))
    for line in text.splitlines():
        if line.startswith('#') or line.startswith('symbol\t'):
            continue
        symbol, base, version, kind = line.split('\t')[:4]
        if kind not in ('hidden', 'object'):
            found.setdefault(base, []).append((int(version), kind != 'legacy', symbol))
    return found


def _wanted(variants, version, flags):
    """(symbol or None, status), according to the rule measured on real drivers."""
    per_thread = flags == 2 and any(v[1] for v in variants)
    fitting = [v for v in variants if v[1] == per_thread and (version < 0 or v[0] <= version)]
    return (max(fitting)[2], 0) if fitting else (None, 2)


def against_headers(build, cache):
    """'' or the differences. Also checks the first form's error behaviour and unusual arguments."""
    library = _load(os.path.join(build, 'sim/lib/libcuda.so.1'))
    table = _variants(cache)
    versions = {v[0] for vs in table.values() for v in vs}
    versions |= {v - 10 for v in versions} | {-1, 0, 999999}
    wrong, asked = [], 0
    for base, variants in sorted(table.items()):
        for version in sorted(versions):
            for flags in (0, 1, 2):
                symbol, status = _wanted(variants, version, flags)
                wanted = (0, _address(library, symbol) if symbol else None, status)
                asked += 1
                if _ask(library, base, version, flags) != wanted:
                    wrong.append((base, version, flags, symbol))
    for name in ('cuMemAlloc_v2', 'cuNoSuchThing', '', 'cuMemGetAttribute'):
        if _ask(library, name, 12000, 0) != (0, None, 1):
            wrong.append((name, 'is not unknown'))
    pointer = ctypes.c_void_p(0xdead)
    first = library.cuGetProcAddress
    if first(b'cuNoSuchThing', ctypes.byref(pointer), 12000, 0) != NOT_FOUND:
        wrong.append('the first form does not return 500 for an unknown name')
    if pointer.value != 0xdead:
        wrong.append('the first form touches the pointer when it finds nothing')
    if first(b'cuInit', ctypes.byref(pointer), 12000, 4) != INVALID_VALUE:
        wrong.append('flags 4 are not refused')
    if library.cuGetProcAddress_v2(b'cuNoSuchThing', ctypes.byref(pointer), 12000, 0, None) != 0:
        wrong.append('_v2 with a null status does not return 0')
    print(f'{asked} queries, {len(wrong)} wrong')
    return f'{len(wrong)} of {asked} wrong, such as {wrong[:5]}' if wrong else ''


def against_driver(build, root):
    """The same queries to a real 535 driver, which answers them without a card."""
    folder = os.path.join(root, 'usr/lib/x86_64-linux-gnu/nvidia/current')
    path = next(os.path.join(folder, f) for f in sorted(os.listdir(folder))
                if re.fullmatch(r'libcuda\.so\.\d+\..*', f))
    real, ours = _load(path), _load(os.path.join(build, 'sim/lib/libcuda.so.1'))
    newest = ctypes.c_int()
    real.cuDriverGetVersion(ctypes.byref(newest))
    rows = [x.rstrip('\n').split('\t') for x in
            open(os.path.join(fetch.REPOSITORY, 'sim/export/cuda_symbols.tsv'))
            if not x.startswith('#')][1:]
    symbols = [r for r in rows if r[3] not in ('hidden', 'object') and hasattr(real, r[0])]
    by_real = {_address(real, r[0]): r[0] for r in symbols}
    by_ours = {_address(ours, r[0]): r[0] for r in symbols}
    versions = {int(r[2]) for r in symbols} | {int(r[2]) - 10 for r in symbols}
    versions = sorted(v for v in versions if v <= newest.value)
    wrong, asked = [], 0
    for base in sorted({r[1] for r in symbols}):
        for version in versions:
            for flags in (0, 1, 2):
                error, pointer, status = _ask(real, base, version, flags)
                wanted = (error, by_real.get(pointer, pointer), status)
                error, pointer, status = _ask(ours, base, version, flags)
                got = (error, by_ours.get(pointer, pointer), status)
                asked += 1
                if got != wanted:
                    wrong.append((base, version, flags, got, wanted))
    print(f'{asked} queries to {os.path.basename(path)} and to ours, {len(wrong)} differ')
    return f'{len(wrong)} of {asked} differ, such as {wrong[:5]}' if wrong else ''
