#pragma once

#include <cstdint>

#include "abi/page.h"

// What the owner of one stock entry (abi/page.h) knows about it, and the owner's operations on it. A free leaves its
// granules in the stock, and the next allocation of the same thread takes them from there: each is one atomic operation
// on a cache line that no other thread uses. The account is not summed, because the stock is announced already. When
// memory is short, any process takes the stock away (MemoryAccount::collect_stock), and the owner finds it gone.
//
// The owner does not trust the page. A second count in private memory says how much the entry must show, so a stock
// that another process wrote is not used. Freestanding. All zero is an empty stock.
namespace carve::lease {

class MemoryStock {
 public:
  /// The largest stock of a thread, in granules.
  static constexpr std::uint64_t kMost = 16;

  /// Takes `granules` from the stock. False when the stock has fewer, when the entry does not show what this process
  /// announced, or when the slice got less memory since `reserved` (`epoch`: GrantPage::stock_epoch now). Under the
  /// owner's lock, as all operations except `missing`.
  [[nodiscard]] bool take(abi::AccountEntry& entry, std::uint64_t granules, std::uint32_t epoch) {
    if (epoch != epoch_) return false;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t seen = entry.used_bytes.load_relaxed();
      const std::uint64_t stock = abi::stock_granules(seen);
      notice(stock);
      if (stock < granules || !genuine(seen, held_)) return false;
      if (entry.used_bytes.compare_exchange(seen, seen - granules)) {
        stock_ = stock - granules;
        set_held(held_ + granules);
        return true;
      }
    }
    return false;
  }
  /// Call it after the granules were reserved in this entry (MemoryAccount::reserve). `roomy`: the slice has so much
  /// free memory that the granules may stay announced after the next free. `epoch`: as read before they were reserved.
  void reserved(std::uint64_t granules, bool roomy, std::uint32_t epoch) {
    set_held(held_ + granules);
    roomy_ = roomy;
    epoch_ = epoch;
  }
  /// Undoes `reserved` when the slice has no room for what its entries do not show. Withdraws what the entry then shows
  /// beyond the granules in use; what it lacks stays announced.
  void disown(abi::AccountEntry& entry, std::uint64_t granules) {
    set_held(held_ - granules);
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t seen = entry.used_bytes.load_relaxed();
      const std::uint64_t in_use = abi::stock_in_use(seen) / abi::kStockGranule;
      const std::uint64_t excess = in_use > held_ ? in_use - held_ : 0;
      const std::uint64_t less = (excess < granules ? excess : granules) * abi::kStockGranule;
      if (less == 0 || entry.used_bytes.compare_exchange(seen, seen - less)) return;
    }
  }
  /// Gives back `granules` after the driver has freed them: to the stock if `keep` is true and there is room for them,
  /// otherwise out of the announcement.
  void give(abi::AccountEntry& entry, std::uint64_t granules, bool keep) {
    const std::uint64_t held = held_;
    set_held(held - granules);  // first: the entry never shows less than `held_`
    for (int attempt = 0; attempt < kAttempts && keep; ++attempt) {
      const std::uint64_t seen = entry.used_bytes.load_relaxed();
      const std::uint64_t stock = abi::stock_granules(seen);
      notice(stock);
      if (!roomy_ || stock + granules > kMost || !genuine(seen, held)) break;
      if (entry.used_bytes.compare_exchange(seen, seen + granules)) {
        stock_ = stock + granules;
        return;
      }
    }
    const std::uint64_t less = granules * abi::kStockGranule;
    if (entry.used_bytes.fetch_sub(less) < less) announce_again(entry);
  }
  /// The bytes that this process holds through the entry and that the entry does not show, because another process
  /// overwrote it. Any thread may call it.
  [[nodiscard]] std::uint64_t missing(const abi::AccountEntry& entry) const {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t held = __atomic_load_n(&held_, __ATOMIC_ACQUIRE);
      const std::uint64_t charged = abi::stock_charged(entry.used_bytes.load_acquire());
      if (charged >= held * abi::kStockGranule) return 0;
      // A thread may have freed between the two loads.
      if (__atomic_load_n(&held_, __ATOMIC_RELAXED) == held) return held * abi::kStockGranule - charged;
    }
    return 0;
  }
  /// The granules in use.
  [[nodiscard]] std::uint64_t held() const { return __atomic_load_n(&held_, __ATOMIC_RELAXED); }

 private:
  static constexpr int kAttempts = 4;
  static constexpr std::uint64_t kWrapped = std::uint64_t{1} << 63;  // no process announces so much

  void set_held(std::uint64_t granules) { __atomic_store_n(&held_, granules, __ATOMIC_RELEASE); }
  /// The entry wrapped around, because another process had overwritten it: the slice would count as full.
  void announce_again(abi::AccountEntry& entry) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint64_t seen = entry.used_bytes.load_relaxed();
      if (seen < kWrapped || entry.used_bytes.compare_exchange(seen, held_ * abi::kStockGranule)) return;
    }
  }
  /// Another process needed the stock: from now on a free withdraws its granules, until the slice has room again.
  void notice(std::uint64_t stock) {
    if (stock < stock_) {
      stock_ = stock;
      roomy_ = false;
    }
  }
  [[nodiscard]] bool genuine(std::uint64_t seen, std::uint64_t held) const {
    const std::uint64_t stock = abi::stock_granules(seen);
    return stock <= stock_ && abi::stock_charged(seen) == (held + stock) * abi::kStockGranule;
  }

  std::uint64_t held_;   // granules in use
  std::uint64_t stock_;  // what the owner left in the entry's stock; the entry shows this or, when it was taken, less
  std::uint32_t epoch_;
  bool roomy_;
};

}  // namespace carve::lease
