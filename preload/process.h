#pragma once

#include <cstdint>

#include "abi/hello.h"
#include "abi/page.h"
#include "preload/driver_abi.h"
#include "preload/lock.h"

// What this process knows about its slice: the pages of its cards, and whether work is metered. The kernel zeroes this
// memory in a forked child (MADV_WIPEONFORK). The child therefore starts as a process that never connected, regardless
// of what the parent's other threads were doing, and connects for itself.
namespace carve::preload {

inline constexpr std::uint32_t kMaxCards = abi::kMaxCardsPerSlice;
inline constexpr std::uint32_t kMaxOrdinals = 64;
inline constexpr std::uint64_t kUnlimitedBytes = ~std::uint64_t{0};

/// One card of the slice. The pages stay mapped until the process ends.
struct Card {
  const abi::GrantPage* grant;
  abi::AccountPage* account;
  abi::AccountEntry* entry;  // this process' own account entry
  void* lifeline;          // only for the slice's first card: a forked child inherits it (abi/hello.h)
};

/// What a hook must do. It is one word, so that the launch path loads one word.
enum class Duty : std::uint32_t {
  kUnknown = 0,  // not connected: connect first
  kNone = 1,     // an unlimited slice: call the driver directly
  kMeter = 2,    // charge memory, pass launches through the gate
};

struct alignas(4096) Process {
  Duty duty;
  std::uint32_t card_count;
  Card cards[kMaxCards];
  std::int8_t card_of_ordinal[kMaxOrdinals];  // CUdevice → index + 1 in `cards`, 0: not a card of the slice
  CUresult refusal;  // the answer of hooks while `duty` is kUnknown

  Lock connecting;
  std::uint64_t failed_at_ns;  // when the last attempt failed, 0 if none did
  std::uint32_t wiped;         // 1 after the request to the kernel to zero all state in children
  int resolve_state;           // the state of resolve_driver (driver.cc)
};
extern Process process;

/// What the hook must do for this call. The first call of a process or of a forked child connects, which may take up to
/// 30 s (`connect_to_slices`); later calls cost one load. kUnknown: there is no slice or no arbiter, or the driver is
/// not initialised; the hook must return `refusal()`.
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

/// Call it after all other fields are set.
inline void publish_duty(Duty found) { __atomic_store(&process.duty, &found, __ATOMIC_RELEASE); }
inline CUresult refusal() { return __atomic_load_n(&process.refusal, __ATOMIC_RELAXED); }

/// The card of a CUdevice, matched by UUID; null when it is not a card of the slice.
Card* card_of_device(CUdevice device);
/// The card of the calling thread's current context; null when there is no context, or its card is not in the slice.
/// Cost: one driver call.
Card* current_card();

/// Tells the kernel to zero `size` bytes of page-aligned state in every child.
void wipe_on_fork(void* state, std::size_t size);

/// Calls `wipe_on_fork` for all state of this object, once, before the state is first written.
void prepare_for_fork();

/// Connects to every slice of this container and maps its pages. Repeats that for up to 5 s without an arbiter, and for
/// up to 30 s while an arbiter does not answer, because most programs never call cuInit again after an error. After one
/// long wait without success, each later call tries once, for a second at most: a program that continues in spite of
/// the error must not hang at every call. False: a slice cannot be reached, or the container has none.
bool connect_to_slices(Process& state, abi::LibraryKind kind);

/// True for an unlimited slice. It has the whole of each card: hooks charge no memory and gate no launch.
bool unlimited(const Process& state);

/// The current time of a monotonic clock, in ns.
std::uint64_t monotonic_ns();

}  // namespace carve::preload
