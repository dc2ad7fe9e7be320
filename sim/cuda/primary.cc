#include "base/mutex.h"
#include "sim/cuda/context.h"

// The primary context of a device: one per process, reference-counted, shared by all callers that retain it.
namespace carve::sim::cu {
namespace {

Mutex g_primary;  // for retain and release from several threads

CUresult find(CUdevice dev, Device** device) {
  if (Driver::get().ready() != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  *device = Driver::get().device(dev);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

void drop(Device* device) {
  Context* context = device->primary;
  device->primary = nullptr;
  device->primary_refs = 0;
  if (context != nullptr) destroy_context(context);
}

}  // namespace

CU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_primary);
  if (device->primary == nullptr) {
    const CUresult rc = make_context(device, device->primary_flags, 13050, true, &device->primary);
    if (rc != CUDA_SUCCESS) return rc;
  }
  ++device->primary_refs;
  *out = device->primary;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(g_primary);
  if (device->primary_refs == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_refs == 0) drop(device);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return cuDevicePrimaryCtxRelease_v2(dev);
}

CU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(g_primary);
  drop(device);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CU_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned flags) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_primary);
  device->primary_flags = flags;
  if (device->primary != nullptr) device->primary->flags = flags;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CU_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned* flags, int* active) {
  Device* device = nullptr;
  if (const CUresult rc = find(dev, &device); rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(g_primary);
  if (flags != nullptr) *flags = device->primary_flags;
  if (active != nullptr) *active = device->primary != nullptr ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
