#include <cstring>

#include "base/mutex.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/pool.h"

// cuMemPool*, cuMemAllocAsync and cuMemFreeAsync.
namespace carve::sim::cu {
namespace {

enum : int {
  kReuseFollowEvents = 1,
  kReuseInternal = 3,
  kReleaseThreshold = 4,
  kReservedNow = 5,
  kReservedHigh = 6,
  kUsedNow = 7,
  kUsedHigh = 8,
};
constexpr int kReadWrite = 3;

Pool* checked_pool(CUmemoryPool pool) {
  return pool != nullptr && pool->magic == kPoolMagic ? pool : nullptr;
}

Pool* current_pool(Device* device) {
  default_pool(device);
  return device->current_pool;
}

CUresult capture_alloc(Stream* stream, CUdeviceptr* out, std::size_t size) {
  NodeBody body;
  body.kind = NodeKind::kAlloc;
  body.memory = make_graph_memory(stream->context->device, size);
  if (body.memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  body.memory->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  body.memory->props.location = {CU_MEM_LOCATION_TYPE_DEVICE, stream->context->device->ordinal};
  *out = body.memory->base;
  return capture_node(stream, body);
}

CUresult alloc_async(CUdeviceptr* out, std::size_t size, CUmemoryPool pool, CUstream handle,
                     std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() != nullptr) return capture_alloc(stream, out, size);
  if (pool == nullptr) pool = current_pool(stream->context->device);
  return allocate_from_pool(pool, stream, size, out);
}

CUresult alloc_from(CUdeviceptr* out, std::size_t size, CUmemoryPool pool, CUstream handle,
                    std::uintptr_t zero) {
  CU_NEED_INIT();
  return checked_pool(pool) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                       : alloc_async(out, size, pool, handle, zero);
}

CUresult free_async(CUdeviceptr address, CUstream handle, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (address == 0) return CUDA_SUCCESS;
  if (stream->capture.load() != nullptr) {
    NodeBody body;
    body.kind = NodeKind::kFree;
    body.address = address;
    return capture_node(stream, body);
  }
  return free_to_pool(address, {stream->index, stream->cell->submitted.load(std::memory_order_acquire)});
}

CUresult pool_of_location(const CUmemLocation* location, int type, Device** device) {
  CU_NEED_INIT();
  if (location == nullptr || type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = Driver::get().device(location->id);
  return *device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

}  // namespace

#define CU_PAIR(name, parameters, call)               \
  CU_EXPORT CUresult name parameters {                \
    constexpr std::uintptr_t zero = kStreamLegacy;    \
    return call;                                      \
  }                                                   \
  CU_EXPORT CUresult name##_ptsz parameters {         \
    constexpr std::uintptr_t zero = kStreamPerThread; \
    return call;                                      \
  }
CU_PAIR(cuMemAllocAsync, (CUdeviceptr * out, std::size_t n, CUstream s),
        alloc_async(out, n, nullptr, s, zero))
CU_PAIR(cuMemAllocFromPoolAsync, (CUdeviceptr * out, std::size_t n, CUmemoryPool pool, CUstream s),
        alloc_from(out, n, pool, s, zero))
CU_PAIR(cuMemFreeAsync, (CUdeviceptr address, CUstream s), free_async(address, s, zero))

CU_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice dev) {
  CU_NEED_INIT();
  Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = default_pool(device);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice dev) {
  CU_NEED_INIT();
  Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = current_pool(device);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  CU_NEED_INIT();
  Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (checked_pool(pool) == nullptr || pool->device != device) return CUDA_ERROR_INVALID_VALUE;
  default_pool(device);
  device->current_pool = pool;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuMemGetDefaultMemPool(CUmemoryPool* out, CUmemLocation* location, int type) {
  Device* device = nullptr;
  const CUresult rc = pool_of_location(location, type, &device);
  return rc != CUDA_SUCCESS ? rc : cuDeviceGetDefaultMemPool(out, device->ordinal);
}
CU_EXPORT CUresult cuMemGetMemPool(CUmemoryPool* out, CUmemLocation* location, int type) {
  Device* device = nullptr;
  const CUresult rc = pool_of_location(location, type, &device);
  return rc != CUDA_SUCCESS ? rc : cuDeviceGetMemPool(out, device->ordinal);
}
CU_EXPORT CUresult cuMemSetMemPool(CUmemLocation* location, int type, CUmemoryPool pool) {
  Device* device = nullptr;
  const CUresult rc = pool_of_location(location, type, &device);
  return rc != CUDA_SUCCESS ? rc : cuDeviceSetMemPool(device->ordinal, pool);
}

CU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  CU_NEED_INIT();
  if (out == nullptr || props == nullptr || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes != 0)
    return CUDA_ERROR_NOT_SUPPORTED;  // host pools and sharing between processes
  Device* device = Driver::get().device(props->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto* pool = new Pool();
  pool->device = device;
  pool->props = *props;
  pool->max_size = props->maxSize;
  *out = pool;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  CU_NEED_INIT();
  Pool* pool = checked_pool(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool->mutex);
  collect(pool);
  trim_pool(pool, keep);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  CU_NEED_INIT();
  Pool* pool = checked_pool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool->mutex);
  pool->threshold = 0;
  collect(pool);
  trim_pool(pool, 0);
  if (pool->device->current_pool == pool) pool->device->current_pool = pool->device->default_pool;
  pool->magic = 0;  // blocks still in use keep pointing here
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  CU_NEED_INIT();
  Pool* pool = checked_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool->mutex);
  collect(pool);
  auto* wide = static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case kReuseFollowEvents:
    case 2:
    case kReuseInternal:
      *static_cast<int*>(value) = pool->reuse[attribute - 1];
      break;
    case kReleaseThreshold:
      *wide = pool->threshold;
      break;
    case kReservedNow:
      *wide = pool->reserved;
      break;
    case kReservedHigh:
      *wide = pool->reserved_high;
      break;
    case kUsedNow:
      *wide = pool->used;
      break;
    case kUsedHigh:
      *wide = pool->used_high;
      break;
    case 9:
      *static_cast<int*>(value) = pool->props.allocType;
      break;
    case 10:
      *static_cast<int*>(value) = pool->props.handleTypes;
      break;
    case 11:
      *static_cast<int*>(value) = pool->props.location.id;
      break;
    case 12:
      *static_cast<int*>(value) = pool->props.location.type;
      break;
    case 13:
      *wide = pool->max_size;
      break;
    case 14:
      *static_cast<int*>(value) = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  CU_NEED_INIT();
  Pool* pool = checked_pool(handle);
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(pool->mutex);
  const std::uint64_t wide =
      attribute >= kReleaseThreshold ? *static_cast<std::uint64_t*>(value) : 0;
  switch (attribute) {
    case kReuseFollowEvents:
    case 2:
    case kReuseInternal:
      pool->reuse[attribute - 1] = *static_cast<int*>(value);
      break;
    case kReleaseThreshold:
      pool->threshold = wide;
      break;
    case kReservedHigh:
      if (wide != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high = pool->reserved;
      break;
    case kUsedHigh:
      if (wide != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* list,
                                      std::size_t n) {
  CU_NEED_INIT();
  if (checked_pool(handle) == nullptr || (n > 0 && list == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < n; ++i)
    if (Driver::get().device(list[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuMemPoolGetAccess(int* flags, CUmemoryPool handle, CUmemLocation* location) {
  CU_NEED_INIT();
  const Pool* pool = checked_pool(handle);
  if (flags == nullptr || pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->device->ordinal
               ? kReadWrite
               : 0;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
