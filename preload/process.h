#pragma once

#include <cstdint>

#include "abi/hello.h"
#include "abi/page.h"
#include "preload/driver_abi.h"
#include "preload/lock.h"

// What this process knows of its slice: the pages of its cards, and whether work is metered. All of it lies in
// memory that the kernel empties in a forked child (MADV_WIPEONFORK), so a child starts as a process that never
// connected, whatever its parent's other threads were doing, and connects for itself.
namespace carve::preload {

inline constexpr std::uint32_t kMaxCards = abi::kMaxCardsPerSlice;
inline constexpr std::uint32_t kMaxOrdinals = 64;
inline constexpr std::uint64_t kUnlimitedBytes = ~std::uint64_t{0};

/// One card of the slice. The pages stay mapped until the process ends.
struct Card {
  const abi::GrantPage* grant;
  abi::AccountPage* account;
  abi::AccountSlot* slot;  // this process' own line in the account page
  void* lifeline;          // of the slice's first card: what a forked child inherits (abi/page.h)
};

/// What a hook has to do; kept in one word so that the launch path loads one word.
enum class Duty : std::uint32_t {
  kUnknown = 0,  // not connected: connect first
  kNone = 1,     // an unlimited slice: straight to the driver
  kMeter = 2,    // charge memory, pass launches through the gate
};

struct alignas(4096) Process {
  Duty duty;
  std::uint32_t card_count;
  Card cards[kMaxCards];
  std::int8_t card_of_ordinal[kMaxOrdinals];  // CUdevice → index + 1 in `cards`, 0: not ours
  CUresult refusal;  // what to answer while `duty` is kUnknown

  Lock connecting;
  std::uint64_t failed_at_ns;  // when the last attempt gave up, 0 if none did
  std::uint32_t wiped;         // 1 once the kernel was told to empty all of this in children
  int resolve_state;           // of driver.cc
};
extern Process process;

/// What to do for a call now. Connects at the first call of a process or of a forked child, which may take up
/// to 5 s when no arbiter answers; afterwards one load. kUnknown: there is no slice or no arbiter, or the driver
/// is not initialised; answer `refusal()`.
Duty connect_slowly();
inline Duty known_duty() {
  Duty now;
  __atomic_load(&process.duty, &now, __ATOMIC_ACQUIRE);
  return now;
}
inline Duty duty() {
  const Duty now = known_duty();
  return __builtin_expect(now != Duty::kUnknown, 1) ? now : connect_slowly();
}

/// Once everything else is in place.
inline void publish_duty(Duty found) { __atomic_store(&process.duty, &found, __ATOMIC_RELEASE); }
inline CUresult refusal() { return __atomic_load_n(&process.refusal, __ATOMIC_RELAXED); }

/// The card a CUdevice stands for, by UUID; null when it is none of the slice's.
Card* card_of_device(CUdevice device);
/// The card of the calling thread's current context; null when there is none. Cost: nothing with one card.
Card* current_card();

/// Tells the kernel to empty `size` bytes of page-aligned state in every child.
void wipe_on_fork(void* state, std::size_t size);

/// Does so for all state of this object, once, before anything is put there.
void prepare_for_fork();

/// Connects to every slice of this container and maps its pages (see abi/hello.h); `cards` is filled in order.
/// Leaves no descriptor open and touches nothing else of the process. False when nothing answered in one pass.
bool map_slices(Process& state, abi::LibraryKind kind);

/// The same, again and again for up to 5 s. After one long wait in vain later calls try once each: a program that
/// goes on in spite of the error must not hang at every call.
bool map_with_patience(Process& state, abi::LibraryKind kind);

/// An unlimited slice has all of every card: nothing to charge, nothing to gate.
bool unlimited(const Process& state);

/// Now, in ns, of a clock that never goes back.
std::uint64_t monotonic_ns();

}  // namespace carve::preload
