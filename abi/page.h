#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/cell.h"

// The two shared-memory pages of a slice: the arbiter writes the grant page, and the slice's processes write the
// account page. Plain data, versioned, sizes and offsets asserted. Each slice, that is each (owner, part) and card, has
// one pair. Freestanding.
namespace carve::abi {

inline constexpr std::uint32_t kGrantMagic = 0x47564143;    // "CAVG"
inline constexpr std::uint32_t kAccountMagic = 0x41564143;  // "CAVA"

// A newer ABI only uses bytes that were reserved in the previous one; zero in these bytes means "as in the previous
// ABI". So library N reads pages N-1 (the arbiter of its node is not upgraded yet), and library N-1, in a container
// that keeps running, reads pages N.
#ifndef CARVE_PAGE_ABI
#define CARVE_PAGE_ABI 2  // tests/next builds the next ABI to test an upgrade
#endif
inline constexpr std::uint16_t kPageAbi = CARVE_PAGE_ABI;                         // the ABI that this build writes
inline constexpr std::uint16_t kPageAbiMin = kPageAbi > 1 ? kPageAbi - 1 : 1;     // the oldest ABI its clients read
inline constexpr std::uint16_t kClientAbiMin = kPageAbi > 1 ? kPageAbi - 1 : 1;   // the oldest client that it serves

inline constexpr std::size_t kGrantPageBytes = 4096;
inline constexpr std::size_t kAccountEntries = 1024;
inline constexpr std::size_t kAccountPageBytes = 4096 + kAccountEntries * 64;

// The stock: memory that a thread has announced and does not use now. A process with threads that allocate at the same
// time gets an account entry per thread, so that the threads do not write the same cache line. These stock entries are
// one block of account entries that the arbiter sets aside when a process asks for it (AccountPage::stock_wanted). In a
// stock entry `used_bytes` is a whole number of granules, and its low bits count the granules of the stock. So one
// atomic operation of any process takes the stock out of the announcement, and a library of ABI 1, which adds up plain
// numbers, counts every announced granule. New in ABI 2.
inline constexpr std::uint16_t kStockAbi = 2;
inline constexpr std::uint32_t kStockEntries = 8;
inline constexpr std::uint64_t kStockGranule = std::uint64_t{1} << 21;
/// The announced bytes of a stock entry, with its stock.
constexpr std::uint64_t stock_charged(std::uint64_t word) { return word & ~(kStockGranule - 1); }
/// The granules of the stock. A tenant can write any number.
constexpr std::uint64_t stock_granules(std::uint64_t word) { return word & (kStockGranule - 1); }
/// The announced bytes of a stock entry without its stock; 0 when a tenant wrote a stock larger than the announcement.
constexpr std::uint64_t stock_in_use(std::uint64_t word) {
  const std::uint64_t stock = stock_granules(word) * kStockGranule;
  return stock_charged(word) > stock ? stock_charged(word) - stock : 0;
}

inline constexpr std::uint64_t kHeartbeatPeriodNs = 20'000'000;    // how often the arbiter writes its heartbeat
inline constexpr std::uint64_t kHeartbeatMissedNs = 200'000'000;   // silence after which clients use their local bucket

/// What a launch may do now. The lowest two bits of GrantPage::lease.
enum class LeaseMode : std::uint32_t {
  kBlocked = 0,  // wait on the futex
  kSolo = 1,     // no other slice needs the card: no time limit, in-flight work bounded to solo_credit_us
  kLease = 2,    // until end_ns, in-flight work bounded to credit_us
};

enum class ShareClass : std::uint32_t { kFixed = 0, kBurst = 1, kBestEffort = 2 };
enum class PriorityClass : std::uint32_t { kOnline = 0, kStandard = 1, kOffline = 2 };

/// The clock of the `*_ns` fields of both pages.
enum class PageClock : std::uint32_t {
  kTsc = 0,        // ns = (rdtsc * tsc_multiplier) >> tsc_shift, 128-bit product
  kMonotonic = 1,  // CLOCK_MONOTONIC through the vDSO (TSC not constant)
};

/// Written only by the arbiter; the tenant's descriptor and mapping are read-only.
struct GrantPage {
  // Constant from the moment when `magic` is set.
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t reserved0;
  char card_uuid[48];              // NUL-terminated, "GPU-…": as cuDeviceGetUuid and NVML report it
  ShareClass share_class;
  PriorityClass priority_class;
  std::uint64_t page_generation;   // unique among the slices created since this boot
  std::uint64_t context_bytes;     // charged in advance for each context, by card model
  PageClock clock;
  std::uint32_t tsc_shift;
  std::uint64_t tsc_multiplier;
  std::uint64_t account_inode;     // of the account page that belongs to this one, for a restarted arbiter
  std::uint8_t reserved1[24];

  // Changed by the arbiter at the agent's request.
  Cell<std::uint64_t> memory_limit;    // bytes
  Cell<std::uint64_t> overhead_bytes;  // taken by the driver beyond the announced bytes; from NVML each second
  Cell<std::uint32_t> compute_limit;   // 1/100 of the card; the cap of `fixed`, the guarantee of `burst`
  Cell<std::uint32_t> revoked;         // not 0: the slice was removed, refuse everything
  Cell<std::uint32_t> stock_first;     // the first stock entry; constant once stock_count is not 0
  Cell<std::uint32_t> stock_count;     // the number of stock entries; 0: there are none
  Cell<std::uint32_t> stock_off;       // not 0: no thread may keep a stock, because a library of ABI 1 uses the slice
  Cell<std::uint32_t> stock_epoch;     // incremented after the limit was lowered or the overhead raised
  Cell<std::uint32_t> compute_ceiling;  // 1/100 of the card, the cap of `burst` and `besteffort`; 0 or 100: none
  std::uint8_t reserved2[20];

  // Changed by the arbiter continuously: one cache line that clients poll.
  Cell<std::uint32_t> lease;           // LeaseMode in the low two bits, epoch above; also the futex word
  Cell<std::uint32_t> credit_us;       // estimated GPU time that may be in flight
  Cell<std::uint64_t> end_ns;          // end of a kLease
  Cell<std::uint64_t> heartbeat_ns;    // time of the arbiter's last heartbeat; 0: it has stopped
  Cell<std::uint32_t> rate_ppm;        // the last granted rate, in millionths of the card: the rate of the
                                       // local bucket when the arbiter is silent
  Cell<std::uint32_t> high_entry;       // highest account entry assigned + 1: bounds every sum over the account page
  std::uint8_t reserved4[32];

  std::uint8_t padding[kGrantPageBytes - 256];
};
static_assert(sizeof(GrantPage) == kGrantPageBytes);
static_assert(offsetof(GrantPage, memory_limit) == 128);
static_assert(offsetof(GrantPage, stock_first) == 152);
static_assert(offsetof(GrantPage, compute_ceiling) == 168);
static_assert(offsetof(GrantPage, lease) == 192);

/// The account entry of one library instance in one process. The tenant can write false values in all of it: the
/// arbiter reads each word once, clamps it, and checks the sum against NVML's figures.
struct AccountEntry {
  Cell<std::uint64_t> used_bytes;      // announced explicit allocations and contexts of this process
  Cell<std::uint64_t> busy_ns;         // GPU time that this process measured for itself; only grows
  Cell<std::uint64_t> inflight_ns;     // estimated GPU time in flight now
  Cell<std::uint64_t> anchor_ns;       // when an operation last completed, or work began with nothing in
                                       // flight: all work is expected to end at anchor + inflight
  Cell<std::uint32_t> want;            // not 0: a launch waits for a lease
  Cell<std::uint32_t> busy;            // not 0: work is in flight
  Cell<std::uint32_t> max_op_us;       // the longest single operation seen
  Cell<std::uint32_t> instance;        // the library instance that holds the entry (from the Welcome); 0 = free. In a
                                       // stock entry: the index of its process's account entry + 1
  Cell<std::uint64_t> context_bytes;   // the part of used_bytes that contexts take
  Cell<std::uint64_t> host_pid;        // the PID of the process: shown in the slice's process lists
};
static_assert(sizeof(AccountEntry) == 64);

/// Written by the slice's processes; a memfd sealed against shrinking, growing and more seals.
struct AccountPage {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t reserved0;
  std::uint8_t reserved1[56];
  Cell<std::uint32_t> doorbell;        // client → arbiter futex word: incremented, with a wake, on a want or busy edge
  Cell<std::uint32_t> high_entry;       // a copy of the grant page's word; only older arbiters read it
  Cell<std::uint32_t> stock_wanted;    // not 0: a process asks the arbiter for stock entries
  std::uint32_t reserved2;
  // What the slice's processes counted, for metrics only. They grow; libraries of earlier releases leave them at 0.
  Cell<std::uint64_t> gated_launches;    // launches that waited for a lease
  Cell<std::uint64_t> refused_requests;  // requests for memory that the slice's limit refused
  Cell<std::uint64_t> refused_bytes;     // the bytes of these requests
  std::uint8_t padding[4096 - 104];
  AccountEntry entries[kAccountEntries];
};
static_assert(sizeof(AccountPage) == kAccountPageBytes);
static_assert(offsetof(AccountPage, entries) == 4096);

}  // namespace carve::abi
