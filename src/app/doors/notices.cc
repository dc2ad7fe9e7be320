#include "app/doors/notices.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <utility>

namespace carve::doors {
namespace {

constexpr std::size_t kMaxWaiting = 1024;
constexpr std::size_t kMaxTold = 4096;
constexpr auto kSilence = std::chrono::minutes(5);
constexpr std::string_view kComponent = "carve-agent";

}  // namespace

std::string rfc3339(Clock::WallTime time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(
                         std::chrono::time_point_cast<std::chrono::system_clock::duration>(time))));
}

void Notices::warn(codec::EventNote note) {
  if (note.name.empty() || note.space.empty()) return;
  const auto now = clock_.now();
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    const auto key = fmt::format("{}|{}|{}|{}", note.uid, note.name, note.reason, note.message);
    const auto [told, fresh] = told_.emplace(key, now);
    if (!fresh && now - told->second < kSilence) return;
    told->second = now;
    if (told_.size() > kMaxTold) {
      std::erase_if(told_, [&](const auto& entry) { return now - entry.second >= kSilence; });
      if (told_.size() > kMaxTold) told_.clear();
    }
    // Unique over restarts: the wall's nanoseconds, as Kubernetes' own components do.
    name = fmt::format("{}.{:x}{:02x}", note.name.substr(0, 200),
                       clock_.wall_now().time_since_epoch().count(), number_++ & 0xffU);
  }
  const auto path = fmt::format("/api/v1/namespaces/{}/events", note.space);
  auto body = codec::encode_event(note, name, node_, kComponent, rfc3339(clock_.wall_now()), 1);
  post("event", [path, body = std::move(body)](KubeApi& api) -> Result<void> {
    CARVE_TRY(const auto made, api.create(path, body));
    static_cast<void>(made);
    return {};
  });
}

void Notices::post(std::string what, std::function<Result<void>(KubeApi&)> write) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= kMaxWaiting) {
      jobs_.pop_front();
      ++dropped_;
    }
    jobs_.push_back({std::move(what), std::move(write)});
  }
  changed_.notify_one();
}

bool Notices::take(Job* job) {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty()) return false;
  *job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

void Notices::flush() {
  for (Job job; take(&job);) {
    if (const auto done = job.write(api_); !done)
      log_.warn("notice not written", {{"what", job.what}, {"error", done.error().what}});
  }
}

void Notices::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !jobs_.empty(); });
    }
    if (!stop.stop_requested()) flush();
  }
}

}  // namespace carve::doors
