#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "preload/driver.h"
#include "preload/futex.h"
#include "preload/meter.h"

// Markers are events that the library records in the program's own streams before and after about one millisecond of
// work. The helper thread polls them. There is at most one helper thread; the first gated launch creates it.
namespace carve::preload {

namespace {

constexpr std::uint64_t kLookEveryNs = 200'000;         // under a lease
constexpr std::uint64_t kLookAtEndNs = 50'000;          // when another slice may wait for this work to end
constexpr std::uint64_t kNearEndNs = 400'000;
constexpr std::uint64_t kLookEverySoloNs = 2'000'000;
constexpr std::uint64_t kNewReferenceNs = 2'000'000'000;  // event times are floats, so the reference must be recent
constexpr std::size_t kHelperStack = 256U << 10;

abi::LeaseMode mode_of(const Card& card) {
  return static_cast<abi::LeaseMode>(card.grant->lease.load_relaxed() & 3U);
}

/// The time until the helper's next poll. It is short when the slice has no lease, or when the lease ends soon.
std::uint64_t look_away_ns(const Card& card) {
  switch (mode_of(card)) {
    case abi::LeaseMode::kSolo:
      return kLookEverySoloNs;
    case abi::LeaseMode::kLease:
      return page_clock_ns(card) + kNearEndNs < card.grant->end_ns.load_relaxed() ? kLookEveryNs : kLookAtEndNs;
    default:
      return kLookAtEndNs;
  }
}

/// Null when more than kMaxContexts contexts have markers.
MarkerSource* source_of(CardMeter& card, CUcontext context) REQUIRES(card.queue_lock) {
  MarkerSource* empty = nullptr;
  for (MarkerSource& source : card.sources) {
    if (source.context == context) {
      return &source;
    }
    if (source.context == nullptr && empty == nullptr) {
      empty = &source;
    }
  }
  if (empty != nullptr) {
    empty->context = context;
  }
  return empty;
}

/// Takes a spare event of `context` or creates one. `context` must be the current context.
CUevent take_event(CardMeter& card, CUcontext context) REQUIRES(card.queue_lock) {
  MarkerSource* source = source_of(card, context);
  if (source != nullptr && source->spare_count != 0) {
    return source->spare[--source->spare_count];
  }
  CUevent event = nullptr;
  return driver.cuEventCreate(&event, 0) == CUDA_SUCCESS ? event : nullptr;
}

/// Keeps the event as a spare or destroys it.
void return_event(CardMeter& card, CUcontext context, CUevent event) REQUIRES(card.queue_lock) {
  if (event == nullptr) {
    return;
  }
  MarkerSource* source = source_of(card, context);
  if (source != nullptr && source->spare_count < kSpareEvents) {
    source->spare[source->spare_count++] = event;
  } else {
    driver.cuEventDestroy_v2(event);
  }
}

std::uint64_t elapsed_ns(CUevent from, CUevent to) {
  float milliseconds = 0;
  return driver.cuEventElapsedTime(&milliseconds, from, to) == CUDA_SUCCESS && milliseconds > 0
             ? static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6)
             : 0;
}

/// While any stream captures, the program's capture mode may forbid harmless calls on this thread. This class sets the
/// thread's mode to relaxed for its scope.
class WhileCapturing {
 public:
  WhileCapturing() : active_(__atomic_load_n(&meter.captures, __ATOMIC_ACQUIRE) != 0) {
    if (active_) {
      driver.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  WhileCapturing(const WhileCapturing&) = delete;
  WhileCapturing& operator=(const WhileCapturing&) = delete;
  ~WhileCapturing() {
    if (active_) {
      driver.cuThreadExchangeStreamCaptureMode(&mode_);
    }
  }
  [[nodiscard]] bool active() const { return active_; }

 private:
  bool active_;
  int mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Records an event in the stream and returns it; null: no event can be recorded. `*context` must be the current
/// context. If the stream has a different context, the event is created there and `*context` is set to it.
CUevent record_marker(CardMeter& card, CUcontext* context, CUstream stream) REQUIRES(card.queue_lock) {
  CUevent event = take_event(card, *context);
  if (event != nullptr && driver.cuEventRecord(event, stream) == CUDA_SUCCESS) {
    return event;
  }
  return_event(card, *context, event);
  CUcontext owner = nullptr;
  if (stream == nullptr || driver.cuStreamGetCtx(stream, &owner) != CUDA_SUCCESS || owner == *context ||
      driver.cuCtxSetCurrent(owner) != CUDA_SUCCESS) {
    return nullptr;
  }
  event = take_event(card, owner);
  if (event == nullptr || driver.cuEventRecord(event, stream) != CUDA_SUCCESS) {
    return_event(card, owner, event);
    event = nullptr;
  }
  driver.cuCtxSetCurrent(*context);
  *context = event != nullptr ? owner : *context;
  return event;
}

/// For a segment without an end marker: it counts as in flight for its expected time, or, for unknown work, for the
/// longest time that is expected of any work.
void count_by_clock(CardMeter& card, const lease::Segment& segment, std::uint64_t now) REQUIRES(card.queue_lock) {
  const std::uint64_t expected = card.gate().longest_expected_ns(segment);
  const std::uint64_t from = card.unmarked_until_ns > now ? card.unmarked_until_ns : now;
  const std::uint64_t all = card.gate().expected_end_ns(now);
  card.unmarked_until_ns = from + expected > all ? from + expected : all;
  card.unmarked_expected_ns += expected;
  __atomic_store_n(&card.unmarked_ns, card.unmarked_ns + segment.estimate_ns, __ATOMIC_RELEASE);
}

/// Ends the work that is counted by the clock when its expected time has passed. True: ring the arbiter.
bool end_by_clock(CardMeter& card, std::uint64_t now) REQUIRES(card.queue_lock) {
  if (card.unmarked_ns == 0 || now < card.unmarked_until_ns) {
    return false;
  }
  lease::Segment all;
  all.estimate_ns = card.unmarked_ns;
  const std::uint64_t expected = card.unmarked_expected_ns;
  card.unmarked_expected_ns = 0;
  __atomic_store_n(&card.unmarked_ns, 0, __ATOMIC_RELEASE);
  return card.gate().abandoned(all, expected, now);
}

/// Reports to the gate when the segment ran, on a clock that is common to all segments of the context. The begin of the
/// first segment is the reference of that clock. True: ring the arbiter.
bool report(CardMeter& card, const Pending& done, std::uint64_t now) REQUIRES(card.queue_lock) {
  MarkerSource* source = source_of(card, done.context);
  if (source == nullptr || done.begin == nullptr) {
    // Either there is no begin marker, so it is only known that the segment ran after the previous work; or there are
    // more contexts than kMaxContexts, so this context has no common clock.
    const std::uint64_t took = done.begin != nullptr ? elapsed_ns(done.begin, done.end) : 0;
    const bool ring = done.begin != nullptr ? card.gate().completed(done.segment, now - took, now, now)
                                            : card.gate().ended(done.segment, now);
    return_event(card, done.context, done.begin);
    return_event(card, done.context, done.end);
    return ring;
  }
  if (source->reference == nullptr) {
    source->reference = done.begin;
    source->reference_ns = now - elapsed_ns(done.begin, done.end);
  }
  const std::uint64_t begin =
      source->reference_ns + (source->reference == done.begin ? 0 : elapsed_ns(source->reference, done.begin));
  const std::uint64_t end = source->reference_ns + elapsed_ns(source->reference, done.end);
  const bool ring = card.gate().completed(done.segment, begin, end, now);
  CUevent spare_begin = source->reference == done.begin ? nullptr : done.begin;
  CUevent spare_end = done.end;
  if (end - source->reference_ns > kNewReferenceNs) {
    return_event(card, done.context, source->reference);
    source->reference = done.end;
    source->reference_ns = end;
    spare_end = nullptr;
  }
  return_event(card, done.context, spare_begin);
  return_event(card, done.context, spare_end);
  return ring;
}

/// True for the per-thread default stream. On another thread the same handle names a different stream.
bool is_per_thread(const lease::Segment& segment) {
  return segment.stream == reinterpret_cast<std::uint64_t>(per_thread_stream());
}

/// Closes open segments to which their threads add no more work. True while any segment is open.
bool close_stale_lanes(CardMeter& card) {
  const Card& pages = process.cards[card_index(card)];
  bool open = false;
  for (LaneHolder& holder : card.lanes) {
    if (!holder.lane.segment.open || !holder.lock.try_acquire()) {
      open = open || holder.lane.segment.open;
      continue;
    }
    lease::Segment closed;
    const std::uint64_t now = page_clock_ns(pages);
    if (card.gate().close_stale(holder.lane, now, &closed)) {
      driver.cuCtxSetCurrent(holder.context);
      record_end(card, holder, closed);
    }
    open = open || holder.lane.segment.open;
    holder.lock.release();
  }
  return open;
}

void* help(void*) {
  prctl(PR_SET_NAME, "carve");
  prctl(PR_SET_TIMERSLACK, 1000);  // only for this thread
  // A capture of the program forbids the helper's calls on every thread that has not set the relaxed mode.
  int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&relaxed);
  while (__atomic_load_n(&meter.stopping, __ATOMIC_ACQUIRE) == 0) {
    const std::uint32_t kick = __atomic_load_n(&meter.kick, __ATOMIC_ACQUIRE);
    bool work = false;
    std::uint64_t away = kLookEverySoloNs;
    for (std::uint32_t i = 0; i < process.card_count; ++i) {
      CardMeter& card = meter.cards[i];
      bool here = close_stale_lanes(card);
      here = poll_markers(card, true) || here;
      const std::uint64_t most = here ? look_away_ns(process.cards[i]) : away;
      away = most < away ? most : away;
      work = work || here;
    }
    if (work) {
      // Does not wait on `kick`, because every segment increments it.
      std::uint32_t never = 0;
      futex_wait(&never, 0, away, false);
      continue;
    }
    __atomic_store_n(&meter.parked, 1U, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&meter.kick, __ATOMIC_SEQ_CST) == kick) {
      futex_wait(&meter.kick, kick, 1'000'000'000, false);
    }
    __atomic_store_n(&meter.parked, 0U, __ATOMIC_SEQ_CST);
  }
  return nullptr;
}

/// The driver shuts down when the process ends. The helper must not be in a driver call then.
/// Not analysed: it keeps the locks.
__attribute__((destructor)) void stop_helper() NO_THREAD_SAFETY_ANALYSIS {
  __atomic_store_n(&meter.stopping, 1U, __ATOMIC_RELEASE);
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    meter.cards[i].queue_lock.acquire();  // never released: every later attempt finds it taken
  }
}

}  // namespace

std::uint64_t page_clock_ns(const Card& card) {
#if defined(__x86_64__)
  if (card.grant->clock == abi::PageClock::kTsc) {
    const auto ticks = static_cast<unsigned __int128>(__builtin_ia32_rdtsc());
    return static_cast<std::uint64_t>((ticks * card.grant->tsc_multiplier) >> card.grant->tsc_shift);
  }
#endif
  static_cast<void>(card);
  return monotonic_ns();
}

void ring_arbiter(const Card& card) {
  card.account->doorbell.fetch_add(1);
  futex_wake(&card.account->doorbell.raw, true);
}

void record_begin(CardMeter& card, LaneHolder& holder, CUstream stream) {
  holder.context = nullptr;
  driver.cuCtxGetCurrent(&holder.context);
  const WhileCapturing relaxed;
  const Hold hold(card.queue_lock);
  holder.begin = record_marker(card, &holder.context, stream);
}

void record_end(CardMeter& card, LaneHolder& holder, const lease::Segment& segment) {
  Pending closed{segment, holder.begin, nullptr, holder.context};
  holder.begin = nullptr;
  const auto stream = reinterpret_cast<CUstream>(segment.stream);
  const bool elsewhere = is_per_thread(segment) && holder.thread != thread_pointer();
  const WhileCapturing relaxed;
  // In a stream that has joined a capture, the marker would become part of the graph.
  const bool captures = relaxed.active() && !elsewhere && capturing(stream, is_per_thread(segment));
  const std::uint64_t now = page_clock_ns(process.cards[card_index(card)]);
  const Hold hold(card.queue_lock);
  const bool room = card.pending_count < kMaxPending && !elsewhere;
  if (room && !captures) {
    CUcontext context = closed.context;
    closed.end = record_marker(card, &context, stream);
  }
  if (room && (closed.end != nullptr || (captures && !is_per_thread(segment)))) {
    card.pending[card.pending_count] = closed;
    __atomic_store_n(&card.pending_count, card.pending_count + 1, __ATOMIC_RELEASE);
    return;
  }
  return_event(card, closed.context, closed.begin);
  count_by_clock(card, segment, now);
}

/// Records an end marker that waited for the end of a capture. False: the stream still captures.
bool record_late(CardMeter& card, Pending& pending, std::uint64_t now) REQUIRES(card.queue_lock) {
  const auto stream = reinterpret_cast<CUstream>(pending.segment.stream);
  if (driver.cuCtxSetCurrent(pending.context) == CUDA_SUCCESS && capturing(stream, false)) {
    return false;
  }
  CUcontext context = pending.context;
  pending.end = record_marker(card, &context, stream);
  if (pending.end == nullptr) {
    return_event(card, pending.context, pending.begin);
    count_by_clock(card, pending.segment, now);
  }
  return true;
}

bool poll_markers(CardMeter& card, bool helper) {
  if (__atomic_load_n(&card.pending_count, __ATOMIC_ACQUIRE) == 0 &&
      __atomic_load_n(&card.unmarked_ns, __ATOMIC_ACQUIRE) == 0) {
    return false;
  }
  if (!card.queue_lock.try_acquire()) {
    return true;
  }
  const WhileCapturing relaxed;
  const Card& pages = process.cards[card_index(card)];
  bool ring = false;
  std::uint32_t left = 0;
  const std::uint32_t count = card.pending_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    Pending& pending = card.pending[i];
    const std::uint64_t now = page_clock_ns(pages);
    if (pending.end == nullptr) {
      if (!helper || !record_late(card, pending, now) || pending.end != nullptr) {
        card.pending[left++] = pending;
      }
    } else if (driver.cuEventQuery(pending.end) == CUDA_ERROR_NOT_READY) {
      card.pending[left++] = pending;
    } else {
      ring = report(card, pending, now) || ring;
    }
  }
  __atomic_store_n(&card.pending_count, left, __ATOMIC_RELEASE);
  const bool counted = card.unmarked_ns != 0;
  ring = end_by_clock(card, page_clock_ns(pages)) || ring;
  const bool more = left != 0 || card.unmarked_ns != 0;
  const bool ended = left != count || (counted && card.unmarked_ns == 0);
  card.queue_lock.release();
  if (ended) {
    __atomic_fetch_add(&card.completions, 1U, __ATOMIC_ACQ_REL);
    futex_wake(&card.completions, false);
  }
  if (ring) {
    ring_arbiter(pages);
  }
  return more;
}

void give_up_markers(CardMeter& card, CUstream stream) {
  if (__atomic_load_n(&card.pending_count, __ATOMIC_ACQUIRE) == 0) {
    return;
  }
  const std::uint64_t now = page_clock_ns(process.cards[card_index(card)]);
  const Hold hold(card.queue_lock);
  std::uint32_t left = 0;
  for (std::uint32_t i = 0; i < card.pending_count; ++i) {
    const Pending& pending = card.pending[i];
    if (pending.end != nullptr || pending.segment.stream != reinterpret_cast<std::uint64_t>(stream)) {
      card.pending[left++] = pending;
      continue;
    }
    return_event(card, pending.context, pending.begin);
    count_by_clock(card, pending.segment, now);
  }
  __atomic_store_n(&card.pending_count, left, __ATOMIC_RELEASE);
}

void forget_work(CUcontext context) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    CardMeter& card = meter.cards[i];
    const std::uint64_t now = page_clock_ns(process.cards[i]);
    for (LaneHolder& holder : card.lanes) {
      if (holder.lane.segment.open && holder.context == context) {
        const Hold hold(holder.lock);
        lease::Segment closed;
        if (close_now(card, holder, &closed)) {
          const Hold queue(card.queue_lock);
          count_by_clock(card, closed, now);
        }
        holder.begin = nullptr;
      }
    }
    const Hold queue(card.queue_lock);
    std::uint32_t left = 0;
    for (std::uint32_t p = 0; p < card.pending_count; ++p) {
      if (card.pending[p].context == context) {
        count_by_clock(card, card.pending[p].segment, now);
      } else {
        card.pending[left++] = card.pending[p];
      }
    }
    __atomic_store_n(&card.pending_count, left, __ATOMIC_RELEASE);
    for (MarkerSource& source : card.sources) {
      if (source.context == context) {
        source = MarkerSource{};  // the driver destroys its events with the context
      }
    }
  }
}

void kick_helper() {
  __atomic_fetch_add(&meter.kick, 1U, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&meter.parked, __ATOMIC_SEQ_CST) != 0) {
    futex_wake(&meter.kick, false);
  }
}

void start_helper() {
  if (__atomic_load_n(&meter.helper, __ATOMIC_RELAXED) != 0 ||
      __atomic_exchange_n(&meter.helper, 1U, __ATOMIC_ACQ_REL) != 0) {
    return;
  }
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kHelperStack);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, help, nullptr) != 0) {
    __atomic_store_n(&meter.helper, 0U, __ATOMIC_RELEASE);  // the next segment tries again
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace carve::preload
