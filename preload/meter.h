#pragma once

#include <cstdint>

#include "lease/gate.h"
#include "preload/driver_abi.h"
#include "preload/process.h"

// The gate in front of everything that takes time on a card, and what it learns about that time. The decisions
// are lease/gate's; here are the waiting, the markers in the program's streams and the one helper thread that
// looks after them. Zero is the state at the start, and in a child after fork.
namespace carve::preload {

inline constexpr std::uint32_t kLanes = 64;         // threads share one when there are more
inline constexpr std::uint32_t kMaxPending = 256;   // segments whose end marker has not passed
inline constexpr std::uint32_t kMaxContexts = 8;    // with markers, per card
inline constexpr std::uint32_t kSpareEvents = 64;

/// A thread's lane, and where its open segment is.
struct alignas(64) LaneSlot {
  std::uintptr_t thread;  // thread pointer of its first user, 0: free
  Lock lock;
  lease::Lane lane;
  CUevent begin;        // the open segment's begin marker; null: could not be recorded
  CUcontext context;
};

/// A closed segment on its way through the card.
struct Pending {
  lease::Segment segment;
  CUevent begin;  // null: could not be recorded
  CUevent end;    // null: its stream captures; to be recorded when it does so no more
  CUcontext context;
};

/// Markers of one context: the events to use again, and the one that its times are counted from.
struct MarkerSource {
  CUcontext context;
  CUevent reference;
  std::uint64_t reference_ns;
  std::uint32_t spare_count;
  CUevent spare[kSpareEvents];
};

struct CardMeter {
  alignas(lease::Gate) unsigned char gate_bytes[sizeof(lease::Gate)];  // all zero until attached
  LaneSlot lanes[kLanes];
  Lock queue_lock;              // for all below, and for Gate::completed
  std::uint32_t pending_count;
  std::uint32_t completions;    // futex word: bumped when a marker has passed
  std::uint64_t unmarked_ns;    // estimated for work whose end no marker will show: in flight until …
  std::uint64_t unmarked_until_ns;
  std::uint64_t unmarked_expected_ns;  // what it counts as then
  MarkerSource sources[kMaxContexts];
  Pending pending[kMaxPending];

  lease::Gate& gate() { return *reinterpret_cast<lease::Gate*>(gate_bytes); }
};

struct alignas(4096) Meter {
  std::uint32_t captures;    // streams that are capturing now
  std::uint32_t helper;      // not 0: the helper thread exists
  std::uint32_t parked;      // it waits for `kick`
  std::uint32_t kick;        // futex word
  std::uint32_t stopping;    // the process ends: no more driver calls from the helper
  CardMeter cards[kMaxCards];
};
extern Meter meter;

/// Between asking and launching; the lane stays locked meanwhile.
struct Ticket {
  CardMeter* card;   // null: not metered (capturing, or no card), nothing to end
  LaneSlot* slot;
  std::uint64_t key;
  std::uint64_t estimate_ns;
};

/// For a thread whose home lane is another one's: the nearest that is its own or free; its home when there is none.
LaneSlot* find_lane(CardMeter& card, std::uintptr_t thread);

/// Connects each card's gate with its pages.
void attach_gates();

/// Waits until the slice may put this work on its card. `key` is what its duration is remembered under. Not
/// CUDA_SUCCESS: the work must not be launched. Never waits while the stream is capturing.
CUresult begin_work_slowly(CardMeter* card, LaneSlot* slot, std::uint64_t key, CUstream stream, bool per_thread,
                           Ticket& ticket);
/// After the driver's call: what was announced stands, or is withdrawn when the driver refused it.
void end_work_slowly(Ticket& ticket, CUresult result);

/// What the calling thread is known by: TLS of our own would keep the library from loading under musl, and costs more.
inline std::uintptr_t thread_pointer() {
#if defined(__x86_64__)
  std::uintptr_t self;  // not every clang has the builtin here
  __asm__("movq %%fs:0, %0" : "=r"(self));
  return self;
#else
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
#endif
}

inline LaneSlot* own_lane(CardMeter& card) {
  const std::uintptr_t self = thread_pointer();
  LaneSlot& home = card.lanes[(self * 0x9E3779B97F4A7C15ULL) >> 58];
  return __builtin_expect(__atomic_load_n(&home.thread, __ATOMIC_RELAXED) == self, 1) ? &home
                                                                                     : find_lane(card, self);
}
static_assert(kLanes == 1U << (64 - 58));

inline CUresult begin_work(std::uint64_t key, CUstream stream, bool per_thread, Ticket& ticket) {
  if (__builtin_expect(process.card_count != 1 || __atomic_load_n(&meter.captures, __ATOMIC_RELAXED) != 0, 0)) {
    return begin_work_slowly(nullptr, nullptr, key, stream, per_thread, ticket);
  }
  CardMeter& card = meter.cards[0];
  LaneSlot& slot = *own_lane(card);
  slot.lock.acquire();
  if (__builtin_expect(card.gate().enter_fast(slot.lane, key, reinterpret_cast<std::uint64_t>(stream),
                                              &ticket.estimate_ns), 1)) {
    ticket.card = &card;
    ticket.slot = &slot;
    ticket.key = key;
    return CUDA_SUCCESS;
  }
  return begin_work_slowly(&card, &slot, key, stream, per_thread, ticket);
}

inline void end_work(Ticket& ticket, CUresult result) {
  if (__builtin_expect(ticket.card != nullptr && result == CUDA_SUCCESS &&
                       lease::Gate::leave_fast(ticket.slot->lane, ticket.key, ticket.estimate_ns), 1)) {
    ticket.slot->lock.release();
    return;
  }
  end_work_slowly(ticket, result);
}

/// What the duration of a graph's launch is remembered under.
inline std::uint64_t graph_key(CUgraphExec graph) { return reinterpret_cast<std::uint64_t>(graph) * 64; }
/// The function or graph behind this key is another one now.
void forget_duration(std::uint64_t key);

/// True when work put there becomes part of a graph instead of going to the card.
bool capturing(CUstream stream, bool per_thread);
void capture_began();
void capture_ended();

/// Before a capture begins: what is open on any stream ends, as a stream that joins the capture takes no marker.
void before_capture();

/// The calling thread is about to wait for the card: closes its segment, so that the end of its work is seen when
/// it happens; after the wait looks at the markers. Nothing when alone on the card.
void before_wait();
void after_wait();

/// The stream is about to go: its open segments end here, and what waits for its capture to end waits no more.
void before_stream_ends(CUstream stream);
/// The context is about to go, with all its streams and events.
void forget_work(CUcontext context);

// Between meter.cc and markers.cc.
/// Closes the lane's segment, whatever its age; under its lock. True: record the end marker for `out`.
bool close_now(CardMeter& card, LaneSlot& slot, lease::Segment* out);
std::uint64_t page_clock_ns(const Card& card);
void record_begin(CardMeter& card, LaneSlot& slot, CUstream stream);
/// Records the end marker and queues the segment. While its stream captures the marker has to wait, and the segment is
/// in flight. Where no marker will ever show its end it is in flight for as long as was expected of it, or for what is
/// expected of unknown work at the most.
void record_end(CardMeter& card, LaneSlot& slot, const lease::Segment& segment);
/// Takes from the queue what has passed. True while something is left. `helper`: contexts may be changed.
bool poll_markers(CardMeter& card, bool helper = false);
/// Segments of this stream whose end marker waits for a capture to end get none. Under no lock.
void give_up_markers(CardMeter& card, CUstream stream);
void start_helper();
void kick_helper();
void ring_arbiter(const Card& card);
std::uint32_t card_index(const CardMeter& card);

}  // namespace carve::preload
