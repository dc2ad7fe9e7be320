#pragma once

#include <vector>

#include "base/mutex.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"

// Stream-ordered memory pools.
namespace carve::sim::cu {

inline constexpr std::uint32_t kPoolMagic = 0xC0DE0004;

/// A block with a queued free that its stream has not reached yet.
struct PendingFree {
  Block block;
  Point point;
};

struct Pool {
  std::uint32_t magic = kPoolMagic;
  Device* device = nullptr;
  bool is_default = false;
  Mutex mutex;
  std::multimap<std::uint64_t, Block> cached GUARDED_BY(mutex);  // free blocks that are still charged, by size
  std::vector<PendingFree> pending GUARDED_BY(mutex);
  std::uint64_t threshold GUARDED_BY(mutex) = 0;  // how much to keep when blocks become free
  std::uint64_t reserved GUARDED_BY(mutex) = 0;
  std::uint64_t reserved_high GUARDED_BY(mutex) = 0;
  std::uint64_t used GUARDED_BY(mutex) = 0;
  std::uint64_t used_high GUARDED_BY(mutex) = 0;
  std::uint64_t max_size = 0;  // 0: the card
  int reuse[3] = {1, 1, 1};
  CUmemPoolProps props = {};
};

/// The device's default pool, created at first use.
Pool* default_pool(Device* device);
/// `stream`: the stream of the request. Memory freed earlier in the same stream serves it immediately.
CUresult allocate_from_pool(Pool* pool, const Stream* stream, std::uint64_t size, CUdeviceptr* out);
/// Gives cached blocks back until at most `keep` bytes are reserved.
void trim_pool(Pool* pool, std::uint64_t keep) REQUIRES(pool->mutex);
/// Frees when the stream reaches the point; immediately when the point is already reached.
CUresult free_to_pool(CUdeviceptr address, Point point = {});
/// Completes the frees, in all pools, that their streams have reached. Cost: one load when no free is pending.
void collect_pools();
/// The same for one pool.
void collect(Pool* pool) REQUIRES(pool->mutex);

}  // namespace carve::sim::cu
