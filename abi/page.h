#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/cell.h"

// The two shared-memory pages of a slice: what the arbiter says (grant) and what the processes of the
// slice say (account). Plain data, versioned, sizes and offsets asserted. One pair per slice, that is per
// (owner, part) and card. Freestanding.
namespace carve::abi {

inline constexpr std::uint32_t kGrantMagic = 0x47564143;    // "CAVG"
inline constexpr std::uint32_t kAccountMagic = 0x41564143;  // "CAVA"

// A newer page only ever uses bytes that were reserved in the one before, where zero means "as before". So library N
// reads pages N-1 (its node's arbiter is not upgraded yet) and library N-1, in a container that runs on, reads pages N.
#ifndef CARVE_PAGE_ABI
#define CARVE_PAGE_ABI 1  // tests/next builds the next one, to try what an upgrade does
#endif
inline constexpr std::uint16_t kPageAbi = CARVE_PAGE_ABI;                         // what this build writes
inline constexpr std::uint16_t kPageAbiMin = kPageAbi > 1 ? kPageAbi - 1 : 1;     // the oldest its clients read
inline constexpr std::uint16_t kClientAbiMin = kPageAbi > 1 ? kPageAbi - 1 : 1;   // the oldest client of what it writes

inline constexpr std::size_t kGrantPageBytes = 4096;
inline constexpr std::size_t kAccountSlots = 1024;
inline constexpr std::size_t kAccountPageBytes = 4096 + kAccountSlots * 64;

// Beyond the end of the slice's first account page each library maps one page without access, at an offset that
// says its slot. A forked child inherits it, and with it the driver's descriptors, which keep its parent's memory when
// that dies: as long as the kernel shows this mapping anywhere, the slot of the dead counts.
inline constexpr std::size_t kLifelineBytes = 4096;
constexpr std::size_t lifeline_offset(std::size_t slot) {
  return (kAccountPageBytes + kLifelineBytes - 1) / kLifelineBytes * kLifelineBytes + slot * kLifelineBytes;
}

inline constexpr std::uint64_t kHeartbeatPeriodNs = 20'000'000;    // how often the arbiter beats
inline constexpr std::uint64_t kHeartbeatMissedNs = 200'000'000;   // silence after which clients go on alone

/// What a launch may do now. Lowest two bits of GrantPage::lease.
enum class LeaseMode : std::uint32_t {
  kBlocked = 0,  // wait on the futex
  kSolo = 1,     // nobody else wants the card: no time limit, in-flight work bounded to solo_credit_us
  kLease = 2,    // until end_ns, in-flight work bounded to credit_us
};

enum class ShareClass : std::uint32_t { kFixed = 0, kBurst = 1, kBestEffort = 2 };
enum class PriorityClass : std::uint32_t { kOnline = 0, kStandard = 1, kOffline = 2 };

/// Which clock `*_ns` fields of both pages are in.
enum class PageClock : std::uint32_t {
  kTsc = 0,        // ns = (rdtsc * tsc_multiplier) >> tsc_shift, 128-bit product
  kMonotonic = 1,  // CLOCK_MONOTONIC through the vDSO (TSC not constant)
};

/// Written by the arbiter alone; the tenant's descriptor and mapping are read-only.
struct GrantPage {
  // Constant once `magic` stands there.
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t reserved0;
  char card_uuid[48];              // NUL-terminated, "GPU-…": what cuDeviceGetUuid and NVML say
  ShareClass share_class;
  PriorityClass priority_class;
  std::uint64_t page_generation;   // unique per slice made on this boot
  std::uint64_t context_bytes;     // charged in advance for each context, by card model
  PageClock clock;
  std::uint32_t tsc_shift;
  std::uint64_t tsc_multiplier;
  std::uint64_t account_inode;     // of the account page that belongs to this one, for a restarted arbiter
  std::uint8_t reserved1[24];

  // Changed by the arbiter at the agent's word.
  Cell<std::uint64_t> memory_limit;    // bytes
  Cell<std::uint64_t> overhead_bytes;  // what the driver took beyond what was announced, from NVML each second
  Cell<std::uint32_t> compute_limit;   // 1/100 of the card; the cap of `fixed`, the guarantee of `burst`
  Cell<std::uint32_t> revoked;         // not 0: the slice is gone, refuse everything
  std::uint8_t reserved2[40];

  // Changed by the arbiter all the time: one cache line that clients poll.
  Cell<std::uint32_t> lease;           // LeaseMode in the low two bits, epoch above; also the futex word
  Cell<std::uint32_t> credit_us;       // estimated GPU time that may be in flight
  Cell<std::uint64_t> end_ns;          // end of a kLease
  Cell<std::uint64_t> heartbeat_ns;    // when the arbiter last looked
  Cell<std::uint32_t> rate_ppm;        // last granted rate, millionths of the card: the local bucket's rate
                                       // when the arbiter is silent
  Cell<std::uint32_t> high_slot;       // highest slot handed out + 1: bounds every sum over the account page
  std::uint8_t reserved4[32];

  std::uint8_t padding[kGrantPageBytes - 256];
};
static_assert(sizeof(GrantPage) == kGrantPageBytes);
static_assert(offsetof(GrantPage, memory_limit) == 128);
static_assert(offsetof(GrantPage, lease) == 192);

/// One process (one library instance in it). All of it may be lied in by the tenant: the arbiter reads each
/// word once, clamps it, and checks the sum against NVML's truth.
struct AccountSlot {
  Cell<std::uint64_t> used_bytes;      // announced explicit allocations and contexts of this process
  Cell<std::uint64_t> busy_ns;         // GPU time this process measured for itself, ever growing
  Cell<std::uint64_t> inflight_ns;     // estimated GPU time in flight now
  Cell<std::uint64_t> anchor_ns;       // when something last completed, or work began with nothing in flight:
                                       // anchor + inflight is when all of it is expected to be done
  Cell<std::uint32_t> want;            // not 0: a launch waits for a lease
  Cell<std::uint32_t> busy;            // not 0: work is in flight
  Cell<std::uint32_t> max_op_us;       // longest single operation seen
  Cell<std::uint32_t> instance;        // which library instance holds the slot (given in the welcome), 0 = free
  Cell<std::uint64_t> context_bytes;   // the part of used_bytes that stands for contexts
  Cell<std::uint64_t> host_pid;        // whose slot it is: what the process lists of the slice show
};
static_assert(sizeof(AccountSlot) == 64);

/// Written by the slice's processes; a memfd sealed against shrinking, growing and more seals.
struct AccountPage {
  std::uint32_t magic;
  std::uint16_t abi;
  std::uint16_t reserved0;
  std::uint8_t reserved1[56];
  Cell<std::uint32_t> doorbell;        // client → arbiter futex word: bump and wake on a want or busy edge
  Cell<std::uint32_t> high_slot;       // a copy of the grant page's, which arbiters once read
  std::uint8_t padding[4096 - 72];
  AccountSlot slots[kAccountSlots];
};
static_assert(sizeof(AccountPage) == kAccountPageBytes);
static_assert(offsetof(AccountPage, slots) == 4096);

}  // namespace carve::abi
