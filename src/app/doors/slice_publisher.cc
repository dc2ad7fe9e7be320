#include "app/doors/slice_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "app/doors/device_names.h"
#include "codec/dra/event.h"

namespace carve::doors {
namespace {

constexpr std::string_view kSlices = "/apis/resource.k8s.io/v1/resourceslices";
constexpr auto kLook = std::chrono::milliseconds(1000);
constexpr auto kLookSoon = std::chrono::milliseconds(50);  // the kubelet's word is about to come
constexpr auto kMostBackOff = std::chrono::seconds(30);

}  // namespace

void SlicePublisher::run_watch(const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>& objects) { replace(objects); };
  sink.change = [this](const KubeChange& one) { change(one); };
  sink.trouble = [](const Error&) {};
  api_.watch(std::string(kSlices),
             {{"fieldSelector", fmt::format("spec.driver={},spec.nodeName={}", kDriver, node_)}},
             sink, stop);
}

void SlicePublisher::learn(const std::string& object) {
  auto slice = codec::parse_slice(object);
  if (!slice || slice->driver != kDriver || slice->node != node_) return;
  last_generation_ = std::max(last_generation_, slice->generation);
  existing_[slice->name] = std::move(*slice);
}

void SlicePublisher::replace(const std::vector<std::string>& objects) {
  {
    const std::lock_guard lock(mutex_);
    existing_.clear();
    for (const auto& object : objects) learn(object);
    synced_ = dirty_ = true;
  }
  changed_.notify_all();
}

void SlicePublisher::change(const KubeChange& change) {
  {
    const std::lock_guard lock(mutex_);
    if (change.kind == KubeChange::Kind::kPut) {
      learn(change.object);
    } else if (const auto gone = codec::parse_slice(change.object)) {
      existing_.erase(gone->name);
    }
    dirty_ = true;
  }
  changed_.notify_all();
}

Result<std::string> SlicePublisher::node_uid() {
  if (node_uid_.empty()) {
    CARVE_TRY(const auto text, api_.get("/api/v1/nodes/" + node_));
    node_uid_ = codec::uid_of(text);
  }
  return node_uid_;
}

Result<void> SlicePublisher::write(const SliceWrite& write) {
  const auto path = fmt::format("{}/{}", kSlices, write.slice.name);
  if (write.kind == SliceWrite::Kind::kRemove) {
    const auto removed = api_.remove(path);
    if (!removed && removed.error().code != Code::kNotFound) return tl::unexpected(removed.error());
    const std::lock_guard lock(mutex_);
    existing_.erase(write.slice.name);
    return {};
  }
  CARVE_TRY(const auto uid, node_uid());
  const auto body = codec::encode_slice(write.slice, uid);
  auto written = write.kind == SliceWrite::Kind::kCreate ? api_.create(std::string(kSlices), body)
                                                         : api_.replace(path, body);
  if (!written) return fail_in("ResourceSlice " + write.slice.name, written.error());
  const std::lock_guard lock(mutex_);
  learn(*written);
  return {};
}

Result<void> SlicePublisher::reconcile() {
  const bool shut = shut_ && !shut_().empty();
  const auto wanted =
      slices_for(node_, shut ? std::vector<codec::PublishedDevice>() : devices_of(slices_.cards()));
  std::vector<SliceWrite> writes;
  {
    const std::lock_guard lock(mutex_);
    if (!synced_)
      return fail(Code::kUnavailable, "the API server's ResourceSlices are not known yet");
    if (existing_.empty() && !registered_())
      return fail(Code::kUnavailable, "the kubelet has not registered the driver yet");
    dirty_ = false;
    std::vector<codec::PublishedSlice> existing;
    for (const auto& [name, slice] : existing_) existing.push_back(slice);
    writes = plan(wanted, existing, last_generation_);
    if (!writes.empty())
      last_generation_ = std::max(last_generation_, writes.front().slice.generation);
  }
  for (const auto& one : writes) {
    if (auto done = write(one); !done) {
      const std::lock_guard lock(mutex_);
      dirty_ = true;
      return done;
    }
  }
  if (!writes.empty()) {
    log_.info("resource slices written", {{"writes", writes.size()},
                                          {"slices", wanted.size()},
                                          {"generation", writes.front().slice.generation}});
  }
  return {};
}

void SlicePublisher::run_writer(Clock& clock, const std::stop_token& stop) {
  Clock::Duration back_off = std::chrono::milliseconds(200);
  while (!stop.stop_requested()) {
    const auto done = reconcile();
    {
      const std::lock_guard lock(mutex_);
      const std::string now = done ? "" : done.error().what;
      if (now != error_ && !now.empty()) log_.warn("resource slices not written", {{"error", now}});
      error_ = now;
    }
    if (!done && done.error().code != Code::kUnavailable) {
      // Spread by the node's name, so that a thousand agents do not come back together.
      const auto jitter = std::chrono::milliseconds(std::hash<std::string>()(node_) % 100);
      if (!clock.sleep_for(back_off + jitter, stop)) return;
      back_off = std::min<Clock::Duration>(back_off * 2, kMostBackOff);
      continue;
    }
    back_off = std::chrono::milliseconds(200);
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, done ? kLook : kLookSoon,
                      [this] { return dirty_ && synced_ && error_.empty(); });
  }
}

std::string SlicePublisher::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace carve::doors
