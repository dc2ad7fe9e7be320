#include "preload/stock.h"

#include "lease/memory_account.h"
#include "preload/memory.h"

namespace carve::preload {

namespace {

constexpr std::uint32_t kSwitches = 64;  // of allocating threads, before threads get entries of their own
constexpr std::uint64_t kRoomyPart = 8;  // a stock is kept while at least this part of the limit is free

static_assert(kGranule == abi::kStockGranule);

/// True once several threads allocate. Until then it writes only when the thread changes. When it becomes true, it asks
/// the arbiter for stock entries. The arbiter sets them aside in its next round; nothing waits for it.
bool several_threads(const Card& card, Stocks& stocks, std::uintptr_t self) {
  if (__atomic_load_n(&stocks.shared, __ATOMIC_RELAXED) != 0) {
    return true;
  }
  if (__atomic_load_n(&stocks.last_thread, __ATOMIC_RELAXED) == self) {
    return false;
  }
  __atomic_store_n(&stocks.last_thread, self, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&stocks.switches, 1U, __ATOMIC_RELAXED) < kSwitches) {
    return false;
  }
  card.account->stock_wanted.store_release(1);
  __atomic_store_n(&stocks.shared, 1U, __ATOMIC_RELAXED);
  return true;
}

/// The thread's own stock, the nearest free one, or another thread's when none is free.
std::uint32_t stock_of(Stocks& stocks, std::uintptr_t self) {
  const auto home = static_cast<std::uint32_t>((self * 0x9E3779B97F4A7C15ULL) >> 60);
  static_assert(kThreadStocks == 1U << (64 - 60));
  for (std::uint32_t i = 0; i < kThreadStocks; ++i) {
    const std::uint32_t at = (home + i) % kThreadStocks;
    std::uintptr_t owner = __atomic_load_n(&stocks.threads[at].thread, __ATOMIC_RELAXED);
    if (owner == self || (owner == 0 && __atomic_compare_exchange_n(&stocks.threads[at].thread, &owner, self, false,
                                                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))) {
      return at;
    }
  }
  return home;
}

/// Takes a free stock entry of the slice; false when there is none. Under the stock's lock.
bool take_entry(Card& card, Stocks& stocks, ThreadStock& own) {
  if (own.none_left || card.grant->stock_off.load_relaxed() != 0) {
    return false;
  }
  const std::uint32_t count = card.grant->stock_count.load_acquire();
  const std::uint32_t first = card.grant->stock_first.load_relaxed();
  if (count == 0 || count > abi::kStockEntries || first > abi::kAccountEntries - count) {
    return false;  // the arbiter has not answered yet, or has no room for them, or is older
  }
  const auto owner = static_cast<std::uint32_t>(card.entry - card.account->entries) + 1;
  for (std::uint32_t i = first; i < first + count; ++i) {
    abi::Cell<std::uint32_t>& instance = card.account->entries[i].instance;
    if (instance.load_relaxed() == 0 && instance.compare_exchange(0, owner)) {
      card.account->entries[i].host_pid.store_relaxed(card.entry->host_pid.load_relaxed());
      __atomic_store_n(&own.entry, i + 1, __ATOMIC_RELEASE);
      __atomic_fetch_add(&stocks.entries, 1U, __ATOMIC_RELAXED);
      return true;
    }
  }
  own.none_left = true;
  return false;
}

abi::AccountEntry& entry_of(const Card& card, const ThreadStock& stock) {
  return card.account->entries[__atomic_load_n(&stock.entry, __ATOMIC_ACQUIRE) - 1];
}

/// Announces the granules in the stock's entry. Does not retry: a request that does not fit immediately is charged in
/// the process's own entry, where the stock of other threads is collected first.
bool reserve(Card& card, ThreadStock& own, std::uint64_t granules) {
  const std::uint32_t epoch = card.grant->stock_epoch.load_acquire();
  lease::MemoryAccount account(*card.grant, *card.account, entry_of(card, own));
  if (!account.reserve(granules * kGranule)) {
    return false;
  }
  const std::uint64_t charged = account.charged();
  const std::uint64_t limit = account.limit();
  const std::uint64_t room = charged < limit ? limit - charged : 0;
  own.stock.reserved(granules, room >= limit / kRoomyPart, epoch);
  if (__builtin_expect(missing_bytes(card) > room, 0)) {
    own.stock.disown(entry_of(card, own), granules);
    return false;
  }
  return true;
}

}  // namespace

std::uint8_t charge_to_stock(Card& card, std::uint64_t granules) {
  const std::uint16_t index = index_of(card);
  Stocks& stocks = memory.stocks[index];
  const std::uintptr_t self = thread_pointer();
  if (!several_threads(card, stocks, self) || granules > kMostPerRequest || revoked(card)) {
    return 0;
  }
  const std::uint32_t at = stock_of(stocks, self);
  ThreadStock& own = stocks.threads[at];
  const Hold hold(own.lock);
  if (own.entry == 0 && !take_entry(card, stocks, own)) {
    return 0;
  }
  const std::uint32_t epoch = card.grant->stock_epoch.load_relaxed();
  if (own.stock.take(entry_of(card, own), granules, epoch)) {
    return static_cast<std::uint8_t>(at + 1);
  }
  // After a refusal a request checks the sum before it announces, as the caller does for the process's own entry.
  if (__atomic_load_n(&memory.careful[index], __ATOMIC_RELAXED) != 0 || !reserve(card, own, granules)) {
    return 0;
  }
  return static_cast<std::uint8_t>(at + 1);
}

void give_back_to_stock(Card& card, std::uint8_t number, std::uint64_t granules) {
  ThreadStock& own = memory.stocks[index_of(card)].threads[number - 1];
  const Hold hold(own.lock);
  own.stock.give(entry_of(card, own), granules, card.grant->stock_off.load_relaxed() == 0);
}

std::uint64_t missing_in_stocks(const Card& card, const Stocks& stocks) {
  std::uint64_t missing = 0;
  for (const ThreadStock& each : stocks.threads) {
    if (__atomic_load_n(&each.entry, __ATOMIC_ACQUIRE) != 0) {
      missing += each.stock.missing(entry_of(card, each));
    }
  }
  return missing;
}

}  // namespace carve::preload
