#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/mutex.h"
#include "sim/cuda/memory.h"

// Virtual memory management: addresses, physical memory and the mappings between them. Physical memory is a range of
// one sparse file per process, so that two mappings of a handle show the same bytes. Memory that other processes may
// open has its own file.
namespace carve::sim::cu {
namespace {

constexpr int kReadWrite = 3;
constexpr int kInvisible = 5;       // CU_MEM_LOCATION_TYPE_INVISIBLE
constexpr int kFileDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct Physical {
  std::uint64_t size = 0, offset = 0;
  int file = -1;  // its own file; −1: a range of the process's file
  std::uint64_t charge = 0;  // the daemon's handle
  unsigned handles = 1;      // cuMemCreate and cuMemRetainAllocationHandle, less cuMemRelease
  unsigned mappings = 0;
  Device* device = nullptr;
  CUmemAllocationProp prop = {};
};

Mutex g_mutex;
std::map<std::uint64_t, Physical> g_physical GUARDED_BY(g_mutex);           // by handle
std::map<std::uint64_t, std::uint64_t> g_reserved GUARDED_BY(g_mutex);      // base → size
std::map<std::uint64_t, std::uint64_t> g_free_offsets GUARDED_BY(g_mutex);  // free ranges of the process's file
std::uint64_t g_next_handle GUARDED_BY(g_mutex) = 1;
std::uint64_t g_file_end GUARDED_BY(g_mutex) = 0;
int g_file GUARDED_BY(g_mutex) = -1;

std::uint64_t take_offset(std::uint64_t size) REQUIRES(g_mutex) {
  for (auto it = g_free_offsets.begin(); it != g_free_offsets.end(); ++it) {
    if (it->second < size) continue;
    const std::uint64_t offset = it->first, rest = it->second - size;
    g_free_offsets.erase(it);
    if (rest > 0) g_free_offsets[offset + size] = rest;
    return offset;
  }
  const std::uint64_t offset = g_file_end;
  g_file_end += size;
  return offset;
}

/// Frees physical memory that has no handle and no mapping.
void drop_if_unused(std::uint64_t handle) REQUIRES(g_mutex) {
  const auto found = g_physical.find(handle);
  if (found == g_physical.end() || found->second.handles > 0 || found->second.mappings > 0) return;
  const Physical physical = found->second;
  g_physical.erase(found);
  if (physical.file >= 0) {
    close(physical.file);
    Driver::get().kernel().call(Op::kFree, 0, physical.charge, 0);
    return;
  }
  fallocate(g_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(physical.offset),
            static_cast<off_t>(physical.size));
  g_free_offsets[physical.offset] = physical.size;
  Driver::get().kernel().call(Op::kFree, 0, physical.charge, 0);
}

CUresult check_prop(const CUmemAllocationProp* prop, Device** device) {
  CU_NEED_INIT();
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = Driver::get().device(prop->location.id);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return (prop->requestedHandleTypes & ~kFileDescriptor) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/// The data behind the memory in the file of shareable memory, for the process that opens it.
struct Label {
  std::uint64_t magic;
  std::uint64_t token;  // the daemon's token
  std::uint64_t size;
  std::uint32_t card;  // the card number on the machine
  std::uint32_t reserved;
};
constexpr std::uint64_t kLabelMagic = 0x6c6562614c6d6953;

/// Assigns the memory a range of the process's file.
CUresult place(Physical* physical) REQUIRES(g_mutex) {
  if (g_file < 0) g_file = memfd_create("carve-sim-physical", MFD_CLOEXEC);
  physical->offset = take_offset(physical->size);
  return ftruncate(g_file, static_cast<off_t>(g_file_end)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/// Creates a separate file with the label behind the memory.
CUresult place_shareable(Physical* physical) {
  Label label{kLabelMagic, 0, physical->size, physical->device->card, 0};
  const Status status = Driver::get().kernel().call(Op::kShare, 0, physical->charge, 0, &label.token);
  if (status != Status::kOk) return error_of(status);
  physical->file = memfd_create("carve-sim-shareable", MFD_CLOEXEC);
  const auto end = static_cast<off_t>(physical->size);
  const bool written = physical->file >= 0 && ftruncate(physical->file, end) == 0 &&
                       pwrite(physical->file, &label, sizeof label, end) == sizeof label;
  if (!written && physical->file >= 0) close(physical->file);
  return written ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool in_reservation(std::uint64_t base, std::uint64_t size) REQUIRES(g_mutex) {
  auto it = g_reserved.upper_bound(base);
  if (it == g_reserved.begin()) return false;
  --it;
  return base + size <= it->first + it->second;
}

}  // namespace

CU_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* out, const CUmemAllocationProp* prop,
                                                 int option) {
  Device* device = nullptr;
  if (const CUresult rc = check_prop(prop, &device); rc != CUDA_SUCCESS) return rc;
  if (out == nullptr || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *out = kGranuleBytes;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t size, std::size_t alignment,
                                       CUdeviceptr, unsigned long long flags) {
  CU_NEED_INIT();
  if (out == nullptr || size == 0 || size % kGranuleBytes != 0 || flags != 0 ||
      (alignment & (alignment - 1)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t base =
      Memory::get().take_addresses(size, std::max<std::uint64_t>(alignment, kGranuleBytes));
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const MutexLock lock(g_mutex);
  g_reserved[base] = size;
  *out = base;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemAddressFree(CUdeviceptr base, std::size_t size) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  const auto found = g_reserved.find(base);
  if (found == g_reserved.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  for (std::uint64_t at = base; at < base + size; at += kGranuleBytes)
    if (Memory::get().find(at, &block)) return CUDA_ERROR_INVALID_VALUE;  // still mapped
  g_reserved.erase(found);
  Memory::get().give_addresses(base, size);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemCreate(unsigned long long* out, std::size_t size,
                               const CUmemAllocationProp* prop, unsigned long long flags) {
  Device* device = nullptr;
  if (const CUresult rc = check_prop(prop, &device); rc != CUDA_SUCCESS) return rc;
  if (out == nullptr || size == 0 || size % kGranuleBytes != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Physical physical;
  const Status status =
      Driver::get().kernel().call(Op::kAlloc, device->card, size, 0, &physical.charge);
  if (status != Status::kOk) return error_of(status);
  physical.size = size;
  physical.device = device;
  physical.prop = *prop;
  const MutexLock lock(g_mutex);
  const CUresult placed = prop->requestedHandleTypes != 0 ? place_shareable(&physical) : place(&physical);
  if (placed != CUDA_SUCCESS) {
    Driver::get().kernel().call(Op::kFree, 0, physical.charge, 0);
    return placed;
  }
  *out = g_next_handle++;
  g_physical[*out] = physical;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemRelease(unsigned long long handle) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  const auto found = g_physical.find(handle);
  if (found == g_physical.end() || found->second.handles == 0) return CUDA_ERROR_INVALID_VALUE;
  --found->second.handles;
  drop_if_unused(handle);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemMap(CUdeviceptr base, std::size_t size, std::size_t offset,
                            unsigned long long handle, unsigned long long flags) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  const auto found = g_physical.find(handle);
  if (found == g_physical.end() || size == 0 || size % kGranuleBytes != 0 ||
      offset % kGranuleBytes != 0 || flags != 0 || offset > found->second.size ||
      size > found->second.size - offset || !in_reservation(base, size))
    return CUDA_ERROR_INVALID_VALUE;
  Block block;
  for (std::uint64_t at = base; at < base + size; at += kGranuleBytes)
    if (Memory::get().find(at, &block)) return CUDA_ERROR_INVALID_VALUE;  // mapped already
  Physical& physical = found->second;
  void* at = mmap(reinterpret_cast<void*>(base), size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical.file >= 0 ? physical.file : g_file,
                  static_cast<off_t>(physical.offset + offset));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(at, size, MADV_DONTFORK);
  ++physical.mappings;
  block = Block{};
  block.base = base;
  block.size = size;
  block.kind = BlockKind::kMapped;
  block.device = physical.device;
  block.physical = handle;
  Memory::get().insert(block);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemUnmap(CUdeviceptr base, std::size_t size) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  std::vector<Block> blocks;
  for (std::uint64_t at = base; at < base + size;) {
    Block block;
    if (!Memory::get().find(at, &block) || block.kind != BlockKind::kMapped || block.base != at ||
        at + block.size > base + size)
      return CUDA_ERROR_INVALID_VALUE;
    blocks.push_back(block);
    at += block.size;
  }
  for (const Block& block : blocks) {
    void* at = reinterpret_cast<void*>(block.base);
    mmap(at, block.size, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    madvise(at, block.size, MADV_DONTFORK);
    madvise(at, block.size, MADV_NOHUGEPAGE);
    Block gone;
    Memory::get().remove(block.base, &gone);
    --g_physical[block.physical].mappings;
    drop_if_unused(block.physical);
  }
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemSetAccess(CUdeviceptr base, std::size_t size, const CUmemAccessDesc* list,
                                  std::size_t n) {
  CU_NEED_INIT();
  if (list == nullptr || n == 0 || !Memory::get().covers(base, size))
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < n; ++i)
    if (list[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        Driver::get().device(list[i].location.id) == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
  for (std::uint64_t at = base; at < base + size;) {
    Block block;
    if (!Memory::get().find(at, &block)) break;
    block.flags = static_cast<unsigned>(list[0].flags);
    Memory::get().insert(block);
    at = block.base + block.size;
  }
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                                  CUdeviceptr address) {
  CU_NEED_INIT();
  Block block;
  if (flags == nullptr || location == nullptr || !Memory::get().find(address, &block))
    return CUDA_ERROR_INVALID_VALUE;
  *flags = block.kind == BlockKind::kMapped ? block.flags : kReadWrite;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                          unsigned long long handle) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  const auto found = g_physical.find(handle);
  if (prop == nullptr || found == g_physical.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->second.prop;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemExportToShareableHandle(void* out, unsigned long long handle, int type,
                                                unsigned long long flags) {
  CU_NEED_INIT();
  const MutexLock lock(g_mutex);
  const auto found = g_physical.find(handle);
  if (out == nullptr || flags != 0 || found == g_physical.end()) return CUDA_ERROR_INVALID_VALUE;
  if (type != kFileDescriptor || found->second.file < 0) return CUDA_ERROR_NOT_SUPPORTED;
  const int copy = fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(out) = copy;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemImportFromShareableHandle(unsigned long long* out, void* os_handle, int type) {
  CU_NEED_INIT();
  if (out == nullptr || type != kFileDescriptor) return CUDA_ERROR_INVALID_VALUE;
  const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  Label label = {};
  struct stat facts = {};
  if (fstat(given, &facts) != 0 || facts.st_size < static_cast<off_t>(sizeof label) ||
      pread(given, &label, sizeof label, facts.st_size - static_cast<off_t>(sizeof label)) != sizeof label ||
      label.magic != kLabelMagic)
    return CUDA_ERROR_INVALID_VALUE;
  Physical physical;
  const Status status = Driver::get().kernel().call(Op::kOpenShared, 0, label.token, 0, &physical.charge);
  if (status != Status::kOk) return error_of(status);
  physical.size = label.size;
  physical.file = fcntl(given, F_DUPFD_CLOEXEC, 0);
  physical.prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.prop.requestedHandleTypes = kFileDescriptor;
  physical.prop.location = {kInvisible, -1};
  for (int i = 0; i < Driver::get().device_count(); ++i) {
    Device* device = Driver::get().device(i);
    if (device->card != label.card) continue;
    physical.device = device;
    physical.prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, i};
  }
  const MutexLock lock(g_mutex);
  *out = g_next_handle++;
  g_physical[*out] = physical;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMemRetainAllocationHandle(unsigned long long* out, void* address) {
  CU_NEED_INIT();
  Block block;
  const MutexLock lock(g_mutex);
  if (out == nullptr || !Memory::get().find(reinterpret_cast<std::uint64_t>(address), &block) ||
      block.kind != BlockKind::kMapped)
    return CUDA_ERROR_INVALID_VALUE;
  ++g_physical[block.physical].handles;
  *out = block.physical;
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
