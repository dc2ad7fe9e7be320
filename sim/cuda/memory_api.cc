#include <cstdlib>

#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/stream.h"

// cuMemAlloc and its relatives.
namespace carve::sim::cu {
namespace {

constexpr unsigned kAttachMask = 7;
constexpr std::uint64_t kHostAlignment = 4096;

CUresult allocate(CUdeviceptr* out, std::size_t size, BlockKind kind, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult unsafe = refuse_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  Block block;
  const CUresult rc = Memory::get().allocate(context, size, kind, flags, &block);
  if (rc == CUDA_SUCCESS) *out = block.base;
  return rc;
}

CUresult allocate_host(void** out, std::size_t size, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  void* at = std::aligned_alloc(kHostAlignment, round_to(size, kHostAlignment));
  if (at == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  block.base = reinterpret_cast<std::uint64_t>(at);
  block.size = size;
  block.kind = BlockKind::kHost;
  block.context = context;
  block.device = context->device;
  block.flags = flags;
  Memory::get().insert(block);
  *out = at;
  return CUDA_SUCCESS;
}

bool find_host(const void* p, Block* block) {
  return Memory::get().find(reinterpret_cast<std::uint64_t>(p), block) &&
         (block->kind == BlockKind::kHost || block->kind == BlockKind::kRegistered);
}

}  // namespace

CUresult free_device(CUdeviceptr address) {
  Block block;
  if (!Memory::get().find(address, &block) || block.base != address)
    return CUDA_ERROR_INVALID_VALUE;
  if (block.kind == BlockKind::kPool) {
    wait_context(block.context);
    return free_to_pool(address);
  }
  if (block.kind == BlockKind::kGraph) {
    wait_context(block.context);
    return free_graph_memory(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  if (block.kind != BlockKind::kDevice && block.kind != BlockKind::kManaged)
    return CUDA_ERROR_INVALID_VALUE;
  wait_context(block.context);  // cuMemFree waits for the work that may still use the memory
  return Memory::get().free(address, block.kind);
}

CU_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  CU_NEED_CONTEXT(context);
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CardStatusRecord> status;
  const Status rc =
      Driver::get().kernel().list(Op::kCardStatus, context->device->card, 0, 0, &status);
  if (rc != Status::kOk || status.size() != 1) return CUDA_ERROR_UNKNOWN;
  const std::uint64_t all = status[0].total_bytes - status[0].reserved_bytes;
  *total = all;
  *free = all - status[0].used_bytes;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuMemGetInfo(unsigned* free, unsigned* total) {
  std::size_t f = 0, t = 0;
  const CUresult rc = cuMemGetInfo_v2(free == nullptr ? nullptr : &f, total == nullptr ? nullptr : &t);
  if (rc != CUDA_SUCCESS) return rc;
  *free = narrow(f);
  *total = narrow(t);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t size) {
  return allocate(out, size, BlockKind::kDevice, 0);
}
CU_EXPORT CUresult cuMemAlloc(unsigned* out, unsigned size) {
  (void)out;
  (void)size;
  return CUDA_ERROR_NOT_SUPPORTED;  // 32-bit addresses, CUDA before 3.2
}

CU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                                      std::size_t height, unsigned element) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || pitch == nullptr || width == 0 || height == 0 ||
      (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(round_to(width, kPitchBytes), height, &bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *pitch = round_to(width, kPitchBytes);
  return allocate(out, bytes, BlockKind::kDevice, 0);
}

CU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t size, unsigned flags) {
  if (flags == 0 || flags > kAttachMask) return CUDA_ERROR_INVALID_VALUE;
  return allocate(out, size, BlockKind::kManaged, flags);
}

CU_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CU_NEED_INIT();
  if (address == 0) return CUDA_SUCCESS;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  return free_device(address);
}

CU_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size,
                                           CUdeviceptr address) {
  CU_NEED_CONTEXT(context);
  Block block;
  if (!Memory::get().find(address, &block)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = block.base;
  if (size != nullptr) *size = block.size;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemAllocHost_v2(void** out, std::size_t size) {
  return allocate_host(out, size, 0);
}
CU_EXPORT CUresult cuMemAllocHost(void** out, unsigned size) { return allocate_host(out, size, 0); }
CU_EXPORT CUresult cuMemHostAlloc(void** out, std::size_t size, unsigned flags) {
  return flags > 7 ? CUDA_ERROR_INVALID_VALUE : allocate_host(out, size, flags);
}

CU_EXPORT CUresult cuMemFreeHost(void* p) {
  CU_NEED_INIT();
  Block block;
  if (!find_host(p, &block) || block.kind != BlockKind::kHost ||
      block.base != reinterpret_cast<std::uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  if (alive(block.context)) wait_context(block.context);
  Memory::get().remove(block.base, &block);
  std::free(p);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemHostRegister_v2(void* p, std::size_t size, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (p == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  if (find_host(p, &block)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  block = Block{};
  block.base = reinterpret_cast<std::uint64_t>(p);
  block.size = size;
  block.kind = BlockKind::kRegistered;
  block.context = context;
  block.device = context->device;
  block.flags = flags;
  Memory::get().insert(block);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuMemHostRegister(void* p, std::size_t size, unsigned flags) {
  return cuMemHostRegister_v2(p, size, flags);
}

CU_EXPORT CUresult cuMemHostUnregister(void* p) {
  CU_NEED_CONTEXT(context);
  Block block;
  if (!find_host(p, &block) || block.kind != BlockKind::kRegistered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  wait_context(context);
  Memory::get().remove(block.base, &block);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p, unsigned flags) {
  CU_NEED_CONTEXT(context);
  Block block;
  if (out == nullptr || flags != 0 || !find_host(p, &block)) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemHostGetFlags(unsigned* flags, void* p) {
  CU_NEED_CONTEXT(context);
  Block block;
  if (flags == nullptr || !find_host(p, &block)) return CUDA_ERROR_INVALID_VALUE;
  *flags = block.flags | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
