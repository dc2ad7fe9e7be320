"""Compiles a kernel with NVRTC for the present card and loads it with the driver API."""
import sys

from cuda.bindings import driver, nvrtc

SOURCE = b'extern "C" __global__ void workout_kernel(int* out, unsigned n) { if (out) out[0] = n; }'


def ok(result):
    if int(result[0]) != 0:
        sys.exit(f'{result[0]!r}')
    return result[1] if len(result) == 2 else None


ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
wanted = driver.CUdevice_attribute
major, minor = (ok(driver.cuDeviceGetAttribute(one, device)) for one in (
    wanted.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, wanted.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b'workout.cu', 0, [], []))
ok(nvrtc.nvrtcCompileProgram(program, 1, [f'--gpu-architecture=sm_{major}{minor}'.encode()]))
size = ok(nvrtc.nvrtcGetCUBINSize(program))
image = b' ' * size
ok(nvrtc.nvrtcGetCUBIN(program, image))
module = ok(driver.cuModuleLoadData(image))
ok(driver.cuModuleGetFunction(module, b'workout_kernel'))
print('workout complete')
