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
constexpr auto kRest = std::chrono::milliseconds(200);     // after a write: what changes meanwhile goes with the next
constexpr auto kMostBackOff = std::chrono::seconds(30);

/// Of two versions of an object the first is the older one: its number is smaller (promised since Kubernetes 1.35).
/// False where one of them is no number.
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
  api_.watch(std::string(kSlices),
             {{"fieldSelector", fmt::format("spec.driver={},spec.nodeName={}", kDriver, node_)}},
             sink, stop);
}

/// False: it is not ours, or older than what is known. The watch comes after the answer to a write of ours, perhaps
/// only after that to the next one; and an answer may come after the watch.
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
    const std::lock_guard lock(mutex_);
    existing_.clear();
    told_.clear();
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
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
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
  auto answer = codec::parse_slice(*written);
  if (!answer) return {};  // the watch will tell
  bool all = true;
  {
    const std::lock_guard lock(mutex_);
    if (learn(std::move(*answer))) all = kept(write.slice);
  }
  if (!all) {
    log_.warn("the API server does not keep all of a resource slice",
              {{"slice", write.slice.name},
               {"hint", "device taints are dropped where the feature gate DRADeviceTaints is off: the scheduler then "
                        "gives cards to claims that are unhealthy or in use by slots"}});
  }
  return {};
}

/// Remembers what was sent where something else came back, so that it is not sent again and again. False: for the
/// first time.
bool SlicePublisher::kept(const codec::PublishedSlice& sent) {
  const auto found = existing_.find(sent.name);
  if (found == existing_.end() || found->second.devices == sent.devices) {
    told_.erase(sent.name);
    return true;
  }
  auto told = sent;
  told.version = found->second.version;
  return !told_.insert_or_assign(sent.name, std::move(told)).second;
}

Result<std::size_t> SlicePublisher::reconcile() {
  {
    const std::lock_guard lock(mutex_);
    dirty_ = false;  // before anybody is asked: what changes from now on is for the next time
  }
  const bool shut = shut_ && !shut_().empty();
  const auto use = by_slots_ ? by_slots_() : SlotUse();
  auto wanted =
      slices_for(node_, shut ? std::vector<codec::PublishedDevice>() : devices_of(slices_.cards(), use.cards));
  std::vector<SliceWrite> writes;
  {
    const std::lock_guard lock(mutex_);
    if (!synced_)
      return fail(Code::kUnavailable, "the API server's ResourceSlices are not known yet");
    if (existing_.empty() && !registered_())
      return fail(Code::kUnavailable, "the kubelet has not registered the driver yet");
    // A taint that is there is kept; where none can be, the scheduler would give to claims what records promise.
    if (existing_.empty() && !use.known && use.awaited)
      return fail(Code::kUnavailable, "the pods of this node are not known yet");
    std::vector<codec::PublishedSlice> existing;
    for (const auto& [name, slice] : existing_) {
      existing.push_back(slice);
      const auto told = told_.find(name);
      if (told != told_.end() && told->second.version == slice.version) existing.back().devices = told->second.devices;
    }
    if (!use.known) keep_slots_taints(&wanted, existing);
    writes = plan(wanted, existing, last_generation_);
    if (!writes.empty())
      last_generation_ = std::max(last_generation_, writes.front().slice.generation);
  }
  for (const auto& one : writes) {
    if (auto done = write(one); !done) {
      const std::lock_guard lock(mutex_);
      dirty_ = true;
      return tl::unexpected(done.error());
    }
  }
  if (!writes.empty()) {
    log_.info("resource slices written", {{"writes", writes.size()},
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
    if (done && *done > 0 && !clock.sleep_for(kRest, stop)) return;
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
