#pragma once

#include <cstdint>

#include "abi/page.h"

// Counts how much of one card's memory the processes of a slice hold. Each process announces its bytes in its own
// account entry. No process takes a lock, and a process that dies at any instruction leaves nothing for which another
// process waits. Freestanding.
//
// Announce, then sum: a process first adds a request to its own account entry and then sums all account entries. When
// two processes race for the last bytes, both may see too much and withdraw, but they cannot both see room, because all
// accesses are sequentially consistent. So the sum of the granted bytes never exceeds the limit. This holds because a
// granted byte stays in the word in which it was announced.
//
// The stock (abi/page.h, memory_stock.h) is announced and counts against the limit, but no allocation uses it. Any
// process can take the stock out of the announcement, with one atomic operation per stock entry.
namespace carve::lease {

class MemoryAccount {
 public:
  MemoryAccount(const abi::GrantPage& grant, abi::AccountPage& account, abi::AccountEntry& own)
      : grant_(&grant), account_(&account), own_(&own) {}

  /// The bytes that the limit counts: of all processes of the slice, with the stock, plus the driver's overhead. Cost:
  /// one load per account entry in use.
  [[nodiscard]] std::uint64_t charged() const {
    return add_up(add_up_entries(*grant_, *account_, own_end()).charged, grant_->overhead_bytes.load_relaxed());
  }
  /// The same without the stock. Cost: as `charged`.
  [[nodiscard]] std::uint64_t used() const {
    return add_up(add_up_entries(*grant_, *account_, own_end()).in_use, grant_->overhead_bytes.load_relaxed());
  }
  [[nodiscard]] std::uint64_t limit() const { return grant_->memory_limit.load_relaxed(); }

  /// Announces `bytes` if they fit. Returns false and changes nothing if they do not fit or if another process
  /// announced its bytes at the same time. In a stock entry, `bytes` must be whole granules.
  [[nodiscard]] bool reserve(std::uint64_t bytes) {
    const std::uint64_t most = limit();
    if (bytes > most) return false;
    const std::uint64_t before = own_->used_bytes.fetch_add(bytes);
    if (before + bytes >= before && charged() <= most) return true;
    own_->used_bytes.fetch_sub(bytes);
    return false;
  }
  /// Takes the stock of all threads of all processes of the slice out of their announcements. The owner of a stock need
  /// not run, or live. Cost: one load per stock entry, and one atomic operation per stock.
  void collect_stock() { collect_stock(*grant_, *account_); }
  static void collect_stock(const abi::GrantPage& grant, abi::AccountPage& account) {
    const Block block = stock_of(grant);
    for (std::uint32_t i = block.first; i < block.end; ++i) {
      abi::Cell<std::uint64_t>& word = account.entries[i].used_bytes;
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const std::uint64_t seen = word.load_seq_cst();
        const std::uint64_t stock = abi::stock_granules(seen);
        // A tenant can write a stock that it never announced. That is no memory.
        const std::uint64_t kept = abi::stock_in_use(seen);
        if (stock == 0 || word.compare_exchange(seen, kept)) break;
      }
    }
  }

  struct Sums {
    std::uint64_t charged;  // announced, with the stock
    std::uint64_t in_use;   // announced, without the stock
  };
  /// Adds up the account entries that the arbiter has assigned, and at least the first `at_least`. Both sums saturate.
  /// A stock that a tenant wrote without announcing it lowers `in_use` and not `charged`, and only `charged` grants.
  static Sums add_up_entries(const abi::GrantPage& grant, const abi::AccountPage& account, std::uint32_t at_least) {
    // This is the arbiter's word, in the page that tenants cannot write: a stray store must not hide an account entry
    // from the sum.
    std::uint32_t entries = grant.high_entry.load_seq_cst();
    if (entries < at_least) entries = at_least;
    if (entries > abi::kAccountEntries) entries = abi::kAccountEntries;
    const Block block = stock_of(grant);
    if (block.first == block.end) {
      const std::uint64_t plain = add_up_plain(account, 0, entries, 0);
      return {plain, plain};
    }
    std::uint64_t plain = add_up_plain(account, 0, entries < block.first ? entries : block.first, 0);
    plain = add_up_plain(account, block.end, entries, plain);
    // Two calls, so that the compiler knows the usual number of entries and unrolls its loop.
    const Granules sum = block.end - block.first == abi::kStockEntries
                             ? add_up_stock(account, block.first, abi::kStockEntries)
                             : add_up_stock(account, block.first, block.end - block.first);
    const std::uint64_t in_use = sum.charged > sum.stock ? sum.charged - sum.stock : 0;
    return {add_up(plain, bytes_of(sum.charged)), add_up(plain, bytes_of(in_use))};
  }

 private:
  static constexpr int kAttempts = 64;  // the owner uses its stock at the same time, so the stock is not idle
  struct Block {
    std::uint32_t first;
    std::uint32_t end;
  };
  /// The stock entries of the slice, within the page.
  static Block stock_of(const abi::GrantPage& grant) {
    const std::uint32_t count = grant.stock_count.load_acquire();
    if (count == 0) return {0, 0};
    const std::uint32_t first = grant.stock_first.load_relaxed();
    if (count > abi::kStockEntries || first > abi::kAccountEntries - count) return {0, 0};
    return {first, first + count};
  }
  [[nodiscard]] std::uint32_t own_end() const { return static_cast<std::uint32_t>(own_ - account_->entries) + 1; }
  static std::uint64_t add_up_plain(const abi::AccountPage& account, std::uint32_t first, std::uint32_t end,
                                    std::uint64_t sum) {
    for (std::uint32_t i = first; i < end; ++i) sum = add_up(sum, account.entries[i].used_bytes.load_seq_cst());
    return sum;
  }
  struct Granules {
    std::uint64_t charged = 0;  // the sum of a block cannot wrap around
    std::uint64_t stock = 0;
  };
  /// Inlined, so that the loop over the usual number of entries has no branch: cuMemGetInfo is called often.
  [[gnu::always_inline]] static Granules add_up_stock(const abi::AccountPage& account, std::uint32_t first,
                                                      std::uint32_t count) {
    Granules sum;
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t word = account.entries[first + i].used_bytes.load_seq_cst();
      sum.charged += word / abi::kStockGranule;
      sum.stock += abi::stock_granules(word);
    }
    return sum;
  }
  // Both saturate at the largest number: random values must not wrap around to "empty".
  static std::uint64_t bytes_of(std::uint64_t granules) {
    return granules > ~std::uint64_t{0} / abi::kStockGranule ? ~std::uint64_t{0} : granules * abi::kStockGranule;
  }
  static std::uint64_t add_up(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }

  const abi::GrantPage* grant_;
  abi::AccountPage* account_;
  abi::AccountEntry* own_;
};

}  // namespace carve::lease
