"""nvidia-ml-py: the NVML queries of monitoring programs; each result is checked.

  nvml_workout.py --cards N --memory BYTES --name NAME [--hold BYTES]

With --hold it also allocates this much memory on the first card through the driver API and looks for its own process in
the process lists.
"""
import argparse
import ctypes
import os

import pynvml as nv


def hold(size):
    """Creates a context and one allocation, with ctypes only."""
    cu = ctypes.CDLL('libcuda.so.1')
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cu.cuInit(0) == 0
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    assert cu.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0


def supported(call, *arguments):
    """The value, or None when the library returns NOT_SUPPORTED. Other errors propagate."""
    try:
        return call(*arguments)
    except nv.NVMLError_NotSupported:
        return None


def same(a, b):
    return ctypes.cast(a, ctypes.c_void_p).value == ctypes.cast(b, ctypes.c_void_p).value


def look_at(handle, args):
    assert nv.nvmlDeviceGetName(handle) == args.name, nv.nvmlDeviceGetName(handle)
    memory = nv.nvmlDeviceGetMemoryInfo(handle)
    assert memory.total == args.memory, f'total {memory.total}, wanted {args.memory}'
    assert memory.free + memory.used == memory.total
    second = nv.nvmlDeviceGetMemoryInfo(handle, version=nv.nvmlMemory_v2)
    assert second.total == args.memory and second.free <= memory.free + (1 << 20)
    pci = nv.nvmlDeviceGetPciInfo(handle)
    assert same(nv.nvmlDeviceGetHandleByPciBusId(pci.busId), handle)
    uuid = nv.nvmlDeviceGetUUID(handle)
    assert uuid.startswith('GPU-') and len(uuid) == 40, uuid
    assert same(nv.nvmlDeviceGetHandleByUUID(uuid), handle)
    rates = nv.nvmlDeviceGetUtilizationRates(handle)
    assert 0 <= rates.gpu <= 100 and 0 <= rates.memory <= 100
    assert 0 < nv.nvmlDeviceGetPowerUsage(handle) <= nv.nvmlDeviceGetEnforcedPowerLimit(handle)
    assert 20 <= nv.nvmlDeviceGetTemperature(handle, nv.NVML_TEMPERATURE_GPU) < 90
    for clock in (nv.NVML_CLOCK_GRAPHICS, nv.NVML_CLOCK_SM, nv.NVML_CLOCK_MEM):
        assert nv.nvmlDeviceGetClockInfo(handle, clock) <= nv.nvmlDeviceGetMaxClockInfo(handle, clock)
    for call in (nv.nvmlDeviceGetFanSpeed, nv.nvmlDeviceGetMigMode, nv.nvmlDeviceGetEccMode,
                 nv.nvmlDeviceGetBAR1MemoryInfo, nv.nvmlDeviceGetPerformanceState,
                 nv.nvmlDeviceGetArchitecture, nv.nvmlDeviceGetCudaComputeCapability,
                 nv.nvmlDeviceGetEncoderUtilization, nv.nvmlDeviceGetDecoderUtilization,
                 nv.nvmlDeviceGetGraphicsRunningProcesses, nv.nvmlDeviceGetSerial,
                 nv.nvmlDeviceGetMinorNumber, nv.nvmlDeviceGetCurrentClocksEventReasons):
        supported(call, handle)
    values = nv.nvmlDeviceGetFieldValues(handle, [nv.NVML_FI_DEV_NVLINK_LINK_COUNT,
                                                  nv.NVML_FI_DEV_POWER_INSTANT])
    assert all(v.nvmlReturn == nv.NVML_SUCCESS for v in values)


def look_at_processes(handle, args):
    found = {p.pid: p.usedGpuMemory for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)}
    assert os.getpid() in found, f'own pid {os.getpid()} not in {found}'
    assert found[os.getpid()] >= args.hold, found
    for name in ('nvmlDeviceGetComputeRunningProcesses', 'nvmlDeviceGetComputeRunningProcesses_v2'):
        class Record(ctypes.Structure):
            _fields_ = [('pid', ctypes.c_uint), ('used', ctypes.c_ulonglong)] + (
                [('gi', ctypes.c_uint), ('ci', ctypes.c_uint)] if name.endswith('_v2') else [])
        count, records = ctypes.c_uint(64), (Record * 64)()
        call = getattr(ctypes.CDLL('libnvidia-ml.so.1'), name)
        assert call(handle, ctypes.byref(count), records) == 0
        again = {records[i].pid: records[i].used for i in range(count.value)}
        assert again == found, f'{name}: {again} and _v3: {found}'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    parser.add_argument('--hold', type=int, default=0)
    args = parser.parse_args()
    nv.nvmlInit()
    assert nv.nvmlDeviceGetCount() == args.cards, nv.nvmlDeviceGetCount()
    assert all(part.isdigit() for part in nv.nvmlSystemGetDriverVersion().split('.'))
    handles = [nv.nvmlDeviceGetHandleByIndex(i) for i in range(args.cards)]
    if args.hold:
        hold(args.hold)
    for handle in handles:
        look_at(handle, args)
    for other in handles[1:]:
        nv.nvmlDeviceGetTopologyCommonAncestor(handles[0], other)
        nv.nvmlDeviceGetP2PStatus(handles[0], other, ctypes.c_uint(0))
    if args.hold:
        look_at_processes(handles[0], args)
    events = nv.nvmlEventSetCreate()
    nv.nvmlDeviceRegisterEvents(handles[0], nv.nvmlEventTypeXidCriticalError, events)
    try:
        nv.nvmlEventSetWait_v2(events, 10)
        raise AssertionError('an event without a cause')
    except nv.NVMLError_Timeout:
        pass
    nv.nvmlEventSetFree(events)
    nv.nvmlShutdown()
    try:
        nv.nvmlDeviceGetCount()
        raise AssertionError('answers after shutdown')
    except nv.NVMLError_Uninitialized:
        pass
    print('workout complete')


if __name__ == '__main__':
    main()
