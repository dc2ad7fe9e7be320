#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "preload/driver.h"
#include "preload/futex.h"
#include "preload/meter.h"

// Markers: events that the library records in the program's own streams around about a millisecond of work, and
// the helper thread that sees them pass. At most one thread, made at the first gated launch.
namespace carve::preload {

namespace {

constexpr std::uint64_t kLookEveryNs = 200'000;         // under a lease
constexpr std::uint64_t kLookAtEndNs = 50'000;          // when somebody waits for this work to end
constexpr std::uint64_t kNearEndNs = 400'000;
constexpr std::uint64_t kLookEverySoloNs = 2'000'000;
constexpr std::uint64_t kNewReferenceNs = 2'000'000'000;  // event times are floats: count from something near
constexpr std::size_t kHelperStack = 256U << 10;

abi::LeaseMode mode_of(const Card& card) {
  return static_cast<abi::LeaseMode>(card.grant->lease.load_relaxed() & 3U);
}

/// How long the helper may look away: not long while the card is ours no more, or about to be.
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

/// Under queue_lock. Null when more contexts than expected have markers.
MarkerSource* source_of(CardMeter& card, CUcontext context) {
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

/// An event of the current context. Under queue_lock.
CUevent take_event(CardMeter& card, CUcontext context) {
  MarkerSource* source = source_of(card, context);
  if (source == nullptr) {
    return nullptr;
  }
  if (source->spare_count != 0) {
    return source->spare[--source->spare_count];
  }
  CUevent event = nullptr;
  return driver.cuEventCreate(&event, 0) == CUDA_SUCCESS ? event : nullptr;
}

/// Under queue_lock.
void return_event(CardMeter& card, CUcontext context, CUevent event) {
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

/// Tells the gate when the segment ran, in a time that is common to all segments of the context. The first
/// segment's begin is where that time starts.
bool report(CardMeter& card, const Pending& done, std::uint64_t now) {
  MarkerSource* source = source_of(card, done.context);
  if (source == nullptr || done.begin == nullptr) {
    return card.gate().abandoned(done.segment, now);
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

/// What a thread left open and adds nothing to is closed for it. True while something is open.
bool close_stale_lanes(CardMeter& card) {
  const Card& pages = process.cards[card_index(card)];
  bool open = false;
  for (LaneSlot& slot : card.lanes) {
    if (!slot.lane.segment.open || !slot.lock.try_acquire()) {
      open = open || slot.lane.segment.open;
      continue;
    }
    lease::Segment closed;
    if (card.gate().close_stale(slot.lane, page_clock_ns(pages), &closed)) {
      driver.cuCtxSetCurrent(slot.context);
      record_end(card, slot, closed);
    }
    open = open || slot.lane.segment.open;
    slot.lock.release();
  }
  return open;
}

void* help(void*) {
  prctl(PR_SET_NAME, "carve");
  prctl(PR_SET_TIMERSLACK, 1000);  // of this thread alone
  // A capture of the program forbids such calls on all threads that do not say that they are harmless.
  int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver.cuThreadExchangeStreamCaptureMode(&relaxed);
  while (__atomic_load_n(&meter.stopping, __ATOMIC_ACQUIRE) == 0) {
    const std::uint32_t kick = __atomic_load_n(&meter.kick, __ATOMIC_ACQUIRE);
    bool work = false;
    std::uint64_t away = kLookEverySoloNs;
    for (std::uint32_t i = 0; i < process.card_count; ++i) {
      CardMeter& card = meter.cards[i];
      bool here = close_stale_lanes(card);
      here = poll_markers(card) || here;
      const std::uint64_t most = here ? look_away_ns(process.cards[i]) : away;
      away = most < away ? most : away;
      work = work || here;
    }
    if (work) {
      // Not on `kick`: it is bumped at every segment.
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

/// At the end of the process the driver is taken down; the helper must not be inside it then.
__attribute__((destructor)) void stop_helper() {
  __atomic_store_n(&meter.stopping, 1U, __ATOMIC_RELEASE);
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    meter.cards[i].queue_lock.acquire();  // and never released: what comes now finds it taken
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

void record_begin(CardMeter& card, LaneSlot& slot, CUstream stream) {
  slot.begin = nullptr;
  slot.context = nullptr;
  driver.cuCtxGetCurrent(&slot.context);
  CUevent event = nullptr;
  {
    const Hold hold(card.queue_lock);
    event = take_event(card, slot.context);
  }
  if (event != nullptr && driver.cuEventRecord(event, stream) == CUDA_SUCCESS) {
    slot.begin = event;
  }
}

void record_end(CardMeter& card, LaneSlot& slot, const lease::Segment& segment) {
  const Pending pending_segment{segment, slot.begin, nullptr, slot.context};
  slot.begin = nullptr;
  const auto stream = reinterpret_cast<CUstream>(segment.stream);
  const std::uint64_t now = page_clock_ns(process.cards[card_index(card)]);
  const Hold hold(card.queue_lock);
  Pending& place = card.pending[card.pending_count];
  // While a stream captures, this one may have joined it: then a marker would become part of the graph.
  if (card.pending_count == kMaxPending || __atomic_load_n(&meter.captures, __ATOMIC_ACQUIRE) != 0) {
    card.gate().abandoned(segment, now);
    return_event(card, pending_segment.context, pending_segment.begin);
    return;
  }
  place = pending_segment;
  place.end = take_event(card, slot.context);
  if (place.end == nullptr || driver.cuEventRecord(place.end, stream) != CUDA_SUCCESS) {
    card.gate().abandoned(segment, now);
    return_event(card, place.context, place.begin);
    return_event(card, place.context, place.end);
    return;
  }
  __atomic_store_n(&card.pending_count, card.pending_count + 1, __ATOMIC_RELEASE);
}

bool poll_markers(CardMeter& card) {
  if (__atomic_load_n(&card.pending_count, __ATOMIC_ACQUIRE) == 0) {
    return false;
  }
  if (!card.queue_lock.try_acquire()) {
    return true;
  }
  const Card& pages = process.cards[card_index(card)];
  bool ring = false;
  std::uint32_t left = 0;
  const std::uint32_t count = card.pending_count;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (driver.cuEventQuery(card.pending[i].end) == CUDA_ERROR_NOT_READY) {
      card.pending[left++] = card.pending[i];
    } else {
      ring = report(card, card.pending[i], page_clock_ns(pages)) || ring;
    }
  }
  __atomic_store_n(&card.pending_count, left, __ATOMIC_RELEASE);
  card.queue_lock.release();
  if (left != count) {
    __atomic_fetch_add(&card.completions, 1U, __ATOMIC_ACQ_REL);
    futex_wake(&card.completions, false);
  }
  if (ring) {
    ring_arbiter(pages);
  }
  return left != 0;
}

void forget_work(CUcontext context) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    CardMeter& card = meter.cards[i];
    const std::uint64_t now = page_clock_ns(process.cards[i]);
    for (LaneSlot& slot : card.lanes) {
      if (slot.lane.segment.open && slot.context == context) {
        const Hold hold(slot.lock);
        lease::Segment closed;
        if (close_now(card, slot, &closed)) {
          const Hold queue(card.queue_lock);
          card.gate().abandoned(closed, now);
        }
        slot.begin = nullptr;
      }
    }
    const Hold queue(card.queue_lock);
    std::uint32_t left = 0;
    for (std::uint32_t p = 0; p < card.pending_count; ++p) {
      if (card.pending[p].context == context) {
        card.gate().abandoned(card.pending[p].segment, now);
      } else {
        card.pending[left++] = card.pending[p];
      }
    }
    __atomic_store_n(&card.pending_count, left, __ATOMIC_RELEASE);
    for (MarkerSource& source : card.sources) {
      if (source.context == context) {
        source = MarkerSource{};  // its events die with the context
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
    __atomic_store_n(&meter.helper, 0U, __ATOMIC_RELEASE);  // again at the next segment
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace carve::preload
