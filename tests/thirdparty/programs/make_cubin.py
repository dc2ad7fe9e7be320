"""Writes a cubin with one kernel, compiled by NVRTC (which needs no driver): make_cubin.py FILE."""
import sys

from cuda.bindings import nvrtc

SOURCE = b'extern "C" __global__ void workout_kernel(int* out, unsigned n) { if (out) out[0] = n; }'


def ok(result):
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        sys.exit(f'nvrtc: {result[0]!r}')
    return result[1] if len(result) == 2 else None


program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b'workout.cu', 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [b'--gpu-architecture=sm_90']))
size = ok(nvrtc.nvrtcGetCUBINSize(program))
image = b' ' * size
ok(nvrtc.nvrtcGetCUBIN(program, image))
with open(sys.argv[1], 'wb') as f:
    f.write(image)
