#pragma once

#include "preload/driver_abi.h"
#include "preload/export.h"

// Other hooks also call the driver's functions of these hooks, to undo what could not be charged.
CARVE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
CARVE_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CARVE_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool);
CARVE_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep);
CARVE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CARVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t size);
CARVE_EXPORT CUresult cuArrayDestroy(CUarray array);
CARVE_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);
CARVE_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address);
CARVE_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory what);
CARVE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph);
CARVE_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device);
CARVE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
CARVE_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags);
CARVE_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device);
CARVE_EXPORT CUresult cuStreamSynchronize(CUstream stream);
