#!/usr/bin/env python3
"""Writes the fact tables cuda_symbols.tsv and nvml_symbols.tsv from NVIDIA's public headers.

A person runs it when a new CUDA version is released; the build never does. The tables are our own statement of names
and version numbers. The headers stay outside the repository.

  read_headers.py --cache <folder created by fetch_headers> [--check]

--check writes nothing and fails when the committed tables differ from the headers.

The source of each line
  cuda.h, preprocessed as NVIDIA builds it (every versioned and per-thread name is declared), and
  the *Typedefs.h headers, where PFN_<name>_v<version>[_ptds|_ptsz] gives the driver version at which
  cuGetProcAddress starts to return a variant. The n-th version of a name is its n-th exported
  symbol (f, f_v2, f_v3). Per-thread variants are counted separately, from the newest down, because
  the oldest versions have no per-thread variant.
  Names that drivers export and no header declares are in *_DRIVER_ONLY below (read with nm from the
  Debian packages libcuda1 and libnvidia-ml1).
"""
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TYPEDEFS = ['cudaTypedefs.h', 'cudaEGLTypedefs.h', 'cudaGLTypedefs.h', 'cudaVDPAUTypedefs.h',
            'cudaProfilerTypedefs.h']
WINDOWS_ONLY = {'cuWGLGetDevice'}
# name -> size of the data object, or 0 for a function.
CUDA_DRIVER_ONLY = {
    'cuEGLApiInit': 0, 'cuMemGetAttribute': 0, 'cuMemGetAttribute_v2': 0,
    'cudbgApiAttach': 0, 'cudbgApiDetach': 0, 'cudbgApiInit': 0, 'cudbgGetAPI': 0,
    'cudbgGetAPIVersion': 0, 'cudbgMain': 0, 'cudbgReportDriverApiError': 0,
    'cudbgReportDriverInternalError': 0,
    'cudbgApiClientPid': 4, 'cudbgApiClientRevision': 4, 'cudbgAttachHandlerAvailable': 4,
    'cudbgDebuggerCapabilities': 4, 'cudbgDebuggerInitialized': 4,
    'cudbgDetachSuspendedDevicesMask': 4, 'cudbgEnableIntegratedMemcheck': 4,
    'cudbgEnableLaunchBlocking': 4, 'cudbgEnablePreemptionDebugging': 4,
    'cudbgInjectionPath': 4096, 'cudbgIpcFlag': 4, 'cudbgReportDriverApiErrorFlags': 4,
    'cudbgReportedDriverApiErrorCode': 8, 'cudbgReportedDriverApiErrorFuncNameAddr': 8,
    'cudbgReportedDriverApiErrorFuncNameSize': 8, 'cudbgReportedDriverInternalErrorCode': 8,
    'cudbgResumeForAttachDetach': 4, 'cudbgRpcEnabled': 4, 'cudbgSessionId': 4,
    'cudbgUseExternalDebugger': 4,
}
NVML_DRIVER_ONLY = ['nvmlGetBlacklistDeviceCount', 'nvmlGetBlacklistDeviceInfoByIndex',
                    'nvmlInternalGetExportTable']


def folders(cache):
    """The include folders of the four wheels, by (library, CUDA version)."""
    return {
        ('cuda', '12.9'): f'{cache}/cuda-12.9/nvidia/cuda_runtime/include',
        ('cuda', '13.5'): f'{cache}/cuda-13.5/nvidia/cu13/include',
        ('nvml', '12.9'): f'{cache}/nvml-12.9/nvidia/nvml_dev/include',
        ('nvml', '13.5'): f'{cache}/nvml-13.5/nvidia/cu13/include',
    }


def split(symbol):
    """('cuMemcpyHtoD', 2, 'ptds') of 'cuMemcpyHtoD_v2_ptds'."""
    m = re.fullmatch(r'(\w+?)(?:_v(\d+))?(?:_(ptds|ptsz))?', symbol)
    return m[1], int(m[2] or 1), m[3] or ''


def cuda_h_names(folder):
    text = subprocess.run(['cc', '-E', '-P', '-D__CUDA_API_VERSION_INTERNAL', '-I' + folder,
                           folder + '/cuda.h'], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r'\b(cu[A-Z]\w*)\s*\(', text))


def typedef_versions(folder):
    """{(base, 'ptds'|'ptsz'|''): sorted versions} and {base: header}"""
    versions, header = {}, {}
    for name in TYPEDEFS:
        text = open(f'{folder}/{name}').read()
        for m in re.finditer(r'\*PFN_(cu\w+?)_v(\d+)(?:_(ptds|ptsz))?\)', text):
            if m[1] in WINDOWS_ONLY:
                continue
            versions.setdefault((m[1], m[3] or ''), set()).add(int(m[2]))
            header.setdefault(m[1], name.replace('Typedefs.h', '.h'))
    return {k: sorted(v) for k, v in versions.items()}, header


def cuda_variants(declared, versions, header):
    """{symbol: (base, version it appears at, 'legacy'|'ptds'|'ptsz', header)}"""
    by_base = {}
    for s in declared:
        base, n, thread = split(s)
        by_base.setdefault((base, thread), []).append((n, s))
    rows = {}
    for (base, thread), vs in versions.items():
        names = [s for _, s in sorted(by_base.get((base, thread), []))]
        if not names:  # the GL, EGL and VDPAU headers need foreign headers to preprocess
            first = len(versions.get((base, ''), [])) - len(vs) if thread else 0
            names = [base + (f'_v{first + i + 1}' if first + i else '') +
                     (f'_{thread}' if thread else '') for i in range(len(vs))]
        if len(names) != len(vs):
            sys.exit(f'{base} {thread}: {len(names)} symbols but {len(vs)} versions: {names} {vs}')
        for s, v in zip(names, vs):
            rows[s] = (base, v, thread or 'legacy', header[base])
    missing = declared - rows.keys()
    if missing:
        sys.exit(f'declared but without a version: {sorted(missing)}')
    return rows


def cuda_table(paths):
    declared, versions, headers, releases = set(), {}, {}, {}
    for release in ('12.9', '13.5'):
        folder = paths['cuda', release]
        names = cuda_h_names(folder)
        vs, header = typedef_versions(folder)
        declared |= names
        headers.update(header)
        for key, seen in vs.items():
            versions[key] = sorted(set(versions.get(key, [])) | set(seen))
        # A header other than cuda.h declares the names of its typedefs in every release that contains it.
        releases[release] = names | {b for b, h in header.items() if h != 'cuda.h'}
    rows = cuda_variants(declared, versions, headers)
    lines = []
    for s, (base, version, kind, header) in rows.items():
        where = [v for v in releases if s in releases[v] or
                 (header != 'cuda.h' and base in releases[v])]
        lines.append((s, base, str(version), kind, ','.join(where), header, '-'))
    for s, size in CUDA_DRIVER_ONLY.items():
        if s not in rows:
            lines.append((s, split(s)[0], '0', 'object' if size else 'hidden', 'driver', '-',
                          str(size) if size else '-'))
    return ('# Every name libcuda.so.1 exports. Written by read_headers.py; do not edit.\n'
            '# version: the driver version at which cuGetProcAddress starts to answer with this\n'
            '# symbol; kind: legacy | ptds | ptsz (per-thread default stream) | hidden (no header\n'
            '# declares it) | object (data of that size); release: CUDA headers that have it.\n'
            'symbol\tbase\tversion\tkind\trelease\theader\tsize\n' +
            ''.join('\t'.join(x) + '\n' for x in sorted(lines)))


def nvml_of(folder):
    text = open(folder + '/nvml.h').read()
    text = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    text = re.sub(r'//[^\n]*', '', text)
    names = set(re.findall(r'\bDECLDIR\s+(?:char\s*\*\s*)?(nvml[A-Z]\w*)\s*\(', text))
    # "#define nvmlInit nvmlInit_v2": both names are exported.
    names |= {m[1] for m in re.finditer(r'#define\s+(nvml[A-Z]\w*)\s+(nvml\w+_v\d+)\b', text)
              if m[2] in names or re.search(r'\b' + m[2] + r'\s*\(', text)}
    return names


def nvml_table(paths):
    releases = {v: nvml_of(paths['nvml', v]) for v in ('12.9', '13.5')}
    lines = [(s, ','.join(v for v in releases if s in releases[v]))
             for s in set().union(*releases.values())]
    lines += [(s, 'driver') for s in NVML_DRIVER_ONLY]
    return ('# Every name libnvidia-ml.so.1 exports. Written by read_headers.py; do not edit.\n'
            'symbol\trelease\n' + ''.join('\t'.join(x) + '\n' for x in sorted(lines)))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument('--cache', required=True)
    arguments.add_argument('--check', action='store_true')
    options = arguments.parse_args()
    paths = folders(options.cache)
    stale = False
    for name, text in (('cuda_symbols.tsv', cuda_table(paths)),
                       ('nvml_symbols.tsv', nvml_table(paths))):
        path = os.path.join(HERE, name)
        if options.check:
            if open(path).read() != text:
                stale = True
                print(f'{name} differs from the headers', file=sys.stderr)
        else:
            with open(path, 'w') as f:
                f.write(text)
    if options.check and not stale:
        print('tables agree with the headers of CUDA 12.9 and 13.5')
    sys.exit(1 if stale else 0)


if __name__ == '__main__':
    main()
