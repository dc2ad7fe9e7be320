#include "sim/cuda/pool.h"

#include <algorithm>
#include <atomic>

namespace carve::sim::cu {
namespace {

void count_used(Pool* pool, std::uint64_t size) REQUIRES(pool->mutex) {
  pool->used += size;
  pool->used_high = std::max(pool->used_high, pool->used);
}

Mutex g_waiting_mutex;
std::vector<Pool*> g_waiting GUARDED_BY(g_waiting_mutex);  // pools with pending frees, each once
std::atomic<std::size_t> g_waiting_count{0};

void wait_for_frees_of(Pool* pool) {
  const MutexLock lock(g_waiting_mutex);
  if (std::find(g_waiting.begin(), g_waiting.end(), pool) == g_waiting.end()) g_waiting.push_back(pool);
  g_waiting_count.store(g_waiting.size());
}

void release(Pool* pool, const Block& block) REQUIRES(pool->mutex) { pool->cached.emplace(block.size, block); }

}  // namespace

void collect(Pool* pool) {
  std::erase_if(pool->pending, [pool](const PendingFree& freed) REQUIRES(pool->mutex) {
    if (!reached(freed.point)) return false;
    release(pool, freed.block);
    return true;
  });
  trim_pool(pool, std::max(pool->threshold, pool->used));
}

void collect_pools() {
  if (g_waiting_count.load() == 0) return;
  std::vector<Pool*> pools;
  {
    const MutexLock lock(g_waiting_mutex);
    pools.swap(g_waiting);
    g_waiting_count.store(0);
  }
  for (Pool* pool : pools) {
    bool left = false;
    {
      const MutexLock lock(pool->mutex);
      collect(pool);
      left = !pool->pending.empty();
    }
    if (left) wait_for_frees_of(pool);
  }
}

void trim_pool(Pool* pool, std::uint64_t keep) {
  while (pool->reserved > keep && !pool->cached.empty()) {
    const auto largest = std::prev(pool->cached.end());
    const Block block = largest->second;
    pool->cached.erase(largest);
    pool->reserved -= block.size;
    Memory::get().forget(block.base, block.span);
    Memory::get().give_addresses(block.base, block.span);
    Driver::get().kernel().call(Op::kFree, 0, block.handle, 0);
  }
}

Pool* default_pool(Device* device) {
  static Mutex mutex;
  const MutexLock lock(mutex);
  if (device->default_pool == nullptr) {
    auto* pool = new Pool();
    pool->device = device;
    pool->is_default = true;
    pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool->props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal};
    device->default_pool = pool;
    if (device->current_pool == nullptr) device->current_pool = pool;
  }
  return device->default_pool;
}

CUresult allocate_from_pool(Pool* pool, const Stream* stream, std::uint64_t size, CUdeviceptr* out) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = stream->context;
  const MutexLock lock(pool->mutex);
  collect(pool);
  for (auto freed = pool->pending.begin(); freed != pool->pending.end(); ++freed) {
    if (freed->point.index != stream->index || freed->block.size != size) continue;
    release(pool, freed->block);
    pool->pending.erase(freed);
    break;
  }
  // A cached block serves only requests of its own size, so the reserved size is exactly what was requested.
  const auto cached = pool->cached.find(size);
  if (cached != pool->cached.end()) {
    Block block = cached->second;
    pool->cached.erase(cached);
    block.context = context;
    Memory::get().insert(block);
    count_used(pool, size);
    *out = block.base;
    return CUDA_SUCCESS;
  }
  if (pool->max_size != 0 && pool->used + size > pool->max_size) return CUDA_ERROR_OUT_OF_MEMORY;
  Context owner;  // the charge goes to the pool's device, regardless of the calling context
  owner.device = pool->device;
  Block block;
  CUresult rc = Memory::get().allocate(&owner, size, BlockKind::kPool, 0, &block);
  if (rc == CUDA_ERROR_OUT_OF_MEMORY && !pool->cached.empty()) {
    trim_pool(pool, pool->used);
    rc = Memory::get().allocate(&owner, size, BlockKind::kPool, 0, &block);
  }
  if (rc != CUDA_SUCCESS) return rc;
  block.context = context;
  block.pool = pool;
  Memory::get().insert(block);
  pool->reserved += size;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  count_used(pool, size);
  *out = block.base;
  return CUDA_SUCCESS;
}

CUresult free_to_pool(CUdeviceptr address, Point point) {
  Block block;
  if (!Memory::get().find(address, &block) || block.base != address)
    return CUDA_ERROR_INVALID_VALUE;
  if (block.kind != BlockKind::kPool) return free_device(address);
  if (!Memory::get().remove(address, &block)) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = block.pool;
  bool waits = false;
  {
    const MutexLock lock(pool->mutex);
    pool->used -= block.size;
    waits = !reached(point);
    if (waits) {
      pool->pending.push_back({block, point});
    } else {
      release(pool, block);
    }
    collect(pool);
  }
  if (waits) wait_for_frees_of(pool);
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
