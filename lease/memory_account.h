#pragma once

#include <cstdint>

#include "abi/page.h"

// What the processes of a slice hold of one card's memory. Each announces in its own slot; nobody takes a lock,
// and a process that dies at any instruction leaves nothing that another one waits for. Freestanding.
//
// Announce, then sum: a request is added to the own slot first and the slots are summed after. Of two that race
// for the last bytes both may see too much and withdraw, but never may both see room (all accesses are
// sequentially consistent), so the sum that was granted never passes the limit.
namespace carve::lease {

class MemoryAccount {
 public:
  MemoryAccount(const abi::GrantPage& grant, abi::AccountPage& account, abi::AccountSlot& own)
      : grant_(&grant), account_(&account), own_(&own) {}

  /// Bytes of all processes of the slice, and what the driver took beyond. Cost: one load per slot in use.
  [[nodiscard]] std::uint64_t used() const { return add_up(announced(), grant_->overhead_bytes.load_relaxed()); }
  [[nodiscard]] std::uint64_t limit() const { return grant_->memory_limit.load_relaxed(); }

  /// Announces `bytes` if they fit. False: they do not, or a racer announced at the same time; nothing changed.
  [[nodiscard]] bool reserve(std::uint64_t bytes) {
    const std::uint64_t most = limit();
    if (bytes > most) return false;
    const std::uint64_t before = own_->used_bytes.fetch_add(bytes);
    if (before + bytes >= before && used() <= most) return true;
    own_->used_bytes.fetch_sub(bytes);
    return false;
  }
  /// The driver has it back.
  void release(std::uint64_t bytes) { own_->used_bytes.fetch_sub(bytes); }

 private:
  [[nodiscard]] std::uint64_t announced() const {
    // The arbiter's word, in the page that tenants cannot write: a stray store must not hide a slot from the sum.
    std::uint32_t slots = grant_->high_slot.load_seq_cst();
    const auto own_end = static_cast<std::uint32_t>(own_ - account_->slots) + 1;
    if (slots < own_end) slots = own_end;
    if (slots > abi::kAccountSlots) slots = abi::kAccountSlots;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < slots; ++i) sum = add_up(sum, account_->slots[i].used_bytes.load_seq_cst());
    return sum;
  }
  /// Stops at the largest number: noise must not wrap around to "empty".
  static std::uint64_t add_up(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }

  const abi::GrantPage* grant_;
  abi::AccountPage* account_;
  abi::AccountSlot* own_;
};

}  // namespace carve::lease
