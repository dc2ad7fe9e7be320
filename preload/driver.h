#pragma once

#include <cstdint>

#include "preload/driver_abi.h"

// The addresses of the driver's own functions, and the map from an address that the driver returned to Carve's hook
// for it. The first call that needs them fills both, once. The addresses stay valid in a forked child.
namespace carve::preload {

/// One value per row of the hook table, in the table's order.
enum class Hook : std::uint16_t {
#define HOOK(symbol, kind) symbol,
#define GATE(symbol, kind, params, args, stream, key) symbol,
#include "preload/hooks_cuda.def"
#undef HOOK
#undef GATE
  kCount
};

inline constexpr std::uint32_t kHooks = static_cast<std::uint32_t>(Hook::kCount);

/// The driver's function for each hook. Where this driver has no such function, the entry is a function that returns
/// "not supported".
extern void* driver_function[kHooks];

/// The driver's own function for the hook of the same name, with the hook's own type.
#define CARVE_DRIVER(symbol)                \
  (reinterpret_cast<decltype(&::symbol)>( \
      ::carve::preload::driver_function[static_cast<unsigned>(::carve::preload::Hook::symbol)]))

/// Driver functions that hooks call and that Carve does not hook. Never null after `resolve_driver`.
struct DriverCalls {
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*cuDeviceGetUuid_v2)(CUuuid*, CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuCtxGetDevice)(CUdevice*);
  CUresult (*cuDevicePrimaryCtxGetState)(CUdevice, unsigned*, int*);
  CUresult (*cuStreamGetCtx)(CUstream, CUcontext*);
  CUresult (*cuStreamIsCapturing)(CUstream, int*);
  CUresult (*cuStreamIsCapturing_ptsz)(CUstream, int*);
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuEventCreate)(CUevent*, unsigned);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventQuery)(CUevent);
  CUresult (*cuEventElapsedTime)(float*, CUevent, CUevent);
  CUresult (*cuEventDestroy_v2)(CUevent);
  CUresult (*cuMemGetAddressRange_v2)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  CUresult (*cuMemPoolGetAttribute)(CUmemoryPool, int, void*);
  CUresult (*cuDeviceGetMemPool)(CUmemoryPool*, CUdevice);
  CUresult (*cuGraphGetNodes)(CUgraph, CUgraphNode*, std::size_t*);
  CUresult (*cuGraphNodeGetType)(CUgraphNode, int*);
  CUresult (*cuGraphMemAllocNodeGetParams)(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*);
  CUresult (*cuGraphChildGraphNodeGetGraph)(CUgraphNode, CUgraph*);
  CUresult (*cuDeviceGetGraphMemAttribute)(CUdevice, int, void*);
  CUresult (*cuStreamGetDevice)(CUstream, CUdevice*);
  CUresult (*cuStreamGetDevice_ptsz)(CUstream, CUdevice*);
  CUresult (*cuCtxPushCurrent_v2)(CUcontext);
  CUresult (*cuCtxPopCurrent_v2)(CUcontext*);
  CUresult (*cuPointerGetAttribute)(void*, int, CUdeviceptr);
  CUresult (*cuDeviceGetDefaultMemPool)(CUmemoryPool*, CUdevice);
  CUresult (*cuDeviceSetMemPool)(CUdevice, CUmemoryPool);
  CUresult (*cuMemPoolSetAttribute)(CUmemoryPool, int, void*);
  CUresult (*cuMemGetAllocationPropertiesFromHandle)(CUmemAllocationProp*, CUmemGenericAllocationHandle);
  CUresult (*cuMemAddressReserve)(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long);
  CUresult (*cuMemAddressFree)(CUdeviceptr, std::size_t);
  CUresult (*cuArrayGetMemoryRequirements)(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray, CUdevice);
  CUresult (*cuMipmappedArrayGetMemoryRequirements)(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray, CUdevice);
};
extern DriverCalls driver;

/// Finds all of the above, once per process. Returns false when the driver's file does not exist. Cost: about 200
/// symbol look-ups at the first call, one load afterwards. Safe from any thread.
bool resolve_driver();

/// Returns Carve's hook for an address that the driver returned, or the address itself when it has no hook.
/// Cost: one hash and one or two probes. Call `resolve_driver` first.
void* in_front_of(void* driver_address);

}  // namespace carve::preload
