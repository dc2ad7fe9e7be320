#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/meter.h"

// Stream-ordered memory. A pool keeps what was freed, so what counts is what the driver has reserved for it:
// a pool is charged the larger of what is used and what is reserved. Before each request the whole of it is
// announced on top, for a reserve may be in pieces that do not fit; close to the limit that means waiting for
// the stream and trimming the pool where a bare driver would have reused a piece.
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
  return result == CUDA_SUCCESS ? reserved : pool.charged;  // no answer: as before
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

void give_back_beyond(Pool& pool, std::uint64_t reserved) {
  const std::uint64_t held = reserved > pool.used ? reserved : pool.used;
  if (pool.charged > held) {
    give_back(process.cards[pool.card], pool.charged - held);
    pool.charged = held;
  }
}

/// Gives back what the pool no longer holds; under its lock.
void shrink(Pool& pool) { give_back_beyond(pool, pool.dying ? 0 : reserved_of(pool)); }

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
  pool.used = 0;
  pool.charged = 0;
  __atomic_store_n(&pool.handle, handle, __ATOMIC_RELEASE);
  if (place == memory.pool_count) {
    __atomic_store_n(&memory.pool_count, place + 1, __ATOMIC_RELEASE);
  }
  return &pool;
}

/// Announces `bytes` on top of all that is reserved: nobody but the driver knows whether its reserve serves this
/// request, and afterwards would be too late. What was not needed goes back in `settle`.
bool try_grow(Pool& pool, std::uint64_t bytes) {
  Card& card = process.cards[pool.card];
  std::uint64_t growth = round_up(bytes, kGranule);
  if (!charge(card, growth)) {
    growth = bytes;  // the last granule may stick out of the slice, the request may not
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

bool charge_in_pool(Pool& pool, std::uint64_t bytes, CUstream stream) {
  bool fits = try_grow(pool, bytes);
  if (!fits) {
    shrink(pool);
    fits = try_grow(pool, bytes);
  }
  if (!fits) {
    if (!pool.graphs) {
      CARVE_DRIVER(cuStreamSynchronize)(stream);
    }
    trim(pool);
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
  if (pool.dying && pool.used == 0) {
    __atomic_store_n(&pool.handle, std::uint64_t{0}, __ATOMIC_RELEASE);  // the place is free
  }
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
    if (pool.handle != 0 && pool.charged != 0 && !pool.dying) {
      if (with_trim) {
        trim(pool);
      }
      shrink(pool);
    }
    pool.lock.release();
  }
}

}  // namespace carve::preload

using namespace carve::preload;

namespace {

/// One request out of a pool. While capturing nothing is allocated: it becomes a node, charged when the graph is
/// instantiated.
template <class Take>
CUresult allocate(CUmemoryPool handle, std::uint64_t bytes, CUstream stream, bool per_thread, Take take) {
  CUdeviceptr address = 0;
  if (bytes == 0 || capturing(stream, per_thread)) {
    return take(address);
  }
  Card* card = current_card();
  if (card == nullptr) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  Entry known{};
  known.card = index_of(*card);
  memory.objects.update(reinterpret_cast<std::uint64_t>(handle), [&](Entry& entry) {
    known = entry;
    return true;
  });
  if (known.card >= process.card_count) {
    return take(address);  // a pool in host memory
  }
  card = &process.cards[known.card];
  Pool* pool = pool_of(handle, *card);
  if (pool == nullptr) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUstream wait_on = per_thread && stream == nullptr ? per_thread_stream() : stream;
  const std::uint64_t taken = round_up(bytes, 512);
  const Hold hold(pool->lock);
  if (!charge_in_pool(*pool, taken, wait_on)) {
    return revoked(*card) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = take(address);
  if (result != CUDA_SUCCESS) {
    leave_pool(*pool, taken);
    return result;
  }
  const auto place = static_cast<std::uint64_t>(pool - memory.pools);
  if (settle(*pool) && memory.addresses.insert({address, taken, place, known.card, Kind::kPooled, 1})) {
    return CUDA_SUCCESS;
  }
  // The driver reserved more than the slice has left: undo it.
  CARVE_DRIVER(cuMemFreeAsync)(address, wait_on);
  CARVE_DRIVER(cuStreamSynchronize)(wait_on);
  trim(*pool);
  leave_pool(*pool, taken);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <class Take>
CUresult allocate_from_default(std::uint64_t bytes, CUstream stream, bool per_thread, Take take) {
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS || driver.cuDeviceGetMemPool(&pool, device) != CUDA_SUCCESS) {
    CUdeviceptr unused = 0;
    return take(unused);  // the driver has no pools or no context: it says so itself
  }
  return allocate(pool, bytes, stream, per_thread, take);
}

template <class Free>
CUresult release(CUdeviceptr address, CUstream stream, bool per_thread, Free call) {
  Entry entry{};
  if (capturing(stream, per_thread) || !memory.addresses.take(address, entry)) {
    return call();
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    memory.addresses.insert(entry);
    return result;
  }
  if (entry.kind == Kind::kPooled) {
    Pool& pool = memory.pools[entry.owner];
    const Hold hold(pool.lock);
    leave_pool(pool, entry.bytes);
    return result;
  }
  // Memory of cuMemAlloc may be freed in stream order too. It is not free before the stream comes there.
  CARVE_DRIVER(cuStreamSynchronize)(per_thread && stream == nullptr ? per_thread_stream() : stream);
  give_back_request(process.cards[entry.card], entry.bytes, entry.kind);
  return result;
}

}  // namespace

#define CARVE_ALLOC_ASYNC(symbol, per_thread)                                                        \
  CARVE_EXPORT CUresult symbol(CUdeviceptr* address, std::size_t bytes, CUstream stream) {           \
    const Duty now = duty();                                                                         \
    if (now != Duty::kMeter) {                                                                       \
      return now == Duty::kNone ? CARVE_DRIVER(symbol)(address, bytes, stream) : refusal();          \
    }                                                                                                \
    return allocate_from_default(bytes, stream, per_thread, [=](CUdeviceptr& at) {                   \
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
  // Which card the pool draws on is known only here.
  const bool on_card = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const Card* card = on_card ? card_of_device(properties->location.id) : nullptr;
  const auto handle = reinterpret_cast<std::uint64_t>(*pool);
  const auto index = card != nullptr ? index_of(*card) : static_cast<std::uint16_t>(kMaxCards);
  if ((on_card && card == nullptr) || !memory.objects.insert({handle, 0, 0, index, Kind::kPooled, 1})) {
    CARVE_DRIVER(cuMemPoolDestroy)(*pool);
    return on_card && card == nullptr ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}

CARVE_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemPoolDestroy)(pool) : refusal();
  }
  const auto handle = reinterpret_cast<std::uint64_t>(pool);
  Entry entry{};
  const bool known = memory.objects.take(handle, entry);
  const CUresult result = CARVE_DRIVER(cuMemPoolDestroy)(pool);
  if (result != CUDA_SUCCESS) {
    if (known) {
      memory.objects.insert(entry);
    }
    return result;
  }
  for (std::uint32_t i = 0; i < memory.pool_count; ++i) {
    Pool& record = memory.pools[i];
    if (record.handle == handle && !record.graphs) {
      const Hold hold(record.lock);
      record.dying = true;
      leave_pool(record, 0);
    }
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
