"""Uses all parts of the driver API that cuda-bindings programs use, and checks each result.

  cuda_bindings_workout.py --cards N --memory BYTES --name NAME [--cubin FILE]

Runs the same on cuda-bindings 12.9 and 13. --memory is one card's total memory. The reported total may be smaller by
the memory that the driver reserves.
"""
import argparse
import ctypes
import sys
import time

from cuda.bindings import driver as cu

MIB = 1 << 20
PTX = b'''.version 7.0
.target sm_50
.address_size 64
.visible .entry workout_kernel(.param .u64 out, .param .u32 n)
{
  ret;
}
'''


def ok(result):
    """The value or values of a call that must succeed."""
    error, *values = result
    if error != cu.CUresult.CUDA_SUCCESS:
        raise AssertionError(f'{error!r}')
    return values[0] if len(values) == 1 else tuple(values)


def expect(what, got, wanted):
    if got != wanted:
        raise AssertionError(f'{what}: got {got!r}, wanted {wanted!r}')


def is_free_again(wanted):
    """Waits until freed memory is free again. In a slice with a watchdog this can take a moment: memory that the
    driver's list still shows when the slice's pages no longer do counts as the driver's own for one or two rounds."""
    until = time.monotonic() + 5
    while ok(cu.cuMemGetInfo())[0] != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return ok(cu.cuMemGetInfo())[0] == wanted


def expect_free_again(wanted):
    expect('free again', is_free_again(wanted) or ok(cu.cuMemGetInfo())[0], True)


def devices(args):
    ok(cu.cuInit(0))
    expect('cuDeviceGetCount', ok(cu.cuDeviceGetCount()), args.cards)
    names = []
    for i in range(args.cards):
        dev = ok(cu.cuDeviceGet(i))
        name = ok(cu.cuDeviceGetName(96, dev)).split(b'\0')[0].decode()
        expect('cuDeviceGetName', name, args.name)
        total = ok(cu.cuDeviceTotalMem(dev))
        if not args.memory - 2048 * MIB <= total <= args.memory:
            raise AssertionError(f'cuDeviceTotalMem: {total}, card has {args.memory}')
        names.append(bytes(ok(cu.cuDeviceGetUuid(dev)).bytes))
        ok(cu.cuDeviceGetPCIBusId(32, dev))
        major = ok(cu.cuDeviceGetAttribute(
            cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev))
        if major < 5:
            raise AssertionError(f'compute capability {major}')
    expect('distinct UUIDs', len(set(names)), args.cards)
    error, *_ = cu.cuDeviceGet(args.cards)
    expect('cuDeviceGet past the end', error, cu.CUresult.CUDA_ERROR_INVALID_DEVICE)
    return ok(cu.cuDeviceGet(0))


def contexts(dev):
    primary = ok(cu.cuDevicePrimaryCtxRetain(dev))
    ok(cu.cuCtxSetCurrent(primary))
    expect('state', ok(cu.cuDevicePrimaryCtxGetState(dev))[1], 1)
    if len(cu.cuCtxCreate.__doc__.split('\n')[0].split(',')) >= 3:  # 13: with creation parameters
        plain = ok(cu.cuCtxCreate(None, 0, dev))
    else:
        plain = ok(cu.cuCtxCreate(0, dev))
    ok(cu.cuCtxPopCurrent())
    ok(cu.cuCtxDestroy(plain))
    ok(cu.cuCtxSetCurrent(primary))
    expect('current', int(ok(cu.cuCtxGetCurrent())), int(primary))
    return primary


def copy_both_ways():
    free_before, _ = ok(cu.cuMemGetInfo())
    size = 8 * MIB
    pointer = ok(cu.cuMemAlloc(size))
    free_after, _ = ok(cu.cuMemGetInfo())
    if free_before - free_after < size:
        raise AssertionError(f'8 MiB allocated, free fell by {free_before - free_after}')
    source = bytes(range(256)) * (size // 256)
    back = bytearray(size)
    ok(cu.cuMemcpyHtoD(pointer, source, size))
    ok(cu.cuMemcpyDtoH(back, pointer, size))
    expect('bytes read back', bytes(back) == source, True)
    other = ok(cu.cuMemAlloc(size))
    ok(cu.cuMemcpyDtoD(other, pointer, size))
    ok(cu.cuMemsetD8(int(other) + 16, 0x5A, 16))
    ok(cu.cuMemcpyDtoH(back, other, size))
    expect('set in the middle', bytes(back[:48]),
           source[:16] + b'\x5a' * 16 + source[32:48])
    ok(cu.cuMemFree(other))
    ok(cu.cuMemFree(pointer))


def copies():
    free_before, total = ok(cu.cuMemGetInfo())
    copy_both_ways()
    if not is_free_again(free_before):
        # The watchdog found in between that the context takes more than the slice was charged in advance. It finds this
        # once, so the second attempt must succeed.
        free_before, _ = ok(cu.cuMemGetInfo())
        copy_both_ways()
        expect_free_again(free_before)
    error, _ = cu.cuMemAlloc(total + MIB)
    expect('more than the card has', error, cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    host = ok(cu.cuMemHostAlloc(MIB, 0))
    ok(cu.cuMemFreeHost(host))
    managed = ok(cu.cuMemAllocManaged(MIB, 1))
    ok(cu.cuMemFree(managed))


def pitched_copies(stream):
    width, height = 100, 33
    pointer, pitch = ok(cu.cuMemAllocPitch(width, height, 4))
    if pitch < width or pitch % 4 != 0:
        raise AssertionError(f'pitch {pitch} for width {width}')
    source = bytes((7 * i) % 251 for i in range(width * height))
    keep = ctypes.create_string_buffer(source, len(source))
    back = ctypes.create_string_buffer(len(source))
    to_card = cu.CUDA_MEMCPY2D()
    to_card.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    to_card.srcHost = ctypes.addressof(keep)
    to_card.srcPitch = width
    to_card.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    to_card.dstDevice = pointer
    to_card.dstPitch = pitch
    to_card.WidthInBytes = width
    to_card.Height = height
    ok(cu.cuMemcpy2DAsync(to_card, stream))
    from_card = cu.CUDA_MEMCPY2D()
    from_card.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    from_card.srcDevice = pointer
    from_card.srcPitch = pitch
    from_card.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    from_card.dstHost = ctypes.addressof(back)
    from_card.dstPitch = width
    from_card.WidthInBytes = width
    from_card.Height = height
    ok(cu.cuMemcpy2DAsync(from_card, stream))
    ok(cu.cuStreamSynchronize(stream))
    expect('pitched bytes read back', back.raw == source, True)
    ok(cu.cuMemFree(pointer))


def events(stream):
    first, last = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    ok(cu.cuEventRecord(first, stream))
    ok(cu.cuEventRecord(last, stream))
    ok(cu.cuEventSynchronize(last))
    if ok(cu.cuEventElapsedTime(first, last)) < 0:
        raise AssertionError('time ran backwards between two events')
    expect('query', cu.cuEventQuery(last)[0], cu.CUresult.CUDA_SUCCESS)
    ok(cu.cuEventDestroy(first))
    ok(cu.cuEventDestroy(last))


def launch(function, stream, pointer, count):
    ok(cu.cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream,
                         ((pointer, count), (ctypes.c_void_p, ctypes.c_uint)), 0))


def modules(args, stream):
    pointer = ok(cu.cuMemAlloc(MIB))
    module = ok(cu.cuModuleLoadData(PTX + b'\0'))
    function = ok(cu.cuModuleGetFunction(module, b'workout_kernel'))
    launch(function, stream, pointer, 4)
    ok(cu.cuStreamSynchronize(stream))
    error, _ = cu.cuModuleGetFunction(module, b'no_such_kernel')
    expect('unknown kernel', error, cu.CUresult.CUDA_ERROR_NOT_FOUND)
    blocks = ok(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, 0))
    if blocks < 1:
        raise AssertionError(f'occupancy {blocks}')
    if args.cubin:
        with open(args.cubin, 'rb') as f:
            image = f.read()
        binary = ok(cu.cuModuleLoadData(image))
        launch(ok(cu.cuModuleGetFunction(binary, b'workout_kernel')), stream, pointer, 4)
        ok(cu.cuStreamSynchronize(stream))
        library = ok(cu.cuLibraryLoadData(image, None, None, 0, None, None, 0))
        kernel = ok(cu.cuLibraryGetKernel(library, b'workout_kernel'))
        ok(cu.cuKernelGetFunction(kernel))
        ok(cu.cuLibraryUnload(library))
        ok(cu.cuModuleUnload(binary))
    return module, function, pointer


def graphs(function, pointer, stream):
    ok(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    launch(function, stream, pointer, 1)
    launch(function, stream, pointer, 2)
    graph = ok(cu.cuStreamEndCapture(stream))
    nodes, count = ok(cu.cuGraphGetNodes(graph))
    expect('captured nodes', count, 2)
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    for _ in range(3):
        ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))
    empty = ok(cu.cuGraphCreate(0))
    ok(cu.cuGraphAddEmptyNode(empty, None, 0))
    executable = ok(cu.cuGraphInstantiate(empty, 0))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(empty))


def pools(dev, stream):
    pointer = ok(cu.cuMemAllocAsync(4 * MIB, stream))
    ok(cu.cuMemsetD8Async(pointer, 1, 4 * MIB, stream))
    ok(cu.cuMemFreeAsync(pointer, stream))
    ok(cu.cuStreamSynchronize(stream))
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    props.location.id = int(dev)
    pool = ok(cu.cuMemPoolCreate(props))
    pointer = ok(cu.cuMemAllocFromPoolAsync(4 * MIB, pool, stream))
    ok(cu.cuMemFreeAsync(pointer, stream))
    ok(cu.cuStreamSynchronize(stream))
    ok(cu.cuMemPoolTrimTo(pool, 0))
    ok(cu.cuMemPoolDestroy(pool))


def virtual_memory(dev):
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = int(dev)
    grain = ok(cu.cuMemGetAllocationGranularity(
        prop, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    free_before, total = ok(cu.cuMemGetInfo())
    expect('an odd size', cu.cuMemCreate(grain + 1, prop, 0)[0], cu.CUresult.CUDA_ERROR_INVALID_VALUE)
    expect('more than the card has', cu.cuMemCreate((total // grain + 1) * grain, prop, 0)[0],
           cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY)
    handle = ok(cu.cuMemCreate(2 * grain, prop, 0))
    base = int(ok(cu.cuMemAddressReserve(8 * grain, 0, 0, 0)))
    ok(cu.cuMemMap(base, 2 * grain, 0, handle, 0))
    second = base + 4 * grain
    ok(cu.cuMemMap(second, grain, grain, handle, 0))
    expect('mapped twice', cu.cuMemMap(base + grain, grain, 0, handle, 0)[0] !=
           cu.CUresult.CUDA_SUCCESS, True)
    access = cu.CUmemAccessDesc()
    access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = int(dev)
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(base, 2 * grain, [access], 1))
    ok(cu.cuMemSetAccess(second, grain, [access], 1))
    source, back = b'mapped' * 100, bytearray(600)
    ok(cu.cuMemcpyHtoD(base + grain, source, 600))
    ok(cu.cuMemcpyDtoH(back, second, 600))
    expect('written by one mapping, read by the other', bytes(back) == source, True)
    ok(cu.cuMemRelease(handle))
    ok(cu.cuMemUnmap(base, 2 * grain))
    expect('held while a mapping is left', ok(cu.cuMemGetInfo())[0] <= free_before - 2 * grain, True)
    ok(cu.cuMemUnmap(second, grain))
    expect_free_again(free_before)
    ok(cu.cuMemAddressFree(base, 8 * grain))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cards', type=int, required=True)
    parser.add_argument('--memory', type=int, required=True)
    parser.add_argument('--name', required=True)
    parser.add_argument('--cubin')
    args = parser.parse_args()
    step = 'devices'
    try:
        dev = devices(args)
        step = 'contexts'
        contexts(dev)
        stream = ok(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        step = 'copies'
        copies()
        step = 'pitched copies'
        pitched_copies(stream)
        step = 'events'
        events(stream)
        step = 'modules'
        module, function, pointer = modules(args, stream)
        step = 'graphs'
        graphs(function, pointer, stream)
        step = 'pools'
        pools(dev, stream)
        step = 'virtual memory'
        virtual_memory(dev)
        step = 'clean-up'
        ok(cu.cuModuleUnload(module))
        ok(cu.cuMemFree(pointer))
        ok(cu.cuStreamDestroy(stream))
        ok(cu.cuDevicePrimaryCtxRelease(dev))
    except AssertionError as why:
        line = why.__traceback__
        while line.tb_next and 'programs' in (line.tb_next.tb_frame.f_code.co_filename):
            line = line.tb_next
        print(f'{step}, line {line.tb_lineno}: {why}')
        sys.exit(1)
    print('workout complete')


if __name__ == '__main__':
    main()
