#pragma once

#include <cstdint>

#include "lease/memory_stock.h"
#include "preload/lock.h"
#include "preload/process.h"
#include "preload/thread_pointer.h"

// Account entries of threads. A process charges all memory in its own account entry until a second thread allocates at
// the same time. From then on each thread charges what cuMemAlloc and its relatives allocate in a stock entry of its
// own (abi/page.h), and the threads no longer write the same cache lines. A charge is given back to the entry in which
// it was announced, by any thread.
namespace carve::preload {

inline constexpr std::uint32_t kThreadStocks = 16;   // per process and card; more threads share them
inline constexpr std::uint64_t kMostPerRequest = 8;  // granules; larger requests use the process's own entry

/// A thread's stock entry on one card. One cache line.
struct alignas(64) ThreadStock {
  std::uintptr_t thread;  // thread pointer of its first user, 0: free
  std::uint32_t entry;    // index of the stock entry + 1; 0: none yet
  bool none_left;         // all stock entries of the slice were taken
  Lock lock;
  lease::MemoryStock stock;  // under `lock`
};
static_assert(sizeof(ThreadStock) == 64);

/// The stocks of a process on one card.
struct alignas(64) Stocks {
  std::uintptr_t last_thread;  // the latest thread that allocated, until `shared` is set
  std::uint32_t switches;      // how often that was another thread than before
  std::uint32_t shared;        // not 0: several threads allocate
  std::uint32_t entries;       // the number of stock entries of this process
  ThreadStock threads[kThreadStocks];
};

/// Charges the granules in the calling thread's stock entry. Returns the number of its stock, by which the charge is
/// given back; 0 when nothing was charged, and the caller must charge the process's own entry. Cost: two atomic
/// operations when the stock has the granules; otherwise as `charge`.
std::uint8_t charge_to_stock(Card& card, std::uint64_t granules);
/// True while only the calling thread allocates. Cost: two loads.
inline bool only_thread(const Stocks& stocks) {
  return __atomic_load_n(&stocks.last_thread, __ATOMIC_RELAXED) == thread_pointer() &&
         __atomic_load_n(&stocks.shared, __ATOMIC_RELAXED) == 0;
}
void give_back_to_stock(Card& card, std::uint8_t number, std::uint64_t granules);

/// The bytes that the threads of this process hold and that their stock entries do not show, because another process
/// overwrote them. Cost: two loads per stock entry of this process.
std::uint64_t missing_in_stocks(const Card& card, const Stocks& stocks);

}  // namespace carve::preload
