#include <algorithm>

#include "sim/daemon/kernel.h"

// When the daemon must run again. Work runs from its time stamps, so a late run never changes the shares; it only
// delays the report to a waiting client. The time is exact for a client that waits, and coarse for a long backlog.
namespace carve::sim {
namespace {

constexpr std::uint64_t kCoarseNs = 150'000;  // how stale a polled completion may be
constexpr std::uint64_t kBlockedNs = 20'000;  // behind a command with an unknown end
constexpr std::uint64_t kLeastNs = 3'000;

/// GPU time between now and the completion of command `target` − 1 of the stream, if it had the
/// card.
std::uint64_t work_before(const Stream& s, std::uint64_t target) {
  std::uint64_t sum = 0;
  for (std::uint64_t n = s.head; n < target && sum < kCoarseNs; ++n)
    sum += n == s.head && s.started ? s.remaining_ns : s.duration(n);
  return sum;
}

}  // namespace

bool Kernel::anything_new() const {
  for (std::uint32_t c = 0; c < machine_.count; ++c) {
    for (const Stream* s : engines_[c].streams) {
      if (s->cell->submitted.load() != s->tail) return true;
      if (s->pending() && s->front().kind == CommandKind::kHost &&
          s->cell->host_done.load() > s->head)
        return true;
    }
  }
  return false;
}

std::uint64_t Kernel::next_wake(std::uint64_t now, bool* awaited) const {
  std::uint64_t coarse = ~0ULL, due = ~0ULL;
  for (std::uint32_t c = 0; c < machine_.count; ++c) {
    const Engine& e = engines_[c];
    for (const Stream* s : e.streams) {
      if (!s->pending()) continue;
      const Command& front = s->front();
      if (front.kind == CommandKind::kHost) continue;  // the client rings the bell when it is done
      const bool backlog = s->tail - s->head > kExactBacklog;
      std::uint64_t target = s->cell->wait_for.load();
      if (backlog) {
        coarse = std::min(coarse, now + kCoarseNs);
        if (target == kNoWaiter) continue;
        target = std::min(target, s->tail);
      } else {
        target = s->head + 1;
      }
      std::uint64_t work = work_before(*s, target);
      if (front.kind == CommandKind::kWait) {
        const auto other = s->client->streams.find(front.argument);
        const bool known = other != s->client->streams.end();
        if (known && other->second->pending() && other->second->front().kind == CommandKind::kHost)
          continue;  // its end rings the bell, too
        if (known) work += work_before(*other->second, std::min(front.target, other->second->tail));
        work = std::max(work, kBlockedNs);
      } else if (front.kind == CommandKind::kCompute && e.current != s->client &&
                 e.running != nullptr) {
        const std::uint64_t slice = e.slice_end > now ? e.slice_end - now : 0;
        work += std::min(slice, work_before(*e.running, e.running->tail)) +
                std::uint64_t{machine_.model->switch_us} * 1000;
      } else if (e.switching && e.switch_end > now) {
        work += e.switch_end - now;
      }
      due = std::min(due, now + work);
    }
  }
  if (awaited != nullptr) *awaited = due <= coarse;
  const std::uint64_t wake = std::min(coarse, due);
  return wake == ~0ULL ? wake : std::max(wake, now + kLeastNs);
}

}  // namespace carve::sim
