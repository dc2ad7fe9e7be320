#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"

// Pointer attributes, and advice on managed memory, which the simulated card accepts and ignores.
namespace carve::sim::cu {
namespace {

template <class T>
CUresult put(void* data, T value) {
  __builtin_memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult attribute_of(void* data, int attribute, CUdeviceptr address) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  if (!Memory::get().find(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  const bool host = block.kind == BlockKind::kHost || block.kind == BlockKind::kRegistered;
  const bool managed = block.kind == BlockKind::kManaged;
  switch (attribute) {
    case 1:
      return block.context == nullptr ? put<void*>(data, nullptr) : put(data, block.context);
    case 2:
      return put<unsigned>(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case 3:
      return put(data, address);
    case 4:
      if (!host && !managed) return CUDA_ERROR_INVALID_VALUE;
      return put(data, address);
    case 6:
      return put<int>(data, 0);
    case 7:
      return put(data, block.id);
    case 8:
      return put<int>(data, managed ? 1 : 0);
    case 9:
      return put<int>(data, block.device == nullptr ? -1 : block.device->ordinal);
    case 10:
      return put<int>(data, block.kind == BlockKind::kDevice ? 1 : 0);
    case 11:
    case 19:
      return put(data, block.base);
    case 12:
    case 18:
      return put(data, block.size);
    case 13:
      return put<int>(data, 1);
    case 14:
      return put<unsigned long long>(data, 0);
    case 15:
      return put<int>(data, host ? 0 : 1);
    case 16:
      return put<int>(data, 3);
    case 17:
      if (block.kind != BlockKind::kPool) return put<void*>(data, nullptr);
      return put(data, block.pool);
    case 20:
      return put(data, block.id);
    case 21:
      return put<int>(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

/// The size of an attribute's answer in bytes, to clear it for pointers that the driver does not know.
std::size_t answer_bytes(int attribute) {
  switch (attribute) {
    case 2:
    case 6:
    case 8:
    case 9:
    case 10:
    case 13:
    case 15:
    case 16:
    case 21:
      return 4;
    default:
      return 8;
  }
}

CUresult check_managed(CUdeviceptr address, std::size_t n) {
  CU_NEED_INIT();
  Block block;
  if (n == 0 || !Memory::get().find(address, &block) || block.kind != BlockKind::kManaged ||
      !Memory::get().covers(address, n))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult prefetch(CUdeviceptr address, std::size_t n, CUstream handle, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (const CUresult rc = check_managed(address, n); rc != CUDA_SUCCESS) return rc;
  submit(stream, CommandKind::kCopy, n / Driver::get().model().host_copy_gb_per_s);
  return CUDA_SUCCESS;
}

CUresult range_attribute(void* data, std::size_t size, int attribute, CUdeviceptr address,
                         std::size_t n) {
  if (const CUresult rc = check_managed(address, n); rc != CUDA_SUCCESS) return rc;
  if (data == nullptr || size < 4 || size % 4 != 0 || attribute < 1 || attribute > 8)
    return CUDA_ERROR_INVALID_VALUE;
  constexpr int kInvalidDevice = -2;
  for (std::size_t i = 0; i < size / 4; ++i)
    static_cast<int*>(data)[i] =
        attribute == 2 || attribute == 3 || attribute == 4 ? kInvalidDevice : 0;
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  CU_NEED_INIT();
  return attribute_of(data, attribute, address);
}

CU_EXPORT CUresult cuPointerGetAttributes(unsigned n, int* attributes, void** data,
                                          CUdeviceptr address) {
  CU_NEED_INIT();
  if (n == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n; ++i)
    if (attribute_of(data[i], attributes[i], address) != CUDA_SUCCESS && data[i] != nullptr)
      __builtin_memset(data[i], 0, answer_bytes(attributes[i]));
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuPointerSetAttribute(const void* value, int attribute, CUdeviceptr address) {
  CU_NEED_INIT();
  Block block;
  constexpr int kSyncMemops = 6;
  if (value == nullptr || attribute != kSyncMemops || !Memory::get().find(address, &block))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemAdvise(CUdeviceptr address, std::size_t n, int advice, CUdevice) {
  return advice < 1 || advice > 6 ? CUDA_ERROR_INVALID_VALUE : check_managed(address, n);
}
CU_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, std::size_t n, int advice, CUmemLocation) {
  return advice < 1 || advice > 6 ? CUDA_ERROR_INVALID_VALUE : check_managed(address, n);
}
CU_EXPORT CUresult cuMemPrefetchAsync(CUdeviceptr address, std::size_t n, CUdevice, CUstream s) {
  return prefetch(address, n, s, kStreamLegacy);
}
CU_EXPORT CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, std::size_t n, CUdevice,
                                           CUstream s) {
  return prefetch(address, n, s, kStreamPerThread);
}
CU_EXPORT CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, std::size_t n, CUmemLocation,
                                         unsigned, CUstream s) {
  return prefetch(address, n, s, kStreamLegacy);
}
CU_EXPORT CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, std::size_t n, CUmemLocation,
                                              unsigned, CUstream s) {
  return prefetch(address, n, s, kStreamPerThread);
}
CU_EXPORT CUresult cuMemRangeGetAttribute(void* data, std::size_t size, int attribute,
                                          CUdeviceptr address, std::size_t n) {
  return range_attribute(data, size, attribute, address, n);
}
CU_EXPORT CUresult cuMemRangeGetAttributes(void** data, std::size_t* sizes, int* attributes,
                                           std::size_t count, CUdeviceptr address, std::size_t n) {
  CU_NEED_INIT();
  if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i)
    if (const CUresult rc = range_attribute(data[i], sizes[i], attributes[i], address, n);
        rc != CUDA_SUCCESS)
      return rc;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
