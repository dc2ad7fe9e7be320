#include "preload/memory.h"

#include "lease/memory_account.h"
#include "preload/owner.h"

namespace carve::preload {

Memory memory;

namespace {

lease::MemoryAccount account_of(const Card& card) { return {*card.grant, *card.account, *card.entry}; }

constexpr std::uint32_t kCareful = 256;  // requests after a refusal that check the sum before they announce
constexpr int kAttempts = 4;
constexpr int kCollections = 64;  // per request, because other threads may build up new stock in between

constexpr std::uint64_t kWrapped = std::uint64_t{1} << 63;  // no process announces so much

/// Another process overwrote this process's account entry. Announces what this process holds again, so that the other
/// processes of the slice count it. A thread that announces or withdraws meanwhile may leave a difference, which is
/// found by the next request.
void announce_again(Card& card) {
  const std::uint64_t* held = &memory.held[index_of(card)];
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t seen = card.entry->used_bytes.load_seq_cst();
    const std::uint64_t mine = __atomic_load_n(held, __ATOMIC_ACQUIRE);
    if ((seen >= mine && seen < kWrapped) || card.entry->used_bytes.compare_exchange(seen, mine)) {
      return;
    }
  }
}

/// Withdraws `bytes` of this process's announcement.
void withdraw(Card& card, std::uint64_t bytes) {
  // The private count first: the entry never shows less than it.
  __atomic_fetch_sub(&memory.held[index_of(card)], bytes, __ATOMIC_RELAXED);
  if (__builtin_expect(card.entry->used_bytes.fetch_sub(bytes) < bytes, 0)) {
    announce_again(card);  // the entry was overwritten: without this, the slice would count as full
  }
}

/// Announces `bytes` and keeps a second count of this process's announcements in private memory. Another process of the
/// slice can overwrite the account page or punch a hole into it, but this process still knows its own sum.
bool reserve(Card& card, lease::MemoryAccount account, std::uint64_t bytes) {
  if (!account.reserve(bytes)) {
    return false;
  }
  __atomic_fetch_add(&memory.held[index_of(card)], bytes, __ATOMIC_RELAXED);
  if (__builtin_expect(missing_bytes(card) != 0, 0)) {
    announce_again(card);
    const std::uint64_t missing = missing_bytes(card);  // of the threads' stock entries; or it was overwritten again
    const std::uint64_t charged = account.charged();
    if (charged > account.limit() || missing > account.limit() - charged) {
      withdraw(card, bytes);
      return false;
    }
  }
  return true;
}

bool fits(std::uint64_t bytes, std::uint64_t used, std::uint64_t limit) {
  return used < limit && bytes <= limit - used;
}

/// Announces `bytes`. For the next kCareful requests after a refusal it checks the sum before it announces, because an
/// announcement that is withdrawn later hides free memory from other processes, and the process may be preempted before
/// it withdraws. A thread that saw enough room and lost a race checks again. Returns false when the slice is full even
/// without its stock, or after kAttempts lost races.
bool announce(Card& card, std::uint64_t bytes) {
  std::uint32_t& careful = memory.careful[index_of(card)];
  lease::MemoryAccount account = account_of(card);
  if (__builtin_expect(__atomic_load_n(&careful, __ATOMIC_RELAXED) == 0, 1)) {
    if (reserve(card, account, bytes)) {
      return true;
    }
    __atomic_store_n(&careful, kCareful, __ATOMIC_RELAXED);
  }
  if (card.entry->used_bytes.load_relaxed() >= kWrapped) {
    announce_again(card);  // it was overwritten while this process withdrew
  }
  int collections = 0;
  for (int attempt = 0; attempt < kAttempts;) {
    const std::uint64_t limit = account.limit();
    if (!fits(bytes, account.charged(), limit)) {
      __atomic_store_n(&careful, kCareful, __ATOMIC_RELAXED);
      if (++collections > kCollections || !fits(bytes, account.used(), limit)) {
        return false;
      }
      account.collect_stock();
      continue;
    }
    ++attempt;
    if (reserve(card, account, bytes)) {
      const std::uint32_t left = __atomic_load_n(&careful, __ATOMIC_RELAXED);
      __atomic_store_n(&careful, left == 0 ? 0 : left - 1, __ATOMIC_RELAXED);
      return true;
    }
    relax();
  }
  return false;
}

}  // namespace

std::uint64_t missing_bytes(const Card& card) {
  const std::uint64_t* held = &memory.held[index_of(card)];
  std::uint64_t own = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const std::uint64_t mine = __atomic_load_n(held, __ATOMIC_ACQUIRE);
    const std::uint64_t announced = card.entry->used_bytes.load_acquire();
    own = announced < mine ? mine - announced : 0;
    if (__builtin_expect(own == 0, 1) || __atomic_load_n(held, __ATOMIC_RELAXED) == mine) {
      break;  // otherwise a thread may have freed between the two loads
    }
  }
  const Stocks& stocks = memory.stocks[index_of(card)];
  return __atomic_load_n(&stocks.entries, __ATOMIC_RELAXED) == 0 ? own : own + missing_in_stocks(card, stocks);
}

std::uint64_t used_bytes(Card& card) { return account_of(card).used(); }

std::uint64_t limit_bytes(const Card& card) { return card.grant->memory_limit.load_relaxed(); }

bool revoked(const Card& card) { return card.grant->revoked.load_relaxed() != 0; }

bool charge(Card& card, std::uint64_t bytes) {
  if (revoked(card)) {
    return false;
  }
  if (announce(card, bytes)) {
    return true;
  }
  if (memory.pool_count == 0) {
    return false;
  }
  refresh_pools(card, false);
  if (announce(card, bytes)) {
    return true;
  }
  refresh_pools(card, true);
  return announce(card, bytes);
}

CUresult refused_request(const Card& card, std::uint64_t bytes) {
  if (revoked(card)) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  card.account->refused_requests.fetch_add(1);
  card.account->refused_bytes.fetch_add(bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void give_back(Card& card, std::uint64_t bytes) {
  if (bytes != 0) {
    withdraw(card, bytes);
  }
}

bool charge_request(Card& card, std::uint64_t bytes, Charge& charged) {
  charged.stock = 0;
  if (bytes < kOwnGranules) {
    charged.kind = Kind::kSmall;
    const std::uint16_t index = index_of(card);
    const Hold hold(memory.small_lock[index]);
    std::uint64_t& small = memory.small_bytes[index];
    const std::uint64_t after = small + round_up(bytes, 512);
    const std::uint64_t more = round_up(after, kGranule) - round_up(small, kGranule);
    if (more != 0 && !charge(card, more)) {
      return false;
    }
    small = after;
    return true;
  }
  charged.kind = Kind::kLinear;
  if (bytes <= kUnlimitedBytes - kGranule) {
    if (!only_thread(memory.stocks[index_of(card)])) {
      charged.stock = charge_to_stock(card, round_up(bytes, kGranule) / kGranule);
    }
    if (charged.stock != 0 || charge(card, round_up(bytes, kGranule))) {
      return true;
    }
  }
  // The rounding to whole granules does not fit. The request is refused only if its exact bytes do not fit either, so
  // that a program can allocate all memory that is reported as free.
  charged.kind = Kind::kExact;
  return charge(card, bytes);
}

void give_back_request(Card& card, std::uint64_t bytes, Charge charged) {
  if (charged.stock != 0) {
    give_back_to_stock(card, charged.stock, round_up(bytes, kGranule) / kGranule);
  } else if (charged.kind == Kind::kExact) {
    give_back(card, bytes);
  } else if (charged.kind == Kind::kLinear) {
    give_back(card, round_up(bytes, kGranule));
  } else {
    const std::uint16_t index = index_of(card);
    const Hold hold(memory.small_lock[index]);
    std::uint64_t& small = memory.small_bytes[index];
    const std::uint64_t after = small - round_up(bytes, 512);
    give_back(card, round_up(small, kGranule) - round_up(after, kGranule));
    small = after;
  }
}

namespace {

constexpr int kPatience = 2000;  // calls of sched_yield before an entry of the same address counts as stale

/// Gives back the charge of memory that no longer exists.
void forget(const Entry& entry) {
  switch (entry.kind) {
    case Kind::kLinear:
    case Kind::kSmall:
    case Kind::kExact:
      give_back_request(process.cards[entry.card], entry.bytes, charge_of(entry));
      break;
    case Kind::kPooled: {
      Pool& pool = memory.pools[entry.owner];
      const Hold hold(pool.lock);
      leave_pool(pool, entry.bytes);
      break;
    }
    case Kind::kMapping:
      drop_handle(entry.owner);
      break;
    default:
      break;
  }
}

/// True if the entry's context was destroyed since then, and its memory with it. After more than kDestroyed contexts
/// only the driver knows.
bool destroyed_since(const Entry& entry, std::uint32_t before) {
  const std::uint32_t now = contexts_destroyed();
  const bool all_known = now - before <= kDestroyed;
  for (std::uint32_t i = all_known ? before : now - kDestroyed; i != now; ++i) {
    if (__atomic_load_n(&memory.destroyed[i % kDestroyed], __ATOMIC_RELAXED) == entry.owner) {
      return true;
    }
  }
  return !all_known && is_gone(entry.key);
}

}  // namespace

bool remember(const Entry& entry) {
  for (int turn = 0;; ++turn) {
    switch (memory.addresses.insert_new(entry)) {
      case Table<64>::Added::kDone:
        return true;
      case Table<64>::Added::kNoMemory:
        return false;
      case Table<64>::Added::kTaken:
        break;
    }
    Entry stale{};
    if (turn < kPatience) {
      sched_yield();
    } else if (memory.addresses.take(entry.key, stale)) {
      forget(stale);
    }
  }
}

bool remember_in_context_slowly(const Entry& entry, std::uint32_t destroyed_before, bool inserted) {
  if (!inserted) {
    if (destroyed_since(entry, destroyed_before)) {
      forget(entry);  // the driver has since returned the address to another thread, whose entry must stay
      return true;
    }
    if (!remember(entry)) {
      return false;
    }
  }
  Entry gone{};
  if (__builtin_expect(destroyed_since(entry, destroyed_before), 0) &&
      memory.addresses.take(entry.key, gone)) {
    forget(gone);
  }
  return true;
}

void put_back(const Entry& entry, std::uint32_t destroyed_before) {
  const bool in_context = entry.kind == Kind::kLinear || entry.kind == Kind::kSmall || entry.kind == Kind::kExact;
  if (in_context && destroyed_since(entry, destroyed_before)) {
    forget(entry);
    return;
  }
  const Table<64>::Added added = memory.addresses.insert_new(entry);
  if (added == Table<64>::Added::kTaken) {
    forget(entry);  // the driver has since returned the address to another thread, so the old memory is gone
  } else if (added == Table<64>::Added::kDone && in_context) {
    remember_in_context_slowly(entry, destroyed_before, true);
  }
}

void forget_context(Card& card, std::uint64_t context) {
  const std::uint16_t index = index_of(card);
  __atomic_store_n(&memory.destroyed[memory.destroyed_count % kDestroyed], context, __ATOMIC_RELAXED);
  __atomic_store_n(&memory.destroyed_count, memory.destroyed_count + 1, __ATOMIC_SEQ_CST);
  memory.addresses.take_all(
      [&](const Entry& entry) {
        return entry.card == index && entry.owner == context &&
               (entry.kind == Kind::kLinear || entry.kind == Kind::kSmall || entry.kind == Kind::kExact);
      },
      [&](const Entry& entry) { give_back_request(card, entry.bytes, charge_of(entry)); });
  memory.objects.take_all(
      [&](const Entry& entry) {
        return entry.card == index && entry.owner == context &&
               (entry.kind == Kind::kArray || entry.kind == Kind::kImport);
      },
      [&](const Entry& entry) { give_back(card, entry.bytes); });
  // Memory of a pool belongs to no context, but a driver may free it together with one.
  if (memory.pool_count != 0) {
    memory.addresses.take_all(
        [&](const Entry& entry) { return entry.card == index && entry.kind == Kind::kPooled && is_gone(entry.key); },
        [&](const Entry& entry) {
          Pool& pool = memory.pools[entry.owner];
          const Hold hold(pool.lock);
          leave_pool(pool, entry.bytes);
        });
  }
}

}  // namespace carve::preload
