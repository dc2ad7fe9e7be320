#pragma once

#include <vector>

#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"

// Stream-ordered memory pools.
namespace carve::sim::cu {

inline constexpr std::uint32_t kPoolMagic = 0xC0DE0004;

/// A block that was freed in a stream which has not come there yet.
struct PendingFree {
  Block block;
  Point point;
};

struct Pool {
  std::uint32_t magic = kPoolMagic;
  Device* device = nullptr;
  bool is_default = false;
  std::mutex mutex;
  std::multimap<std::uint64_t, Block> cached;  // free blocks that are still charged, by size
  std::vector<PendingFree> pending;
  std::uint64_t threshold = 0;                 // how much to keep when blocks become free
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t used = 0, used_high = 0;
  std::uint64_t max_size = 0;  // 0: the card
  int reuse[3] = {1, 1, 1};
  CUmemPoolProps props = {};
};

/// The device's default pool, made at first use.
Pool* default_pool(Device* device);
/// `stream`: in which it is asked for; what was freed there before serves it at once.
CUresult allocate_from_pool(Pool* pool, const Stream* stream, std::uint64_t size, CUdeviceptr* out);
/// Gives cached blocks back until no more than `keep` bytes are reserved. Wants the pool's lock.
void trim_pool(Pool* pool, std::uint64_t keep);
/// Frees at the point of a stream; a point that is reached already: now.
CUresult free_to_pool(CUdeviceptr address, Point point = {});
/// What was freed in streams that have come there since goes back, from all pools. Cost: one load when nothing waits.
void collect_pools();
/// Of one pool; wants its lock.
void collect(Pool* pool);

}  // namespace carve::sim::cu
