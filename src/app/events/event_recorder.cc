#include "app/events/event_recorder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace carve::events {
namespace {

using Monotonic = std::chrono::steady_clock;

constexpr std::size_t kMaxWaiting = 1024;
constexpr std::size_t kMaxTold = 4096;
constexpr std::size_t kMaxRefusals = 1024;
constexpr auto kEventLives = std::chrono::minutes(50);  // the API server drops one after an hour
constexpr auto kCountGap = std::chrono::seconds(10);
constexpr auto kPause = std::chrono::milliseconds(100);  // between two checks of busy_
constexpr auto kRefusalLasts = std::chrono::minutes(6);  // the kubelet retries at least every five minutes

}  // namespace

std::string rfc3339(Clock::WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(time))));
}

void EventRecorder::warn(codec::EventNote note, const std::string& same) {
  if (note.name.empty() || note.namespace_name.empty()) return;
  const auto now = clock_.now();
  {
    const MutexLock lock(mutex_);
    if (recorded_.size() >= kMaxTold) {
      std::erase_if(recorded_,
                    [&](const auto& entry) { return now - entry.second.last >= kEventLives; });
      if (recorded_.size() >= kMaxTold) recorded_.clear();
    }
    const auto key = fmt::format("{}|{}|{}|{}", note.uid, note.name, note.reason, same.empty() ? note.message : same);
    auto [at, fresh] = recorded_.try_emplace(key);
    auto& recorded = at->second;
    if (fresh || now - recorded.last >= kEventLives) {
      // Unique across restarts: the wall clock's nanoseconds, as in Kubernetes' own components.
      recorded = {std::move(note), {}, rfc3339(clock_.wall_now()), 0, 0, now, {}};
      recorded.name = fmt::format("{}.{:x}{:02x}", recorded.note.name.substr(0, 200),
                              clock_.wall_now().time_since_epoch().count(), number_++ & 0xffU);
    } else {
      recorded.note.message = std::move(note.message);
    }
    recorded.last = now;
    ++recorded.count;
    if (recorded.written > 0 && now - recorded.last_written < kCountGap) return;
    write_count(&recorded, now);
  }
  changed_.notify_one();
}

/// Queues a write of the event with its current count. The event is created if the API server does not have it.
void EventRecorder::write_count(RecordedEvent* recorded, Clock::Time now) {
  const auto path = fmt::format("/api/v1/namespaces/{}/events", recorded->note.namespace_name);
  auto body = codec::encode_event(recorded->note, recorded->name, node_, component_,
                                  {recorded->since, rfc3339(clock_.wall_now()), recorded->count});
  const bool first = recorded->written == 0;
  recorded->written = recorded->count;
  recorded->last_written = now;
  push({"event",
        [path, first, name = recorded->name, body = std::move(body)](KubeApi& api) -> Result<void> {
          auto done = first ? api.create(path, body)
                            : api.patch(fmt::format("{}/{}", path, name), KubePatch::kMerge, body);
          if (!first && !done && done.error().code == Code::kNotFound)
            done = api.create(path, body);
          if (!done) return tl::unexpected(done.error());
          return {};
        },
        !recorded->note.warning});
}

/// Queues the counts that were not written because they came too soon after the last write.
void EventRecorder::queue_counts(Clock::Duration gap) {
  const auto now = clock_.now();
  const MutexLock lock(mutex_);
  for (auto& [key, recorded] : recorded_) {
    if (recorded.count != recorded.written && now - recorded.last_written >= gap) write_count(&recorded, now);
  }
}

void EventRecorder::refused(const std::string& key, std::string text) {
  const auto now = clock_.now();
  const MutexLock lock(mutex_);
  if (refusals_.size() >= kMaxRefusals && !refusals_.contains(key)) return;
  auto& refusal = refusals_.try_emplace(key, Refusal{{}, now, now}).first->second;
  refusal.text = std::move(text);
  refusal.last = now;
}

void EventRecorder::settled(const std::string& key) {
  const MutexLock lock(mutex_);
  refusals_.erase(key);
}

/// Names the oldest refusal, so that the text does not change while newer ones come and go.
std::string EventRecorder::refusals() {
  const auto now = clock_.now();
  const MutexLock lock(mutex_);
  std::erase_if(refusals_, [&](const auto& entry) { return now - entry.second.last >= kRefusalLasts; });
  const auto oldest = std::min_element(refusals_.begin(), refusals_.end(), [](const auto& a, const auto& b) {
    return a.second.first < b.second.first;
  });
  if (oldest == refusals_.end()) return {};
  if (refusals_.size() == 1) return oldest->second.text;
  return fmt::format("{} starts are refused; the oldest: {}", refusals_.size(), oldest->second.text);
}

std::uint64_t EventRecorder::dropped() const {
  const MutexLock lock(mutex_);
  return dropped_;
}

void EventRecorder::push(Job job) {
  if (jobs_.size() >= kMaxWaiting) {
    const auto minor = std::find_if(jobs_.begin(), jobs_.end(), [](const Job& one) { return one.minor; });
    ++dropped_;
    if (minor == jobs_.end() && job.minor) return;
    jobs_.erase(minor == jobs_.end() ? jobs_.begin() : minor);
  }
  job.since = clock_.now();
  jobs_.push_back(std::move(job));
}

void EventRecorder::post(std::string what, std::function<Result<void>(KubeApi&)> write) {
  {
    const MutexLock lock(mutex_);
    push({std::move(what), std::move(write)});
  }
  changed_.notify_one();
}

void EventRecorder::post_later(const std::string& key, Clock::Duration after, std::string what,
                         std::function<Result<void>(KubeApi&)> write) {
  {
    const MutexLock lock(mutex_);
    if (later_.size() < kMaxWaiting || later_.contains(key)) {
      later_.insert_or_assign(key, Later{{std::move(what), std::move(write)}, clock_.now() + after});
    } else {
      push({std::move(what), std::move(write)});
    }
  }
  changed_.notify_one();
}

void EventRecorder::drop_later(const std::string& key) {
  const MutexLock lock(mutex_);
  later_.erase(key);
}

Clock::Time EventRecorder::earliest_due() const {
  auto first = Clock::Time::max();
  for (const auto& [key, one] : later_) first = std::min(first, one.due);
  return first;
}

void EventRecorder::queue_due(Clock::Time now) {
  for (auto at = later_.begin(); at != later_.end();) {
    if (at->second.due > now) {
      ++at;
      continue;
    }
    push(std::move(at->second.job));
    at = later_.erase(at);
  }
}

bool EventRecorder::yields() const {
  if (!busy_ || jobs_.empty() || jobs_.size() >= kMaxWaiting / 2) return false;
  return clock_.now() < jobs_.front().since + kPatience && busy_();
}

bool EventRecorder::take(Job* job, bool at_once) {
  const MutexLock lock(mutex_);
  if (jobs_.empty() || (!at_once && yields())) return false;
  *job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

void EventRecorder::write(bool at_once, const std::function<bool(const Result<void>&)>& go_on) {
  for (Job job; go_on(last_) && take(&job, at_once);) {
    last_ = job.write(api_);
    last_at_ = clock_.now();
    if (!last_) log_.warn("event or status not written", {{"what", job.what}, {"error", last_.error().what}});
  }
}

void EventRecorder::write_due(const std::stop_token& stop) {
  {
    const MutexLock lock(mutex_);
    queue_due(clock_.now());
  }
  write(false, [&stop](const Result<void>&) { return !stop.stop_requested(); });
}

void EventRecorder::flush() {
  {
    const MutexLock lock(mutex_);
    queue_due(Clock::Time::max());
  }
  write(true, [](const Result<void>&) { return true; });
}

/// The last writes before the end. An API server that does not answer now, or did not answer within kLast before, is
/// not called again.
void EventRecorder::write_last() {
  if (clock_.now() >= last_at_ + kLast) last_ = {};
  queue_counts({});
  {
    const MutexLock lock(mutex_);
    queue_due(Clock::Time::max());
    std::stable_partition(jobs_.begin(), jobs_.end(), [](const Job& one) { return !one.minor; });
  }
  const auto until = clock_.now() + kLast;
  write(true, [&](const Result<void>& last) {
    const bool away =
        !last && (last.error().code == Code::kUnavailable || last.error().code == Code::kDeadlineExceeded);
    return !away && clock_.now() < until;
  });
  const MutexLock lock(mutex_);
  if (!jobs_.empty()) log_.warn("events are lost at the end", {{"count", std::uint64_t{jobs_.size()}}});
}

void EventRecorder::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      const auto now = clock_.now();
      const auto until = std::min(now + kCountGap, earliest_due());
      if (yields()) {
        const auto end = Monotonic::now() + kPause;
        while (!stop.stop_requested() && Monotonic::now() < end) pause_.wait_until(lock, stop, end);
      } else {
        const auto end = Monotonic::now() + (until - now);
        while (jobs_.empty() && earliest_due() >= until && !stop.stop_requested() && Monotonic::now() < end) {
          changed_.wait_until(lock, stop, end);
        }
      }
    }
    queue_counts(kCountGap);
    write_due(stop);
  }
  write_last();
}

}  // namespace carve::events
