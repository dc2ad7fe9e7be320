#pragma once

#include <cstdint>

#include "lease/gate.h"
#include "preload/driver_abi.h"
#include "preload/process.h"
#include "preload/thread_pointer.h"

// The gate for all work that takes time on a card, and the measurement of that time. lease/gate decides. This part
// waits, records markers in the program's streams and runs the one helper thread that polls them. The initial state,
// also in a child after fork, is all zero.
namespace carve::preload {

inline constexpr std::uint32_t kLanes = 64;         // threads share lanes when there are more threads
inline constexpr std::uint32_t kMaxPending = 256;   // segments with an end marker that has not passed
inline constexpr std::uint32_t kMaxContexts = 8;    // contexts with markers, per card
inline constexpr std::uint32_t kSpareEvents = 64;

/// A thread's lane, with the begin marker and the context of its open segment.
struct alignas(64) LaneHolder {
  std::uintptr_t thread;  // thread pointer of its first user, 0: free
  Lock lock;
  lease::Lane lane;
  CUevent begin;        // the open segment's begin marker; null: it could not be recorded
  CUcontext context;
};

/// A closed segment that the card has not finished.
struct Pending {
  lease::Segment segment;
  CUevent begin;  // null: it could not be recorded
  CUevent end;    // null: its stream captures; the helper records it when the capture has ended
  CUcontext context;
};

/// The markers of one context: spare events, and the reference event from which its times are counted.
struct MarkerSource {
  CUcontext context;
  CUevent reference;
  std::uint64_t reference_ns;
  std::uint32_t spare_count;
  CUevent spare[kSpareEvents];
};

struct CardMeter {
  alignas(lease::Gate) unsigned char gate_bytes[sizeof(lease::Gate)];  // all zero until attached
  LaneHolder lanes[kLanes];
  Lock queue_lock;              // also for Gate::completed
  std::uint32_t pending_count;  // changed under queue_lock
  std::uint32_t completions;    // futex word: incremented when a marker has passed
  std::uint64_t unmarked_ns GUARDED_BY(queue_lock);           // estimate for work without an end marker …
  std::uint64_t unmarked_until_ns GUARDED_BY(queue_lock);     // … which is in flight until then …
  std::uint64_t unmarked_expected_ns GUARDED_BY(queue_lock);  // … and then counts as this
  MarkerSource sources[kMaxContexts] GUARDED_BY(queue_lock);
  Pending pending[kMaxPending] GUARDED_BY(queue_lock);

  lease::Gate& gate() { return *reinterpret_cast<lease::Gate*>(gate_bytes); }
};

struct alignas(4096) Meter {
  std::uint32_t captures;    // the number of streams that capture now
  std::uint32_t helper;      // not 0: the helper thread exists
  std::uint32_t parked;      // not 0: the helper waits for `kick`
  std::uint32_t kick;        // futex word
  std::uint32_t stopping;    // not 0: the process ends, and the helper must not call the driver
  CardMeter cards[kMaxCards];
};
extern Meter meter;

/// The state between the gate's decision and the end of the driver call. The lane stays locked for that time.
struct Ticket {
  CardMeter* card;   // null: not metered (the stream captures, or there is no card), nothing to end
  LaneHolder* holder;
  std::uint64_t key;
  std::uint64_t estimate_ns;
};

/// Returns the lane of a thread when another thread has its home lane: the nearest lane that is its own or free, or the
/// home lane when there is none.
LaneHolder* find_lane(CardMeter& card, std::uintptr_t thread);

/// Connects each card's gate with the card's pages.
void attach_gates();

/// Waits until the slice may send this work to its card. `key` identifies the work's duration. If the result is not
/// CUDA_SUCCESS, the caller must not launch the work. Never waits while the stream captures.
CUresult begin_work_slowly(CardMeter* card, LaneHolder* holder, std::uint64_t key, CUstream stream, bool per_thread,
                           Ticket& ticket);
/// Call it after the driver's call. Confirms the announced work, or withdraws it when the driver refused the call.
void end_work_slowly(Ticket& ticket, CUresult result);

inline LaneHolder* own_lane(CardMeter& card) {
  const std::uintptr_t self = thread_pointer();
  LaneHolder& home = card.lanes[(self * 0x9E3779B97F4A7C15ULL) >> 58];
  return __builtin_expect(__atomic_load_n(&home.thread, __ATOMIC_RELAXED) == self, 1) ? &home
                                                                                     : find_lane(card, self);
}
static_assert(kLanes == 1U << (64 - 58));

/// Not analysed, like the functions that it calls and end_work: the lane stays locked until end_work.
inline CUresult begin_work(std::uint64_t key, CUstream stream, bool per_thread,
                           Ticket& ticket) NO_THREAD_SAFETY_ANALYSIS {
  if (__builtin_expect(process.card_count != 1 || __atomic_load_n(&meter.captures, __ATOMIC_RELAXED) != 0, 0)) {
    return begin_work_slowly(nullptr, nullptr, key, stream, per_thread, ticket);
  }
  CardMeter& card = meter.cards[0];
  LaneHolder& holder = *own_lane(card);
  holder.lock.acquire();
  if (__builtin_expect(card.gate().enter_fast(holder.lane, key, reinterpret_cast<std::uint64_t>(stream),
                                              &ticket.estimate_ns), 1)) {
    ticket.card = &card;
    ticket.holder = &holder;
    ticket.key = key;
    return CUDA_SUCCESS;
  }
  return begin_work_slowly(&card, &holder, key, stream, per_thread, ticket);
}

inline void end_work(Ticket& ticket, CUresult result) NO_THREAD_SAFETY_ANALYSIS {
  if (__builtin_expect(ticket.card != nullptr && result == CUDA_SUCCESS &&
                       lease::Gate::leave_fast(ticket.holder->lane, ticket.key, ticket.estimate_ns), 1)) {
    ticket.holder->lock.release();
    return;
  }
  end_work_slowly(ticket, result);
}

/// The key of the duration of a graph's launch.
inline std::uint64_t graph_key(CUgraphExec graph) { return reinterpret_cast<std::uint64_t>(graph) * 64; }
/// Forgets the duration: the key now identifies a different function or graph.
void forget_duration(std::uint64_t key);

/// True when work in this stream becomes part of a graph instead of going to the card.
bool capturing(CUstream stream, bool per_thread);
void capture_began();
void capture_ended();

/// Call it before a capture begins. Closes the open segments of all streams, because a stream that joins the capture
/// accepts no marker.
void before_capture();

/// Call them around a call in which the thread waits for the card. `before_wait` closes the thread's segment, so that
/// the end of its work is seen when it happens; it does nothing while the slice is alone on the card. `after_wait`
/// polls the markers.
void before_wait();
void after_wait();

/// Call it before the stream is destroyed. Closes the stream's open segments, and ends the wait of segments that wait
/// for its capture to end.
void before_stream_ends(CUstream stream);
/// Call it before the context is destroyed, with all its streams and events.
void forget_work(CUcontext context);

// Shared by meter.cc and markers.cc.
/// Closes the lane's segment regardless of its age, under the lane's lock. True: the caller must record the end marker
/// for `out`.
bool close_now(CardMeter& card, LaneHolder& holder, lease::Segment* out);
std::uint64_t page_clock_ns(const Card& card);
void record_begin(CardMeter& card, LaneHolder& holder, CUstream stream);
/// Records the end marker and queues the segment. While the segment's stream captures, the marker waits and the segment
/// stays in flight. When no marker can ever show its end, the segment is in flight for its expected time; for unknown
/// work, this is the longest time that is expected of any work.
void record_end(CardMeter& card, LaneHolder& holder, const lease::Segment& segment);
/// Removes the segments that have passed from the queue. True while segments are left. `helper`: the call may change
/// the thread's current context.
bool poll_markers(CardMeter& card, bool helper = false);
/// Ends the wait of segments of this stream for the end of a capture; they get no end marker. The caller must hold no
/// lock.
void give_up_markers(CardMeter& card, CUstream stream);
void start_helper();
void kick_helper();
void ring_arbiter(const Card& card);
std::uint32_t card_index(const CardMeter& card);

}  // namespace carve::preload
