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
  bool dying;             // destroyed with memory still out: no handle to ask any more
  std::uint64_t used;     // by live allocations that went through us
  std::uint64_t charged;  // announced for it: ≥ used, ≥ what the driver has reserved as far as we know
};
inline constexpr std::uint32_t kMaxPools = 128;

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
  Lock context_lock;
  std::uint64_t primary_context[kMaxCards];  // under `context_lock`; not 0: charged
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

/// The record of a pool or of a card's graph memory, made at first sight; null when there are too many.
Pool* pool_of(CUmemoryPool handle, Card& card);
Pool* graph_pool_of(Card& card);
/// Announces `bytes` more out of the pool, under `pool.lock`, on top of its reserve. At the limit it waits for
/// `stream`, lets the driver release what is unused, and tries again.
bool charge_in_pool(Pool& pool, std::uint64_t bytes, CUstream stream);
/// The request came to nothing, or its memory went back to the pool. Under `pool.lock`.
void leave_pool(Pool& pool, std::uint64_t bytes);
/// After the driver's answer, under `pool.lock`: charges what it has reserved, gives the rest back. False: it has
/// reserved more than was announced and than the slice has left.
bool settle(Pool& pool);
/// Asks the driver what its pools still hold and gives the rest back; with `trim` lets it release what is unused.
/// Pools that are in use at this moment are left alone.
void refresh_pools(Card& card, bool trim);

/// Forgets everything that died with a context or a device reset, and gives it back.
void forget_context(Card& card, std::uint64_t context);

}  // namespace carve::preload
