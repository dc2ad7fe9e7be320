#pragma once

#include <cstdint>
#include <map>

#include "base/mutex.h"
#include "sim/cuda/driver.h"

// Device memory: addresses of this process that are reserved but not committed. The daemon charges them to the card. A
// read returns what was written; untouched pages cost nothing.
namespace carve::sim::cu {

/// kModule: a module's global variables. cuMemFree does not free them.
enum class BlockKind { kDevice, kModule, kManaged, kPool, kGraph, kMapped, kHost, kRegistered, kArray, kOpened };

/// One allocation or mapping.
struct Block {
  std::uint64_t base = 0;
  std::uint64_t size = 0;  // as requested
  std::uint64_t span = 0;  // size of the address range; 0: not from our address space
  BlockKind kind = BlockKind::kDevice;
  Context* context = nullptr;
  Device* device = nullptr;
  std::uint64_t handle = 0;  // the daemon's handle of the charge; 0: none
  std::uint64_t id = 0;
  unsigned flags = 0;
  Pool* pool = nullptr;
  int file = -1;  // the file of memory that another process shares or created; -1: none
  std::uint64_t physical = 0;  // kMapped: its cuMemCreate handle
};

class Memory {
 public:
  static Memory& get();

  /// Allocates `size` bytes of device memory and charges them to the device's card.
  CUresult allocate(Context* context, std::uint64_t size, BlockKind kind, unsigned flags,
                    Block* out);
  CUresult free(std::uint64_t base, BlockKind kind);

  /// Reserves addresses only.
  std::uint64_t take_addresses(std::uint64_t size, std::uint64_t alignment);
  void give_addresses(std::uint64_t base, std::uint64_t span);
  /// Makes the range's contents unreadable and gives the pages back.
  void forget(std::uint64_t base, std::uint64_t span);

  /// Empties the block's addresses and closes its file.
  void clear(const Block& block);

  void insert(const Block& block);
  bool remove(std::uint64_t base, Block* out);
  /// Finds the block that contains `address`.
  bool find(std::uint64_t address, Block* out);
  /// True when [address, address + size) is in known memory (possibly in adjacent blocks).
  bool covers(std::uint64_t address, std::uint64_t size);
  /// Maps a file at the block's addresses, with the present contents (`copy`) or without them.
  CUresult back_by_file(std::uint64_t base, int file, bool copy);
  /// Returns any charged block of the context; false when there is none left.
  bool any_of(const Context* context, Block* out);

 private:
  Memory();
  std::uint64_t take(std::map<std::uint64_t, std::uint64_t>& free, std::uint64_t size, std::uint64_t alignment)
      REQUIRES(mutex_);

  Mutex mutex_;
  std::map<std::uint64_t, Block> blocks_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> large_ GUARDED_BY(mutex_);  // free addresses: base → length
  std::map<std::uint64_t, std::uint64_t> small_ GUARDED_BY(mutex_);
  std::uint64_t small_begin_ = 0;
  std::uint64_t small_end_ = 0;
  std::uint64_t next_id_ GUARDED_BY(mutex_) = 1;
};

[[nodiscard]] constexpr std::uint64_t round_to(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}
inline constexpr std::uint64_t kGranuleBytes = 2ULL << 20;
inline constexpr std::uint64_t kPitchBytes = 512;

/// A number of bytes for the calls of CUDA before 3.2. The real driver stops at the largest value: a card of 6 GiB is
/// reported as 4 GiB less one byte (BOINC issue 1773, which shows both calls next to each other).
[[nodiscard]] constexpr unsigned narrow(std::uint64_t bytes) {
  return bytes > 0xffffffffU ? 0xffffffffU : static_cast<unsigned>(bytes);
}

/// Frees device, managed or pool memory by address, as cuMemFree does.
CUresult free_device(CUdeviceptr address);

}  // namespace carve::sim::cu
