#pragma once

#include <cstdint>

#include "preload/driver.h"
#include "preload/process.h"
#include "preload/stock.h"
#include "preload/table.h"

// Charges memory to the slice. Every allocating hook charges the bytes, calls the driver, and gives back the charge for
// what the driver did not take. Every freeing hook calls the driver first and gives back the charge afterwards.
// Therefore the sum that the slice's processes announce is never below what they hold.
namespace carve::preload {

/// The driver takes card memory in units of this size; smaller requests share a unit.
inline constexpr std::uint64_t kGranule = 2U << 20;
/// An allocation of at least this size has granules of its own.
inline constexpr std::uint64_t kOwnGranules = 1U << 20;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Memory that the driver has reserved and from which it serves requests: a memory pool, or the memory of graphs.
struct Pool {
  std::uint64_t handle;   // CUmemoryPool; 1 for the graph memory of a card
  Lock lock;
  std::uint16_t card;
  bool graphs;            // the memory of graphs; cuDeviceGetGraphMemAttribute reports it
  bool dying;             // destroyed by the program; the driver keeps it until its memory is returned
  std::uint64_t used GUARDED_BY(lock);  // bytes of live allocations that the hooks have seen
  std::uint64_t charged;  // bytes announced for it: ≥ used, ≥ what the driver has reserved as far as is known
};
inline constexpr std::uint32_t kMaxPools = 128;
inline constexpr std::uint32_t kDestroyed = 64;

/// The state of the memory hooks. The kernel zeroes it in a forked child, where no device address of the parent is
/// valid.
struct alignas(4096) Memory {
  Table<64> addresses;  // device addresses from all families of allocation calls
  Table<4> objects;     // VMM handles, contexts, arrays, graphs, imports
  Lock small_lock[kMaxCards];
  std::uint64_t small_bytes[kMaxCards];  // under `small_lock`
  std::uint64_t held[kMaxCards];     // a private copy of the announced sum; no other process can write it
  std::uint32_t careful[kMaxCards];  // the number of requests that still check the sum before they announce
  Stocks stocks[kMaxCards];
  Pool pools[kMaxPools];
  std::uint32_t pool_count;
  Lock pools_lock;
  SharedLock capture_lock;  // exclusive: to begin or end a stream's capture; shared: while no capture may begin or end
  SharedLock map_lock;      // exclusive: to remove mappings, in the driver and here; shared: to create mappings
  Lock import_lock;         // protects the increase of an imported handle's charge
  Lock context_lock;
  // The latest kDestroyed contexts that were destroyed. `destroyed_count` counts all of them. Under `context_lock`.
  std::uint64_t destroyed[kDestroyed];
  std::uint32_t destroyed_count;
  std::uint64_t primary_context[kMaxCards] GUARDED_BY(context_lock);  // not 0: its memory is charged
  std::uint64_t primary_bytes[kMaxCards] GUARDED_BY(context_lock);    // the bytes charged for it
};
extern Memory memory;

inline std::uint16_t index_of(const Card& card) { return static_cast<std::uint16_t>(&card - process.cards); }

/// Announces `bytes` if they fit. Returns false when they do not fit; then no charge has changed. Before it refuses, it
/// lets the driver release unused pool memory. Cost: one atomic add and one load per process of the slice.
bool charge(Card& card, std::uint64_t bytes);
/// The result of a request that charge() refused. Counts it for the slice's metrics.
CUresult refused_request(const Card& card, std::uint64_t bytes);
void give_back(Card& card, std::uint64_t bytes);

/// Where a request was charged.
struct Charge {
  Kind kind;           // whole granules, a part of a shared granule, or exact bytes when only the exact bytes fit
  std::uint8_t stock;  // the number of the thread's stock (stock.h); 0: the process's own account entry
};
/// Like `charge`, for one request. Sets `charged`, which give_back_request() needs.
bool charge_request(Card& card, std::uint64_t bytes, Charge& charged);
void give_back_request(Card& card, std::uint64_t bytes, Charge charged);
inline Charge charge_of(const Entry& entry) { return {entry.kind, entry.stock}; }

/// The bytes that this process holds and that the account page does not show, because another process overwrote it.
std::uint64_t missing_bytes(const Card& card);

/// The bytes that the slice uses on this card, without its stock, and its limit.
std::uint64_t used_bytes(Card& card);
std::uint64_t limit_bytes(const Card& card);
bool revoked(const Card& card);

/// Remembers memory that the driver has just returned. If the table has an entry for the same address, that memory no
/// longer exists: either the thread that freed it is about to remove the entry, or the memory was freed without a hook
/// and this function gives back its charge. Returns false when there is no memory for the entry.
bool remember(const Entry& entry);
/// The slow path of remember_in_context.
bool remember_in_context_slowly(const Entry& entry, std::uint32_t destroyed_before, bool inserted);
/// Puts an entry back that the caller took from the table for a free that the driver then refused. If the memory no
/// longer exists, because its context was destroyed or another allocation has its address by now, the function gives
/// back the charge instead.
void put_back(const Entry& entry, std::uint32_t destroyed_before);
inline std::uint32_t contexts_destroyed() { return __atomic_load_n(&memory.destroyed_count, __ATOMIC_ACQUIRE); }
/// Like `remember`, for memory that is freed together with its context. If another thread has destroyed the context
/// since the caller read `destroyed_before`, the charge is given back immediately.
inline bool remember_in_context(const Entry& entry, std::uint32_t destroyed_before) {
  const bool inserted = memory.addresses.insert_new(entry) == Table<64>::Added::kDone;
  return __builtin_expect(inserted && contexts_destroyed() == destroyed_before, 1) ||
         remember_in_context_slowly(entry, destroyed_before, inserted);
}

/// The `Pool` of a memory pool or of a card's graph memory, created at first use; null when there are too many.
Pool* pool_of(CUmemoryPool handle, Card& card);
Pool* graph_pool_of(Card& card);
/// Announces `bytes` more for the pool, in addition to all that it has reserved. When they do not fit, it reduces the
/// charge to what the pool holds and tries once more. `with_trim` lets the driver release unused memory before the
/// second try.
bool charge_in_pool(Pool& pool, std::uint64_t bytes, bool with_trim) REQUIRES(pool.lock);
/// Call it when the request failed or its memory returned to the pool.
void leave_pool(Pool& pool, std::uint64_t bytes) REQUIRES(pool.lock);
/// Call it after the driver's answer. Charges what the driver has reserved and gives back the rest.
/// Returns false when the driver has reserved more than was announced and the difference does not fit into the slice.
bool settle(Pool& pool) REQUIRES(pool.lock);
/// Asks the driver what its pools still hold and gives back the rest. With `trim` it lets the driver release unused
/// memory first. Skips pools that another thread has locked.
void refresh_pools(Card& card, bool trim);

/// Removes one reference (handle or mapping) of physical memory. The last one gives back the charge.
void drop_handle(std::uint64_t handle);

/// Forgets everything that a destroyed context or a device reset freed, and gives back its charge. Call it under
/// `context_lock`.
void forget_context(Card& card, std::uint64_t context);

}  // namespace carve::preload
