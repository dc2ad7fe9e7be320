#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/owner.h"

// Stream-ordered memory. A pool keeps freed memory, so a pool is charged for the larger of the bytes in use and the
// bytes that the driver has reserved for it. Before each request its full size is announced in addition, because the
// reserve may consist of pieces that are too small. Cost: close to the limit, the hook waits for the stream and trims
// the pool in cases where the driver alone would reuse a piece.
namespace carve::preload {

namespace {

constexpr std::uint64_t kGraphHandle = 1;

std::uint64_t reserved_of(const Pool& pool) {
  std::uint64_t reserved = 0;
  CUresult result = CUDA_SUCCESS;
  if (pool.graphs) {
    for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
      if (process.card_of_ordinal[device] == pool.card + 1) {
        result = driver.cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
        break;
      }
    }
  } else {
    result = driver.cuMemPoolGetAttribute(reinterpret_cast<CUmemoryPool>(pool.handle),
                                          CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  }
  return result == CUDA_SUCCESS ? reserved : pool.charged;  // no answer: the charge stays
}

void trim(const Pool& pool) {
  if (!pool.graphs) {
    CARVE_DRIVER(cuMemPoolTrimTo)(reinterpret_cast<CUmemoryPool>(pool.handle), 0);
    return;
  }
  for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
    if (process.card_of_ordinal[device] == pool.card + 1) {
      CARVE_DRIVER(cuDeviceGraphMemTrim)(device);
      return;
    }
  }
}

void give_back_beyond(Pool& pool, std::uint64_t reserved) REQUIRES(pool.lock) {
  const std::uint64_t held = reserved > pool.used ? reserved : pool.used;
  if (pool.charged > held) {
    give_back(process.cards[pool.card], pool.charged - held);
    pool.charged = held;
  }
}

/// Gives back the charge for what the pool no longer holds.
void shrink(Pool& pool) REQUIRES(pool.lock) { give_back_beyond(pool, reserved_of(pool)); }

/// Destroys a pool in the driver after the program has destroyed it and its memory is returned. Earlier is not
/// possible: only the driver can report when pending frees in a stream have run, and only while it has the pool.
void bury(Pool& pool) REQUIRES(pool.lock) {
  if (!pool.dying || pool.used != 0 || pool.charged != 0) {
    return;
  }
  CARVE_DRIVER(cuMemPoolDestroy)(reinterpret_cast<CUmemoryPool>(pool.handle));
  pool.dying = false;
  __atomic_store_n(&pool.handle, std::uint64_t{0}, __ATOMIC_RELEASE);  // another pool may use this place
}

/// Not analysed: no other thread uses the pool before its handle is set.
void clear(Pool& pool) NO_THREAD_SAFETY_ANALYSIS {
  pool.used = 0;
  pool.charged = 0;
}

Pool* record_of(std::uint64_t handle, std::uint16_t card, bool graphs) {
  const std::uint32_t count = __atomic_load_n(&memory.pool_count, __ATOMIC_ACQUIRE);
  for (std::uint32_t i = 0; i < count; ++i) {
    Pool& pool = memory.pools[i];
    if (pool.handle == handle && pool.card == card && !pool.dying) {
      return &pool;
    }
  }
  const Hold hold(memory.pools_lock);
  for (std::uint32_t i = 0; i < memory.pool_count; ++i) {
    Pool& pool = memory.pools[i];
    if (pool.handle == handle && pool.card == card && !pool.dying) {
      return &pool;
    }
  }
  std::uint32_t place = 0;
  while (place < memory.pool_count && memory.pools[place].handle != 0) {
    ++place;
  }
  if (place == kMaxPools) {
    return nullptr;
  }
  Pool& pool = memory.pools[place];
  pool.card = card;
  pool.graphs = graphs;
  pool.dying = false;
  clear(pool);
  __atomic_store_n(&pool.handle, handle, __ATOMIC_RELEASE);
  if (place == memory.pool_count) {
    __atomic_store_n(&memory.pool_count, place + 1, __ATOMIC_RELEASE);
  }
  return &pool;
}

/// Announces `bytes` in addition to all that is reserved. Only the driver knows whether its reserve can serve this
/// request, and an announcement after the request would be too late. `settle` gives back what was not needed.
bool try_grow(Pool& pool, std::uint64_t bytes) {
  Card& card = process.cards[pool.card];
  std::uint64_t growth = round_up(bytes, kGranule);
  if (!charge(card, growth)) {
    growth = bytes;  // only the last granule may exceed the limit, never the request
    if (!charge(card, growth)) {
      return false;
    }
  }
  pool.charged += growth;
  return true;
}

}  // namespace

Pool* pool_of(CUmemoryPool handle, Card& card) {
  return record_of(reinterpret_cast<std::uint64_t>(handle), index_of(card), false);
}

Pool* graph_pool_of(Card& card) { return record_of(kGraphHandle, index_of(card), true); }

bool charge_in_pool(Pool& pool, std::uint64_t bytes, bool with_trim) {
  bool fits = try_grow(pool, bytes);
  if (!fits) {
    if (with_trim) {
      trim(pool);
    }
    shrink(pool);
    fits = try_grow(pool, bytes);
  }
  if (fits) {
    pool.used += bytes;
  }
  return fits;
}

void leave_pool(Pool& pool, std::uint64_t bytes) {
  pool.used -= bytes;
  shrink(pool);
  bury(pool);
}

bool settle(Pool& pool) {
  const std::uint64_t reserved = reserved_of(pool);
  if (reserved > pool.charged) {
    if (!charge(process.cards[pool.card], reserved - pool.charged)) {
      return false;
    }
    pool.charged = reserved;
  }
  give_back_beyond(pool, reserved);
  return true;
}

void refresh_pools(Card& card, bool with_trim) {
  const std::uint32_t count = __atomic_load_n(&memory.pool_count, __ATOMIC_ACQUIRE);
  for (std::uint32_t i = 0; i < count; ++i) {
    Pool& pool = memory.pools[i];
    if (pool.handle == 0 || pool.card != index_of(card) || !pool.lock.try_acquire()) {
      continue;
    }
    if (pool.handle != 0 && pool.charged != 0) {
      if (with_trim || pool.dying) {
        trim(pool);
      }
      shrink(pool);
      bury(pool);
    }
    pool.lock.release();
  }
}

}  // namespace carve::preload

using namespace carve::preload;

namespace {

/// True when a request in this stream becomes a node of a graph. When the driver returns an error, the result is false
/// and the request is charged like an ordinary one.
bool becomes_a_node(CUstream stream, bool per_thread) REQUIRES_SHARED(memory.capture_lock) {
  int status = 0;
  const CUresult result = per_thread ? driver.cuStreamIsCapturing_ptsz(stream, &status)
                                     : driver.cuStreamIsCapturing(stream, &status);
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/// The handle of the stream to wait for; the per-thread default stream gets its explicit handle.
CUstream named(CUstream stream, bool per_thread) {
  return per_thread && stream == nullptr ? per_thread_stream() : stream;
}

/// True when the program has destroyed the pool and the hook has not yet destroyed it in the driver.
bool is_dying(CUmemoryPool handle) {
  const std::uint32_t count = __atomic_load_n(&memory.pool_count, __ATOMIC_ACQUIRE);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Pool& pool = memory.pools[i];
    if (pool.handle == reinterpret_cast<std::uint64_t>(handle) && !pool.graphs && pool.dying) {
      return true;
    }
  }
  return false;
}

/// The result of one attempt.
struct Attempt {
  CUresult result;
  Pool* full;       // not null: the slice is full, and the request was for this pool
  bool overgrown;   // also, the driver took more than was announced; a free of `bytes` is pending in the stream
};

/// Charges the pool, calls the driver and settles the pool.
template <class Take>
Attempt attempt(Pool& pool, std::uint64_t bytes, bool with_trim, CUstream stream, Take take)
    REQUIRES_SHARED(memory.capture_lock) {
  CUdeviceptr address = 0;
  {
    const Hold hold(pool.lock);
    if (!charge_in_pool(pool, bytes, with_trim)) {
      return {CUDA_ERROR_OUT_OF_MEMORY, &pool, false};
    }
    const CUresult result = take(address);
    if (result != CUDA_SUCCESS) {
      leave_pool(pool, bytes);
      return {result, nullptr, false};
    }
    if (!settle(pool)) {
      CARVE_DRIVER(cuMemFreeAsync)(address, stream);
      return {CUDA_ERROR_OUT_OF_MEMORY, &pool, true};
    }
  }
  const auto place = static_cast<std::uint64_t>(&pool - memory.pools);
  if (remember({address, bytes, place, pool.card, Kind::kPooled, 0, 1})) {
    return {CUDA_SUCCESS, nullptr, false};
  }
  CARVE_DRIVER(cuMemFreeAsync)(address, stream);
  const Hold hold(pool.lock);
  leave_pool(pool, bytes);
  return {CUDA_ERROR_OUT_OF_MEMORY, nullptr, false};
}

/// One request from a pool; null: from the current pool of the stream's device. A stream that captures allocates
/// nothing: the request becomes a node, and is charged when the graph is instantiated.
template <class Take>
CUresult allocate(CUmemoryPool handle, std::uint64_t bytes, CUstream stream, bool per_thread, Take take) {
  CUdeviceptr address = 0;
  if (bytes == 0) {
    return take(address);
  }
  if (handle != nullptr && is_dying(handle)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint64_t charged = round_up(bytes, 512);
  Card* card = nullptr;
  Attempt made{};
  for (bool waited = false;; waited = true) {
    {
      const HoldShared hold(memory.capture_lock);
      if (becomes_a_node(stream, per_thread)) {
        return take(address);
      }
      CUdevice device = 0;
      const bool known = device_of_stream(stream, per_thread, &device);
      CUmemoryPool from = handle;
      if (from == nullptr && (!known || driver.cuDeviceGetMemPool(&from, device) != CUDA_SUCCESS)) {
        return take(address);  // no pools in this driver, no such stream or no context: the driver returns the error
      }
      const std::uint16_t owner = card_of_pool(from);
      if (owner == kInHost) {
        return take(address);
      }
      card = owner < process.card_count ? &process.cards[owner] : owner == kAnyCard ? card_of_device(device) : nullptr;
      if (card == nullptr) {
        return known ? CUDA_ERROR_SYSTEM_NOT_READY : take(address);
      }
      Pool* pool = pool_of(from, *card);
      if (pool == nullptr) {
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
      made = attempt(*pool, charged, waited, named(stream, per_thread), take);
      if (made.full == nullptr) {
        return made.result;
      }
    }
    if (waited && !made.overgrown) {
      return refused_request(*card, charged);
    }
    // Memory that was freed in this stream is free when the stream has reached that free. No lock is held here: the
    // stream may wait for a host function that waits for another thread, and that thread may begin a capture.
    CARVE_DRIVER(cuStreamSynchronize)(named(stream, per_thread));
    if (made.overgrown) {
      const Hold hold(made.full->lock);
      trim(*made.full);
      leave_pool(*made.full, charged);
      return refused_request(*card, charged);
    }
  }
}

template <class Free>
CUresult release(CUdeviceptr address, CUstream stream, bool per_thread, Free call) {
  Entry entry{};
  const std::uint32_t destroyed = contexts_destroyed();
  {
    const HoldShared hold(memory.capture_lock);
    if (becomes_a_node(stream, per_thread) || !memory.addresses.take(address, entry)) {
      return call();
    }
    const CUresult result = call();
    if (result != CUDA_SUCCESS) {
      put_back(entry, destroyed);
      return result;
    }
  }
  if (entry.kind == Kind::kPooled) {
    Pool& pool = memory.pools[entry.owner];
    const Hold hold(pool.lock);
    leave_pool(pool, entry.bytes);
    return CUDA_SUCCESS;
  }
  // A program may also free memory of cuMemAlloc in stream order. The memory is free when the stream has reached the
  // free. It is not freed at all when the stream has just joined a capture, by an event.
  CARVE_DRIVER(cuStreamSynchronize)(named(stream, per_thread));
  if (is_gone(address)) {
    give_back_request(process.cards[entry.card], entry.bytes, charge_of(entry));
  } else {
    put_back(entry, destroyed);
  }
  return CUDA_SUCCESS;
}

}  // namespace

#define CARVE_ALLOC_ASYNC(symbol, per_thread)                                                        \
  CARVE_EXPORT CUresult symbol(CUdeviceptr* address, std::size_t bytes, CUstream stream) {           \
    const Duty now = duty();                                                                         \
    if (now != Duty::kMeter) {                                                                       \
      return now == Duty::kNone ? CARVE_DRIVER(symbol)(address, bytes, stream) : refusal();          \
    }                                                                                                \
    return allocate(nullptr, bytes, stream, per_thread, [=](CUdeviceptr& at) {                   \
      const CUresult result = CARVE_DRIVER(symbol)(address, bytes, stream);                          \
      at = result == CUDA_SUCCESS ? *address : 0;                                                    \
      return result;                                                                                 \
    });                                                                                              \
  }
CARVE_ALLOC_ASYNC(cuMemAllocAsync, false)
CARVE_ALLOC_ASYNC(cuMemAllocAsync_ptsz, true)

#define CARVE_ALLOC_FROM_POOL(symbol, per_thread)                                                      \
  CARVE_EXPORT CUresult symbol(CUdeviceptr* address, std::size_t bytes, CUmemoryPool pool,             \
                               CUstream stream) {                                                      \
    const Duty now = duty();                                                                           \
    if (now != Duty::kMeter) {                                                                         \
      return now == Duty::kNone ? CARVE_DRIVER(symbol)(address, bytes, pool, stream) : refusal();      \
    }                                                                                                  \
    return allocate(pool, bytes, stream, per_thread, [=](CUdeviceptr& at) {                            \
      const CUresult result = CARVE_DRIVER(symbol)(address, bytes, pool, stream);                      \
      at = result == CUDA_SUCCESS ? *address : 0;                                                      \
      return result;                                                                                   \
    });                                                                                                \
  }
CARVE_ALLOC_FROM_POOL(cuMemAllocFromPoolAsync, false)
CARVE_ALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, true)

#define CARVE_FREE_ASYNC(symbol, per_thread)                                                           \
  CARVE_EXPORT CUresult symbol(CUdeviceptr address, CUstream stream) {                                 \
    const Duty now = duty();                                                                           \
    if (now != Duty::kMeter) {                                                                         \
      return now == Duty::kNone ? CARVE_DRIVER(symbol)(address, stream) : refusal();                   \
    }                                                                                                  \
    return release(address, stream, per_thread, [=] { return CARVE_DRIVER(symbol)(address, stream); }); \
  }
CARVE_FREE_ASYNC(cuMemFreeAsync, false)
CARVE_FREE_ASYNC(cuMemFreeAsync_ptsz, true)

CARVE_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemPoolCreate)(pool, properties);
  if (result != CUDA_SUCCESS || now == Duty::kNone) {
    return result;
  }
  // Here the properties name the pool's card in every version of the driver.
  const std::uint16_t card =
      card_of_location(properties->location.type, properties->location.id, properties->alloc_type);
  const auto handle = reinterpret_cast<std::uint64_t>(*pool);
  if (card == kForeignCard || !memory.objects.insert({handle, 0, 0, card, Kind::kPooled, 0, 1})) {
    CARVE_DRIVER(cuMemPoolDestroy)(*pool);
    return card == kForeignCard ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

namespace {

/// A device that has this pool as its current pool gets its default pool again, as when the driver destroys the pool.
void leave_device(CUmemoryPool pool) {
  for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
    CUmemoryPool current = nullptr;
    if (driver.cuDeviceGetMemPool(&current, device) != CUDA_SUCCESS) {
      return;
    }
    if (current == pool && driver.cuDeviceGetDefaultMemPool(&current, device) == CUDA_SUCCESS) {
      driver.cuDeviceSetMemPool(device, current);
    }
  }
}

/// True for a device's default pool, which the driver does not destroy.
bool is_default(CUmemoryPool pool) {
  CUmemoryPool own = nullptr;
  for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
    if (driver.cuDeviceGetDefaultMemPool(&own, device) != CUDA_SUCCESS) {
      return false;
    }
    if (own == pool) {
      return true;
    }
  }
  return false;
}

/// Marks the pool as dying. refresh_pools, and each free of its memory, destroy it when it holds nothing more.
void destroy_when_empty(Pool& record, CUmemoryPool pool) REQUIRES(record.lock) {
  std::uint64_t none = 0;
  driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none);
  trim(record);
  shrink(record);
  leave_device(pool);
  record.dying = true;
  bury(record);
}

}  // namespace

// While a pool has live allocations or pending frees in a stream, the driver keeps the pool until all memory is
// returned. This hook does the same, because only the driver can report when that is.
CARVE_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemPoolDestroy)(pool) : refusal();
  }
  if (is_dying(pool)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto handle = reinterpret_cast<std::uint64_t>(pool);
  Entry entry{};
  const bool known = memory.objects.take(handle, entry);
  for (std::uint32_t i = 0; known && i < memory.pool_count; ++i) {
    Pool& record = memory.pools[i];
    if (record.handle != handle || record.graphs) {
      continue;
    }
    const Hold hold(record.lock);
    if (record.handle == handle && !record.dying && !is_default(pool)) {
      destroy_when_empty(record, pool);
      return CUDA_SUCCESS;
    }
  }
  const CUresult result = CARVE_DRIVER(cuMemPoolDestroy)(pool);
  if (result != CUDA_SUCCESS && known) {
    memory.objects.insert(entry);
  }
  return result;
}

CARVE_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemPoolTrimTo)(pool, keep);
  if (now == Duty::kMeter) {
    for (std::uint32_t i = 0; i < process.card_count; ++i) {
      refresh_pools(process.cards[i], false);
    }
  }
  return result;
}
