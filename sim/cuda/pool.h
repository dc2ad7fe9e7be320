#pragma once

#include "sim/cuda/memory.h"

// Stream-ordered memory pools.
namespace carve::sim::cu {

inline constexpr std::uint32_t kPoolMagic = 0xC0DE0004;

struct Pool {
  std::uint32_t magic = kPoolMagic;
  Device* device = nullptr;
  bool is_default = false;
  std::mutex mutex;
  std::multimap<std::uint64_t, Block> cached;  // free blocks that are still charged, by size
  std::uint64_t threshold = 0;                 // how much to keep when blocks become free
  std::uint64_t reserved = 0, reserved_high = 0;
  std::uint64_t used = 0, used_high = 0;
  std::uint64_t max_size = 0;  // 0: the card
  int reuse[3] = {1, 1, 1};
  CUmemPoolProps props = {};
};

/// The device's default pool, made at first use.
Pool* default_pool(Device* device);
CUresult allocate_from_pool(Pool* pool, Context* context, std::uint64_t size, CUdeviceptr* out);
/// Gives cached blocks back until no more than `keep` bytes are reserved. Wants the pool's lock.
void trim_pool(Pool* pool, std::uint64_t keep);
CUresult free_to_pool(CUdeviceptr address);

}  // namespace carve::sim::cu
