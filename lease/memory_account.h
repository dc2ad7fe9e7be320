#pragma once

#include <cstdint>

#include "abi/page.h"

// Counts how much of one card's memory the processes of a slice hold. Each process announces its bytes in its own
// account entry. No process takes a lock, and a process that dies at any instruction leaves nothing for which another
// process waits. Freestanding.
//
// Announce, then sum: a process first adds a request to its own account entry and then sums all account entries. When
// two processes race for the last bytes, both may see too much and withdraw, but they cannot both see room, because all
// accesses are sequentially consistent. So the sum of the granted bytes never exceeds the limit.
namespace carve::lease {

class MemoryAccount {
 public:
  MemoryAccount(const abi::GrantPage& grant, abi::AccountPage& account, abi::AccountSlot& own)
      : grant_(&grant), account_(&account), own_(&own) {}

  /// The bytes of all processes of the slice plus the driver's overhead. Cost: one load per account entry in use.
  [[nodiscard]] std::uint64_t used() const { return add_up(announced(), grant_->overhead_bytes.load_relaxed()); }
  [[nodiscard]] std::uint64_t limit() const { return grant_->memory_limit.load_relaxed(); }

  /// Announces `bytes` if they fit. Returns false and changes nothing if they do not fit or if another process
  /// announced its bytes at the same time.
  [[nodiscard]] bool reserve(std::uint64_t bytes) {
    const std::uint64_t most = limit();
    if (bytes > most) return false;
    const std::uint64_t before = own_->used_bytes.fetch_add(bytes);
    if (before + bytes >= before && used() <= most) return true;
    own_->used_bytes.fetch_sub(bytes);
    return false;
  }
  /// Withdraws `bytes` after the driver has freed them.
  void release(std::uint64_t bytes) { own_->used_bytes.fetch_sub(bytes); }

 private:
  [[nodiscard]] std::uint64_t announced() const {
    // This is the arbiter's word, in the page that tenants cannot write: a stray store must not hide an account entry
    // from the sum.
    std::uint32_t slots = grant_->high_slot.load_seq_cst();
    const auto own_end = static_cast<std::uint32_t>(own_ - account_->slots) + 1;
    if (slots < own_end) slots = own_end;
    if (slots > abi::kAccountSlots) slots = abi::kAccountSlots;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < slots; ++i) sum = add_up(sum, account_->slots[i].used_bytes.load_seq_cst());
    return sum;
  }
  /// Saturates at the largest number: random values must not wrap around to "empty".
  static std::uint64_t add_up(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }

  const abi::GrantPage* grant_;
  abi::AccountPage* account_;
  abi::AccountSlot* own_;
};

}  // namespace carve::lease
