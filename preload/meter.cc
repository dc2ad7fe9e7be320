#include "preload/meter.h"

#include "preload/driver.h"
#include "preload/futex.h"
#include "preload/memory.h"

namespace carve::preload {

Meter meter;

namespace {

Card& card_behind(const CardMeter& card) { return process.cards[card_index(card)]; }

/// The meter of the current context's card; null when there is no context, or its card is not in the slice.
CardMeter* current_meter() {
  if (process.card_count == 1) {
    return &meter.cards[0];
  }
  const Card* card = current_card();
  return card == nullptr ? nullptr : &meter.cards[index_of(*card)];
}

/// Waits between a refusal of the gate and the next try. The lane is unlocked during the wait, so that another thread
/// can close its segment.
void wait_for(CardMeter& card, LaneHolder& holder, const lease::Passage& passage) REQUIRES(holder.lock) {
  const Card& pages = card_behind(card);
  lease::Segment open;
  if (close_now(card, holder, &open)) {
    record_end(card, holder, open);
  }
  const bool grant = passage.verdict == lease::Verdict::kWaitGrant;
  const std::uint32_t completions = __atomic_load_n(&card.completions, __ATOMIC_ACQUIRE);
  holder.lock.release();
  start_helper();
  kick_helper();
  if (grant) {
    futex_wait(&pages.grant->lease.raw, passage.futex_value, passage.wait_ns, true);
  } else if (!poll_markers(card) || __atomic_load_n(&card.completions, __ATOMIC_ACQUIRE) == completions) {
    futex_wait(&card.completions, completions, passage.wait_ns, false);
  }
  holder.lock.acquire();
}

}  // namespace

bool close_now(CardMeter& card, LaneHolder& holder, lease::Segment* out) {
  holder.lane.seen_operations = holder.lane.segment.operations;  // as if no work had arrived since the last check
  return card.gate().close_stale(holder.lane, page_clock_ns(card_behind(card)), out);
}

std::uint32_t card_index(const CardMeter& card) { return static_cast<std::uint32_t>(&card - meter.cards); }

void attach_gates() {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    const Card& card = process.cards[i];
    meter.cards[i].gate().attach(card.grant, card.account, card.entry);
  }
}

LaneHolder* find_lane(CardMeter& card, std::uintptr_t thread) {
  const auto home = static_cast<std::uint32_t>((thread * 0x9E3779B97F4A7C15ULL) >> 58);
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    LaneHolder& holder = card.lanes[(home + i) % kLanes];
    std::uintptr_t owner = __atomic_load_n(&holder.thread, __ATOMIC_RELAXED);
    if (owner == thread) {
      return &holder;
    }
    if (owner == 0 && __atomic_compare_exchange_n(&holder.thread, &owner, thread, false, __ATOMIC_ACQ_REL,
                                                  __ATOMIC_RELAXED)) {
      return &holder;
    }
  }
  return &card.lanes[home];
}

CUresult begin_work_slowly(CardMeter* card, LaneHolder* holder, std::uint64_t key, CUstream stream, bool per_thread,
                           Ticket& ticket) NO_THREAD_SAFETY_ANALYSIS {
  if (card == nullptr) {
    card = current_meter();
    if (card == nullptr) {
      CUcontext context = nullptr;
      driver.cuCtxGetCurrent(&context);
      // Without a current context the driver returns its own error. A card that is not in the slice is refused.
      return context == nullptr ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_NOT_READY;
    }
    if (capturing(stream, per_thread)) {
      return CUDA_SUCCESS;
    }
    holder = own_lane(*card);
    holder->lock.acquire();
  }
  lease::Gate& gate = card->gate();
  const Card& pages = card_behind(*card);
  const auto clock = [&] { return page_clock_ns(pages); };
  const auto stream_word = reinterpret_cast<std::uint64_t>(stream);
  bool waits = false;
  lease::Passage passage = gate.enter(holder->lane, key, stream_word, clock);
  while (passage.verdict == lease::Verdict::kWaitGrant || passage.verdict == lease::Verdict::kWaitCompletion) {
    if (passage.verdict == lease::Verdict::kWaitGrant && !waits) {
      waits = true;
      pages.account->gated_launches.fetch_add(1);
      if (gate.starts_waiting()) {
        ring_arbiter(pages);
      }
    }
    wait_for(*card, *holder, passage);
    passage = gate.enter(holder->lane, key, stream_word, clock);
  }
  if (waits) {
    gate.left_waiting();
  }
  if (passage.verdict == lease::Verdict::kRefuse) {
    holder->lock.release();
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (passage.close) {
    record_end(*card, *holder, passage.closed);
  }
  if (passage.begin_marker) {
    record_begin(*card, *holder, stream);
    start_helper();
    kick_helper();
  }
  ticket = {card, holder, key, passage.estimate_ns};
  return CUDA_SUCCESS;
}

void end_work_slowly(Ticket& ticket, CUresult result) NO_THREAD_SAFETY_ANALYSIS {
  if (ticket.card == nullptr) {
    return;
  }
  lease::Gate& gate = ticket.card->gate();
  lease::Passage passage;
  passage.key = ticket.key;
  passage.estimate_ns = ticket.estimate_ns;
  lease::Segment closed;
  if (result != CUDA_SUCCESS) {
    gate.withdraw(ticket.holder->lane, passage);
  } else if (gate.leave(ticket.holder->lane, passage, &closed)) {
    record_end(*ticket.card, *ticket.holder, closed);
  }
  ticket.holder->lock.release();
}

void forget_duration(std::uint64_t key) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    meter.cards[i].gate().costs().forget(key);
  }
}

bool capturing(CUstream stream, bool per_thread) {
  if (__atomic_load_n(&meter.captures, __ATOMIC_RELAXED) == 0) {
    return false;
  }
  int status = 0;
  const CUresult result = per_thread ? driver.cuStreamIsCapturing_ptsz(stream, &status)
                                     : driver.cuStreamIsCapturing(stream, &status);
  return result != CUDA_SUCCESS || status != 0;
}

void capture_began() { __atomic_fetch_add(&meter.captures, 1U, __ATOMIC_ACQ_REL); }

void capture_ended() {
  std::uint32_t before = __atomic_load_n(&meter.captures, __ATOMIC_RELAXED);
  while (before != 0 &&
         !__atomic_compare_exchange_n(&meter.captures, &before, before - 1, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED)) {
  }
}

void before_wait() {
  CardMeter* card = process.duty == Duty::kMeter ? current_meter() : nullptr;
  if (card == nullptr) {
    return;
  }
  const Card& pages = card_behind(*card);
  const auto mode = static_cast<abi::LeaseMode>(pages.grant->lease.load_relaxed() & 3U);
  LaneHolder& holder = *own_lane(*card);
  if (mode == abi::LeaseMode::kSolo || !holder.lock.try_acquire()) {
    return;
  }
  lease::Segment closed;
  if (close_now(*card, holder, &closed)) {
    record_end(*card, holder, closed);
  }
  holder.lock.release();
}

void after_wait() {
  CardMeter* card = process.duty == Duty::kMeter ? current_meter() : nullptr;
  if (card != nullptr && __atomic_load_n(&card->pending_count, __ATOMIC_RELAXED) != 0) {
    poll_markers(*card);
  }
}

void before_capture() {
  if (process.duty != Duty::kMeter) {
    return;
  }
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    CardMeter& card = meter.cards[i];
    for (LaneHolder& holder : card.lanes) {
      if (!holder.lane.segment.open) {
        continue;
      }
      const Hold hold(holder.lock);
      // This thread cannot close a segment of another context or of another thread's per-thread default stream. The
      // helper closes it, in the segment's context.
      const bool elsewhere = holder.context != context || (holder.thread != thread_pointer() &&
                                                         holder.lane.segment.stream ==
                                                             reinterpret_cast<std::uint64_t>(per_thread_stream()));
      lease::Segment closed;
      if (!elsewhere && close_now(card, holder, &closed)) {
        record_end(card, holder, closed);
      }
    }
  }
}

void before_stream_ends(CUstream stream) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    CardMeter& card = meter.cards[i];
    for (LaneHolder& holder : card.lanes) {
      if (!holder.lane.segment.open || holder.lane.segment.stream != reinterpret_cast<std::uint64_t>(stream)) {
        continue;
      }
      const Hold hold(holder.lock);
      lease::Segment closed;
      if (holder.lane.segment.stream == reinterpret_cast<std::uint64_t>(stream) &&
          close_now(card, holder, &closed)) {
        record_end(card, holder, closed);
      }
    }
    give_up_markers(card, stream);
  }
}

}  // namespace carve::preload
