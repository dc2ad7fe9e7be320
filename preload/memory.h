#pragma once

#include <cstdint>

#include "preload/driver.h"
#include "preload/process.h"
#include "preload/table.h"

// Charging memory to the slice. Order in every hook: charge, ask the driver, give back what was not taken.
// Freeing: ask the driver, then give back. So the sum that the slice's processes announce never lies below what
// they hold.
namespace carve::preload {

/// What the driver takes memory in; smaller requests share one.
inline constexpr std::uint64_t kGranule = 2U << 20;
/// From here on an allocation has granules of its own.
inline constexpr std::uint64_t kOwnGranules = 1U << 20;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// A reserve out of which the driver serves requests on its own: a memory pool, or the memory of graphs.
struct Pool {
  std::uint64_t handle;   // CUmemoryPool; 1 for the graph memory of a card
  Lock lock;
  std::uint16_t card;
  bool graphs;            // the driver is asked by cuDeviceGetGraphMemAttribute
  bool dying;             // destroyed by the program; the driver keeps it until its memory is back
  std::uint64_t used;     // by live allocations that went through us
  std::uint64_t charged;  // announced for it: ≥ used, ≥ what the driver has reserved as far as we know
};
inline constexpr std::uint32_t kMaxPools = 128;
inline constexpr std::uint32_t kDestroyed = 64;

/// All that the memory hooks remember; emptied by the kernel in a child, in which no old address is alive.
struct alignas(4096) Memory {
  Table<64> addresses;  // every family's device addresses
  Table<4> objects;     // VMM handles, contexts, arrays, graphs, imports
  Lock small_lock[kMaxCards];
  std::uint64_t small_bytes[kMaxCards];  // under `small_lock`
  std::uint64_t held[kMaxCards];     // all that is announced, counted once more where nobody else can write
  std::uint32_t careful[kMaxCards];  // requests for which the sum is looked at first
  Pool pools[kMaxPools];
  std::uint32_t pool_count;
  Lock pools_lock;
  SharedLock capture_lock;  // alone: a stream begins or ends to capture; shared: none does
  SharedLock map_lock;      // alone: mappings are undone, in the driver and here; shared: they are made
  Lock import_lock;         // what an imported handle is charged for grows
  Lock context_lock;
  // Contexts that were destroyed, the latest kDestroyed of them; `destroyed_count` ever, under `context_lock`.
  std::uint64_t destroyed[kDestroyed];
  std::uint32_t destroyed_count;
  std::uint64_t primary_context[kMaxCards];  // under `context_lock`; not 0: charged
  std::uint64_t primary_bytes[kMaxCards];    // so much
};
extern Memory memory;

inline std::uint16_t index_of(const Card& card) { return static_cast<std::uint16_t>(&card - process.cards); }

/// Announces `bytes` if they fit; false: they do not, nothing changed. On the way to a refusal unused pool memory
/// is given back to the driver. Cost: one atomic add and one load per process of the slice.
bool charge(Card& card, std::uint64_t bytes);
void give_back(Card& card, std::uint64_t bytes);

/// As `charge`, for one request: chooses granules, a share of a granule, or exact bytes when only these fit.
bool charge_request(Card& card, std::uint64_t bytes, Kind& kind);
void give_back_request(Card& card, std::uint64_t bytes, Kind kind);

/// What the slice holds on this card, and its limit.
std::uint64_t used_bytes(Card& card);
std::uint64_t limit_bytes(const Card& card);
bool revoked(const Card& card);

/// Remembers memory that the driver has just handed out. An entry of the same address is of memory that is gone: the
/// thread that freed it is about to take it out, or it died unseen and is given back here. False: no memory for it.
bool remember(const Entry& entry);
/// The rest of remember_in_context.
bool remember_in_context_slowly(const Entry& entry, std::uint32_t destroyed_before, bool inserted);
/// The driver would not free it, as far as is known, and the caller has taken it out of the table: in it goes again. It
/// is given back instead when it is gone after all: with its context, or because its address is another's by now.
void put_back(const Entry& entry, std::uint32_t destroyed_before);
inline std::uint32_t contexts_destroyed() { return __atomic_load_n(&memory.destroyed_count, __ATOMIC_ACQUIRE); }
/// As `remember`, for memory that dies with its context: when that was destroyed since `destroyed_before` was read, by
/// another thread, the memory is given back at once.
inline bool remember_in_context(const Entry& entry, std::uint32_t destroyed_before) {
  const bool inserted = memory.addresses.insert_new(entry) == Table<64>::Added::kDone;
  return __builtin_expect(inserted && contexts_destroyed() == destroyed_before, 1) ||
         remember_in_context_slowly(entry, destroyed_before, inserted);
}

/// The record of a pool or of a card's graph memory, made at first sight; null when there are too many.
Pool* pool_of(CUmemoryPool handle, Card& card);
Pool* graph_pool_of(Card& card);
/// Announces `bytes` more out of the pool, under `pool.lock`, on top of its reserve. With `with_trim` lets the driver
/// release first what is unused.
bool charge_in_pool(Pool& pool, std::uint64_t bytes, bool with_trim);
/// The request came to nothing, or its memory went back to the pool. Under `pool.lock`.
void leave_pool(Pool& pool, std::uint64_t bytes);
/// After the driver's answer, under `pool.lock`: charges what it has reserved, gives the rest back. False: it has
/// reserved more than was announced and than the slice has left.
bool settle(Pool& pool);
/// Asks the driver what its pools still hold and gives the rest back; with `trim` lets it release what is unused.
/// Pools that are in use at this moment are left alone.
void refresh_pools(Card& card, bool trim);

/// Physical memory by handle: one handle or mapping less; gives the memory back at the last.
void drop_handle(std::uint64_t handle);

/// Forgets everything that died with a context or a device reset, and gives it back.
void forget_context(Card& card, std::uint64_t context);

}  // namespace carve::preload
