#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "sim/cuda/driver.h"

// Device memory: addresses of this process, reserved without being committed, charged to the card
// by the daemon. What was written is read back; untouched pages cost nothing.
namespace carve::sim::cu {

/// kModule: a module's global variables, which cuMemFree does not free.
enum class BlockKind { kDevice, kModule, kManaged, kPool, kGraph, kMapped, kHost, kRegistered, kArray, kOpened };

/// One allocation or mapping.
struct Block {
  std::uint64_t base = 0;
  std::uint64_t size = 0;  // as asked for
  std::uint64_t span = 0;  // addresses taken; 0: not from our address space
  BlockKind kind = BlockKind::kDevice;
  Context* context = nullptr;
  Device* device = nullptr;
  std::uint64_t handle = 0;  // the daemon's charge; 0: none
  std::uint64_t id = 0;
  unsigned flags = 0;
  Pool* pool = nullptr;
  int file = -1;  // behind memory that another process has, or made; -1: none
  std::uint64_t physical = 0;  // kMapped: the cuMemCreate handle behind it
};

class Memory {
 public:
  static Memory& get();

  /// `size` bytes of device memory, charged to the device's card.
  CUresult allocate(Context* context, std::uint64_t size, BlockKind kind, unsigned flags,
                    Block* out);
  CUresult free(std::uint64_t base, BlockKind kind);

  /// Addresses only.
  std::uint64_t take_addresses(std::uint64_t size, std::uint64_t alignment);
  void give_addresses(std::uint64_t base, std::uint64_t span);
  /// Makes what was written there unreadable and gives the pages back.
  void forget(std::uint64_t base, std::uint64_t span);

  /// The block's addresses are empty again, and its file is let go.
  void clear(const Block& block);

  void insert(const Block& block);
  bool remove(std::uint64_t base, Block* out);
  /// The block that holds `address`.
  bool find(std::uint64_t address, Block* out);
  /// True when [address, address + size) lies in known memory (possibly in adjacent blocks).
  bool covers(std::uint64_t address, std::uint64_t size);
  /// Puts a file behind the block's addresses, with what is there (`copy`) or as it is.
  CUresult back_by_file(std::uint64_t base, int file, bool copy);
  /// Any block of the context with a charge; false when there is none left.
  bool any_of(const Context* context, Block* out);

 private:
  Memory();
  std::uint64_t take(std::map<std::uint64_t, std::uint64_t>& free, std::uint64_t size,
                     std::uint64_t alignment);

  std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;
  std::map<std::uint64_t, std::uint64_t> large_;  // free addresses: base → length
  std::map<std::uint64_t, std::uint64_t> small_;
  std::uint64_t small_begin_ = 0;
  std::uint64_t small_end_ = 0;
  std::uint64_t next_id_ = 1;
};

[[nodiscard]] constexpr std::uint64_t round_to(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}
inline constexpr std::uint64_t kGranuleBytes = 2ULL << 20;
inline constexpr std::uint64_t kPitchBytes = 512;

/// A number of bytes for the calls of CUDA before 3.2. The real driver stops at the largest: a card of 6 GiB is
/// reported with 4 GiB less a byte (BOINC issue 1773, where both calls stand beside each other).
[[nodiscard]] constexpr unsigned narrow(std::uint64_t bytes) {
  return bytes > 0xffffffffU ? 0xffffffffU : static_cast<unsigned>(bytes);
}

/// Frees device, managed or pool memory by address, as cuMemFree does.
CUresult free_device(CUdeviceptr address);

}  // namespace carve::sim::cu
