#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "preload/lock.h"

namespace carve::preload {

/// The kind of a live address or handle.
enum class Kind : std::uint8_t {
  kLinear = 1,   // bytes in whole granules
  kSmall = 2,    // bytes in shared granules
  kExact = 3,    // exact bytes: the last granule of the request did not fit under the limit
  kPooled = 4,   // owner: the pool
  kMapping = 5,  // owner: the handle behind it
  kHandle = 6,
  kContext = 7,
  kPrimary = 8,
  kArray = 9,
  kImport = 10,
  kGraph = 11,
};

struct Entry {
  std::uint64_t key;    // address or handle, never 0
  std::uint64_t bytes;
  std::uint64_t owner;  // context, pool or handle; `kind` says which
  std::uint16_t card;
  Kind kind;
  std::uint8_t stock;  // the stock in which an address is charged (stock.h); 0: the process's own account entry
  std::uint32_t references;
};
static_assert(sizeof(Entry) == 32);

/// A hash table with open addressing and linear probing, in shards with one lock each. It grows by doubling. Memory
/// comes from mmap, because the program may have replaced the allocator. An all-zero table is empty. Cost: O(1), and no
/// system call except to grow.
template <std::uint32_t kShards>
class Table {
  static_assert((kShards & (kShards - 1)) == 0);

 public:
  /// False when there was no memory to grow; then the table is unchanged.
  bool insert(const Entry& entry) {
    Shard& shard = shard_of(entry.key);
    const Hold hold(shard.lock);
    if ((shard.count + 1) * 4 > shard.capacity * 3 && !grow(shard)) {
      return false;
    }
    place(shard, entry);
    ++shard.count;
    return true;
  }

  enum class Added { kDone, kTaken, kNoMemory };
  /// Inserts the entry if the table has no entry of this key.
  Added insert_new(const Entry& entry) {
    Shard& shard = shard_of(entry.key);
    const Hold hold(shard.lock);
    if ((shard.count + 1) * 4 > shard.capacity * 3 && !grow(shard)) {
      return Added::kNoMemory;
    }
    std::uint32_t at = home_of(shard, entry.key);
    while (shard.entries[at].key != 0) {
      if (shard.entries[at].key == entry.key) {
        return Added::kTaken;
      }
      at = (at + 1) & (shard.capacity - 1);
    }
    shard.entries[at] = entry;
    ++shard.count;
    return Added::kDone;
  }

  /// Removes and returns the entry of this key; false when there is none.
  bool take(std::uint64_t key, Entry& out) {
    Shard& shard = shard_of(key);
    const Hold hold(shard.lock);
    Entry* found = find(shard, key);
    if (found == nullptr) {
      return false;
    }
    out = *found;
    erase(shard, found);
    return true;
  }

  /// Calls `change(Entry&)` under the shard's lock and removes the entry when `change` returns false. Returns false
  /// when there is no such key.
  template <class Change>
  bool update(std::uint64_t key, Change change) {
    Shard& shard = shard_of(key);
    const Hold hold(shard.lock);
    Entry* found = find(shard, key);
    if (found == nullptr) {
      return false;
    }
    if (!change(*found)) {
      erase(shard, found);
    }
    return true;
  }

  /// Removes every entry for which `wanted(const Entry&)` is true and passes it to `taken`. Cost: O(all entries).
  template <class Wanted, class Taken>
  void take_all(Wanted wanted, Taken taken) {
    for (Shard& shard : shards_) {
      const Hold hold(shard.lock);
      for (std::uint32_t at = 0; at < shard.capacity;) {
        Entry& entry = shard.entries[at];
        if (entry.key != 0 && wanted(entry)) {
          const Entry copy = entry;
          erase(shard, &entry);  // may move a later entry here: check the same place again
          taken(copy);
        } else {
          ++at;
        }
      }
    }
  }

 private:
  struct alignas(64) Shard {
    Entry* entries GUARDED_BY(lock);
    std::uint32_t capacity GUARDED_BY(lock);
    std::uint32_t count GUARDED_BY(lock);
    Lock lock;
  };

  static std::uint64_t mix(std::uint64_t key) {
    key *= 0x9E3779B97F4A7C15ULL;
    return key ^ (key >> 29);
  }
  Shard& shard_of(std::uint64_t key) { return shards_[(mix(key) >> 40) & (kShards - 1)]; }
  static std::uint32_t home_of(const Shard& shard, std::uint64_t key) REQUIRES(shard.lock) {
    return static_cast<std::uint32_t>(mix(key)) & (shard.capacity - 1);
  }

  static Entry* find(Shard& shard, std::uint64_t key) REQUIRES(shard.lock) {
    if (shard.capacity == 0) {
      return nullptr;
    }
    for (std::uint32_t at = home_of(shard, key); shard.entries[at].key != 0;
         at = (at + 1) & (shard.capacity - 1)) {
      if (shard.entries[at].key == key) {
        return &shard.entries[at];
      }
    }
    return nullptr;
  }

  static void place(Shard& shard, const Entry& entry) REQUIRES(shard.lock) {
    std::uint32_t at = home_of(shard, entry.key);
    while (shard.entries[at].key != 0) {
      at = (at + 1) & (shard.capacity - 1);
    }
    shard.entries[at] = entry;
  }

  /// Closes the gap, so that probing needs no tombstones.
  static void erase(Shard& shard, Entry* entry) REQUIRES(shard.lock) {
    const std::uint32_t mask = shard.capacity - 1;
    auto gap = static_cast<std::uint32_t>(entry - shard.entries);
    for (std::uint32_t at = (gap + 1) & mask; shard.entries[at].key != 0; at = (at + 1) & mask) {
      const std::uint32_t home = home_of(shard, shard.entries[at].key);
      if (((at - home) & mask) >= ((at - gap) & mask)) {
        shard.entries[gap] = shard.entries[at];
        gap = at;
      }
    }
    shard.entries[gap].key = 0;
    --shard.count;
  }

  // Its body is not analysed: no other thread sees the new entries yet.
  static bool grow(Shard& shard) REQUIRES(shard.lock) NO_THREAD_SAFETY_ANALYSIS {
    const std::uint32_t wider = shard.capacity == 0 ? 128 : shard.capacity * 2;
    void* memory = mmap(nullptr, wider * sizeof(Entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    Shard bigger{static_cast<Entry*>(memory), wider, shard.count, {}};
    for (std::uint32_t at = 0; at < shard.capacity; ++at) {
      if (shard.entries[at].key != 0) {
        place(bigger, shard.entries[at]);
      }
    }
    if (shard.entries != nullptr) {
      munmap(shard.entries, shard.capacity * sizeof(Entry));
    }
    shard.entries = bigger.entries;
    shard.capacity = wider;
    return true;
  }

  Shard shards_[kShards];
};

}  // namespace carve::preload
