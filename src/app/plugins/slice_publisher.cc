#include "app/plugins/slice_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "app/plugins/device_names.h"
#include "codec/kube/event.h"

namespace carve::plugins {
namespace {

constexpr auto kLook = std::chrono::milliseconds(1000);
constexpr auto kLookSoon = std::chrono::milliseconds(50);  // the kubelet is about to register the driver
constexpr auto kRest = std::chrono::milliseconds(200);     // after a write: gathers the next changes
constexpr auto kMostBackOff = std::chrono::seconds(30);

/// Whether resource version `a` is older than `b`: its number is smaller (guaranteed since Kubernetes 1.35). False if
/// one of them is not a number.
bool older(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (!number(a) || !number(b)) return false;
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

void SlicePublisher::run_watch(const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>& objects) { replace(objects); };
  sink.change = [this](const KubeChange& one) { change(one); };
  sink.trouble = [](const Error&) {};
  api_.watch(std::string(kResourceSlices), {{"fieldSelector", slices_of_node(node_)}}, sink, stop);
}

/// Remembers an object of this driver and node. False: it is another one's, or older than the known one. The watch may
/// deliver an object after the answer to this publisher's write of it, even after the answer to the next write. An
/// answer may also arrive after the watch.
bool SlicePublisher::learn(codec::PublishedSlice slice) {
  if (slice.driver != kDriver || slice.node != node_) return false;
  auto& known = existing_[slice.name];
  if (older(slice.version, known.version)) return false;
  last_generation_ = std::max(last_generation_, slice.generation);
  known = std::move(slice);
  return true;
}

void SlicePublisher::replace(const std::vector<std::string>& objects) {
  {
    const MutexLock lock(mutex_);
    existing_.clear();
    sent_.clear();
    for (const auto& object : objects) {
      if (auto slice = codec::parse_slice(object)) learn(std::move(*slice));
    }
    synced_ = dirty_ = true;
  }
  changed_.notify_all();
}

void SlicePublisher::change(const KubeChange& change) {
  auto slice = codec::parse_slice(change.object);
  if (!slice) return;
  {
    const MutexLock lock(mutex_);
    if (change.kind == KubeChange::Kind::kPut) {
      if (!learn(std::move(*slice))) return;
    } else {
      const auto known = existing_.find(slice->name);
      if (known == existing_.end() || older(slice->version, known->second.version)) return;
      existing_.erase(known);
    }
    dirty_ = true;
  }
  changed_.notify_all();
}

void SlicePublisher::poke() {
  {
    const MutexLock lock(mutex_);
    dirty_ = true;
  }
  changed_.notify_all();
}

/// Asked before each write: a Node that is deleted and registered again has another UID, and the garbage collector
/// deletes what belongs to the old one.
Result<std::string> SlicePublisher::node_uid() {
  CARVE_TRY(const auto text, api_.get("/api/v1/nodes/" + node_));
  return codec::uid_of(text);
}

Result<void> SlicePublisher::write(const SliceWrite& write) {
  const auto path = fmt::format("{}/{}", kResourceSlices, write.slice.name);
  if (write.kind == SliceWrite::Kind::kRemove) {
    const auto removed = api_.remove(path);
    if (!removed && removed.error().code != Code::kNotFound) return tl::unexpected(removed.error());
    const MutexLock lock(mutex_);
    existing_.erase(write.slice.name);
    return {};
  }
  CARVE_TRY(const auto uid, node_uid());
  const auto body = codec::encode_slice(write.slice, uid);
  auto written = write.kind == SliceWrite::Kind::kCreate ? api_.create(std::string(kResourceSlices), body)
                                                         : api_.replace(path, body);
  if (!written) return fail_in("ResourceSlice " + write.slice.name, written.error());
  auto answer = codec::parse_slice(*written);
  if (!answer) return {};  // the watch will deliver it
  bool all = true;
  {
    const MutexLock lock(mutex_);
    if (learn(std::move(*answer))) all = remember_if_dropped(write.slice);
  }
  if (!all) {
    log_.warn("the API server dropped fields of a ResourceSlice",
              {{"slice", write.slice.name},
               {"hint", "it drops device taints if the feature gate DRADeviceTaints is off; kube-scheduler then "
                        "allocates unhealthy cards, and cards that slots use, to claims"}});
  }
  return {};
}

/// Compares what was sent with what the API server kept. If it kept something else, remembers what was sent, so that it
/// is not sent again and again. False: the first difference of this slice.
bool SlicePublisher::remember_if_dropped(const codec::PublishedSlice& sent) {
  const auto found = existing_.find(sent.name);
  if (found == existing_.end() || found->second.devices == sent.devices) {
    sent_.erase(sent.name);
    return true;
  }
  auto sent_copy = sent;
  sent_copy.version = found->second.version;
  return !sent_.insert_or_assign(sent.name, std::move(sent_copy)).second;
}

Result<std::size_t> SlicePublisher::reconcile() {
  {
    const MutexLock lock(mutex_);
    dirty_ = false;  // before the inputs are read: a change from now on causes another reconcile()
  }
  const bool shut = shut_ && !shut_().empty();
  const auto limits = limits_ ? limits_() : OfferLimits();
  auto wanted = slices_for(node_, shut ? std::vector<codec::PublishedDevice>() : devices_of(slices_.cards(), limits));
  std::vector<SliceWrite> writes;
  {
    const MutexLock lock(mutex_);
    if (!synced_)
      return fail(Code::kUnavailable, "the API server's ResourceSlices are not known yet");
    if (existing_.empty() && !registered_())
      return fail(Code::kUnavailable, "the kubelet has not registered the driver yet");
    // Existing taints are kept below. Without existing slices there are none, and kube-scheduler would allocate to
    // claims what records promise.
    if (existing_.empty() && !limits.known && limits.awaited)
      return fail(Code::kUnavailable, "the pods of this node are not known yet");
    std::vector<codec::PublishedSlice> existing;
    for (const auto& [name, slice] : existing_) {
      existing.push_back(slice);
      const auto sent = sent_.find(name);
      if (sent != sent_.end() && sent->second.version == slice.version) existing.back().devices = sent->second.devices;
    }
    if (!limits.known) keep_slots_taints(&wanted, existing);
    writes = plan(wanted, existing, last_generation_);
    if (!writes.empty())
      last_generation_ = std::max(last_generation_, writes.front().slice.generation);
  }
  for (const auto& one : writes) {
    if (auto done = write(one); !done) {
      const MutexLock lock(mutex_);
      dirty_ = true;
      return tl::unexpected(done.error());
    }
  }
  if (!writes.empty()) {
    log_.info("ResourceSlices written", {{"writes", writes.size()},
                                          {"slices", wanted.size()},
                                          {"generation", writes.front().slice.generation}});
  }
  return writes.size();
}

void SlicePublisher::run_writer(Clock& clock, const std::stop_token& stop) {
  Clock::Duration back_off = std::chrono::milliseconds(200);
  while (!stop.stop_requested()) {
    const auto done = reconcile();
    {
      const MutexLock lock(mutex_);
      const std::string now = done ? "" : done.error().what;
      if (now != error_ && !now.empty()) log_.warn("ResourceSlices not written", {{"error", now}});
      error_ = now;
    }
    if (!done && done.error().code != Code::kUnavailable) {
      // Spread by the node's name, so that a thousand agents do not retry at the same moment.
      const auto jitter = std::chrono::milliseconds(std::hash<std::string>()(node_) % 100);
      if (!clock.sleep_for(back_off + jitter, stop)) return;
      back_off = std::min<Clock::Duration>(back_off * 2, kMostBackOff);
      continue;
    }
    back_off = std::chrono::milliseconds(200);
    if (done && *done > 0 && !clock.sleep_for(kRest, stop)) return;
    const auto end = std::chrono::steady_clock::now() + (done ? kLook : kLookSoon);
    MutexLock lock(mutex_);
    while (!(dirty_ && synced_ && error_.empty()) && !stop.stop_requested() && std::chrono::steady_clock::now() < end) {
      changed_.wait_until(lock, stop, end);
    }
  }
}

std::string SlicePublisher::error() const {
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace carve::plugins
