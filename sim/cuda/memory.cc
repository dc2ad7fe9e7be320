#include "sim/cuda/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sim/cuda/context.h"
#include "sim/cuda/graph.h"

namespace carve::sim::cu {
namespace {

constexpr std::uint64_t kSmallLimit = 1ULL << 20;
constexpr std::uint64_t kPage = 4096;

}  // namespace

Memory& Memory::get() {
  static Memory* memory = new Memory();
  return *memory;
}

Memory::Memory() {
    // Addresses for several full cards; fewer where the process's address space is limited.
  for (std::uint64_t size = 4ULL << 40; size >= 1ULL << 32; size /= 4) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    madvise(at, size, MADV_DONTFORK);
    madvise(at, size, MADV_DONTDUMP);
    madvise(at, size, MADV_NOHUGEPAGE);  // a write commits one page, not two megabytes
    const auto begin = round_to(reinterpret_cast<std::uint64_t>(at), kGranuleBytes);
    const auto end = reinterpret_cast<std::uint64_t>(at) + size;
    small_begin_ = begin;
    small_end_ = begin + size / 16;
    small_[small_begin_] = small_end_ - small_begin_;
    large_[small_end_] = end - small_end_;
    return;
  }
}

std::uint64_t Memory::take(std::map<std::uint64_t, std::uint64_t>& free, std::uint64_t size,
                           std::uint64_t alignment) {
  for (auto it = free.begin(); it != free.end(); ++it) {
    const std::uint64_t base = round_to(it->first, alignment);
    const std::uint64_t end = it->first + it->second;
    if (base + size > end || base + size < base) continue;
    const std::uint64_t before = base - it->first;
    const std::uint64_t after = end - base - size;
    if (before > 0) {
      it->second = before;
    } else {
      free.erase(it);
    }
    if (after > 0) free[base + size] = after;
    return base;
  }
  return 0;
}

std::uint64_t Memory::take_addresses(std::uint64_t size, std::uint64_t alignment) {
  const MutexLock lock(mutex_);
  return take(size < kSmallLimit && alignment < kGranuleBytes ? small_ : large_, size, alignment);
}

void Memory::give_addresses(std::uint64_t base, std::uint64_t span) {
  const MutexLock lock(mutex_);
  auto& free = base >= small_begin_ && base < small_end_ ? small_ : large_;
  auto next = free.lower_bound(base);
  if (next != free.end() && base + span == next->first) {
    span += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += span;
      return;
    }
  }
  free[base] = span;
}

void Memory::forget(std::uint64_t base, std::uint64_t span) {
  const std::uint64_t begin = round_to(base, kPage);
  const std::uint64_t end = (base + span) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void Memory::clear(const Block& block) {
  if (block.file < 0) return forget(block.base, block.span);
  void* at = reinterpret_cast<void*>(block.base);
  mmap(at, block.span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  madvise(at, block.span, MADV_DONTFORK);
  madvise(at, block.span, MADV_NOHUGEPAGE);
  close(block.file);
}

void Memory::insert(const Block& block) {
  const MutexLock lock(mutex_);
  Block& entry = blocks_[block.base];
  entry = block;
  entry.id = next_id_++;
}

bool Memory::remove(std::uint64_t base, Block* out) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return false;
  *out = found->second;
  blocks_.erase(found);
  return true;
}

bool Memory::find(std::uint64_t address, Block* out) {
  const MutexLock lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  if (address - it->second.base >= it->second.size) return false;
  *out = it->second;
  return true;
}

bool Memory::covers(std::uint64_t address, std::uint64_t size) {
  const MutexLock lock(mutex_);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return false;
  --it;
  for (std::uint64_t at = address; it != blocks_.end(); ++it) {
    if (at < it->second.base || at - it->second.base >= it->second.size) return false;
    const std::uint64_t end = it->second.base + it->second.size;
    if (size <= end - at) return true;
    size -= end - at;
    at = end;
  }
  return false;
}

CUresult Memory::back_by_file(std::uint64_t base, int file, bool copy) {
  const MutexLock lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end() || found->second.file >= 0) return CUDA_ERROR_INVALID_VALUE;
  Block& block = found->second;
  if (copy) {
    if (ftruncate(file, static_cast<off_t>(block.span)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::vector<unsigned char> resident(block.span / kPage + 1);
    mincore(reinterpret_cast<void*>(base), block.span, resident.data());
    for (std::uint64_t at = 0; at + kPage <= block.span; at += kPage)
      if ((resident[at / kPage] & 1) != 0 &&
          pwrite(file, reinterpret_cast<void*>(base + at), kPage, static_cast<off_t>(at)) !=
              static_cast<ssize_t>(kPage))
        return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* at = mmap(reinterpret_cast<void*>(base), block.span, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  madvise(at, block.span, MADV_DONTFORK);
  block.file = file;
  return CUDA_SUCCESS;
}

bool Memory::any_of(const Context* context, Block* out) {
  const MutexLock lock(mutex_);
  for (const auto& [base, block] : blocks_) {
    if (block.context != context || block.kind == BlockKind::kMapped) continue;
    *out = block;
    return true;
  }
  return false;
}

CUresult Memory::allocate(Context* context, std::uint64_t size, BlockKind kind, unsigned flags,
                          Block* out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  Block block;
  const Op op = kind == BlockKind::kModule ? Op::kModuleAlloc : Op::kAlloc;
  const Status status =
      Driver::get().kernel().call(op, context->device->card, size, 0, &block.handle);
  if (status != Status::kOk) return error_of(status);
  const bool small = size < kSmallLimit;
  block.span = round_to(size, small ? kPitchBytes : kGranuleBytes);
  block.base = take_addresses(block.span, small ? kPitchBytes : kGranuleBytes);
  if (block.base == 0) {
    Driver::get().kernel().call(Op::kFree, 0, block.handle, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  block.size = size;
  block.kind = kind;
  block.context = context;
  block.device = context->device;
  block.flags = flags;
  insert(block);
  // Another thread may have destroyed the context meanwhile. The destruction did not see this block, so it is freed
  // here.
  if (Block late; !alive(context) && find(block.base, &late) && late.context == context && remove(block.base, &late)) {
    give_addresses(late.base, late.span);
    Driver::get().kernel().call(Op::kFree, 0, late.handle, 0);
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *out = block;
  return CUDA_SUCCESS;
}

CUresult Memory::free(std::uint64_t base, BlockKind kind) {
  Block block;
  if (!find(base, &block) || block.base != base || block.kind != kind || !remove(base, &block))
    return CUDA_ERROR_INVALID_VALUE;
  clear(block);
  give_addresses(block.base, block.span);
  return error_of(Driver::get().kernel().call(Op::kFree, 0, block.handle, 0));
}

void free_context_memory(Context* context) {
  Memory& memory = Memory::get();
  for (Block block; memory.any_of(context, &block);) {
    if (block.kind == BlockKind::kPool) {
      free_to_pool(block.base);
      continue;
    }
    if (block.kind == BlockKind::kGraph) {
      free_graph_memory(block.base);
      continue;
    }
    memory.remove(block.base, &block);
    if (block.kind == BlockKind::kHost) {
      std::free(reinterpret_cast<void*>(block.base));
    } else if (block.span != 0) {
      memory.clear(block);
      memory.give_addresses(block.base, block.span);
    }
    if (block.handle != 0) Driver::get().kernel().call(Op::kFree, 0, block.handle, 0);
  }
}

}  // namespace carve::sim::cu
