#include "app/node/gpu_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace carve::node {
namespace {

/// A digest of the urgent part of the status, for which other components wait: the card's health and the slices on it.
/// The holders' names are not urgent, because they disappear with the pod, a moment before its last process. Neither is
/// `ending`.
std::size_t urgent_status_of(codec::GpuObject gpu) {
  for (auto& holder : gpu.holders) holder = {holder.slice, {}, {}, {}, false};
  gpu.allocated.clear();
  return codec::digest_of(gpu).status;
}

std::vector<Slice> slices_of(const codec::GpuObject& gpu) {
  std::vector<Slice> slices;
  for (const auto& holder : gpu.holders) slices.push_back(holder.slice);
  return slices;
}

bool any_slice_ended(const std::vector<Slice>& shown, const codec::GpuObject& gpu) {
  return std::any_of(shown.begin(), shown.end(), [&](const Slice& slice) {
    return std::none_of(gpu.holders.begin(), gpu.holders.end(),
                        [&](const auto& holder) { return holder.slice == slice; });
  });
}

}  // namespace

void GpuPublisher::run_watch(const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [this](const std::vector<std::string>& objects) { replace(objects); };
  sink.change = [this](const KubeChange& one) { change(one); };
  sink.trouble = [](const Error&) {};
  api_.watch(std::string(kGpus), {{"fieldSelector", "spec.nodeName=" + node_}}, sink, stop);
}

void GpuPublisher::learn(const std::string& object) {
  auto digest = codec::parse_gpu_digest(object);
  // Objects with another node's name are ignored, regardless of their spec.
  if (!digest || !digest->name.starts_with(node_ + ".")) return;
  auto name = digest->name;
  existing_[std::move(name)] = std::move(*digest);
}

void GpuPublisher::replace(const std::vector<std::string>& objects) {
  const MutexLock lock(mutex_);
  existing_.clear();
  for (const auto& object : objects) learn(object);
  synced_ = dirty_ = true;
}

void GpuPublisher::change(const KubeChange& change) {
  const MutexLock lock(mutex_);
  dirty_ = true;
  if (change.kind == KubeChange::Kind::kPut) return learn(change.object);
  if (const auto gone = codec::parse_gpu_digest(change.object)) existing_.erase(gone->name);
}

bool GpuPublisher::dirty() const {
  const MutexLock lock(mutex_);
  return dirty_;
}

/// One write. A missing object is created without its status, which the API server drops in a creation. Otherwise the
/// different half is written: first the status, which is what people read.
Result<void> GpuPublisher::write(const codec::GpuObject& gpu, const codec::GpuDigest* there,
                                 const std::string& node_uid) {
  const auto path = fmt::format("{}/{}", kGpus, gpu.name);
  Result<std::string> written;
  if (there == nullptr) {
    written = api_.create(std::string(kGpus), codec::encode_gpu(gpu, node_uid));
  } else if (there->status != codec::digest_of(gpu).status) {
    written = api_.patch(path + "/status", KubePatch::kJson, codec::gpu_status_patch(gpu));
  } else {
    written = api_.patch(path, KubePatch::kJson, codec::gpu_spec_patch(gpu));
  }
  const MutexLock lock(mutex_);
  if (written) {
    learn(*written);
    return {};
  }
  // The object was created before and the answer was lost, or it was deleted meanwhile. The watch will deliver that;
  // until then the next step tries the other kind of write.
  if (written.error().code == Code::kNotFound) existing_.erase(gpu.name);
  return fail_in("GPU " + gpu.name, written.error());
}

Result<bool> GpuPublisher::remove_gone(const std::vector<codec::GpuObject>& wanted, bool complete,
                                       Clock::Time now) {
  std::vector<std::string> names;
  {
    const MutexLock lock(mutex_);
    for (const auto& entry : existing_) {
      const std::string& name = entry.first;
      if (std::none_of(wanted.begin(), wanted.end(), [&](const auto& gpu) { return gpu.name == name; }))
        names.push_back(name);
    }
  }
  std::erase_if(missing_since_, [&](const auto& entry) {
    return !complete || std::find(names.begin(), names.end(), entry.first) == names.end();
  });
  if (!complete) return false;
  bool waiting = false;
  for (const auto& name : names) {
    const auto since = missing_since_.emplace(name, now).first->second;
    if (now - since < kGone) {
      waiting = true;
      continue;
    }
    const auto removed = api_.remove(fmt::format("{}/{}", kGpus, name));
    if (!removed && removed.error().code != Code::kNotFound) return tl::unexpected(removed.error());
    const MutexLock lock(mutex_);
    existing_.erase(name);
  }
  return waiting;
}

Result<bool> GpuPublisher::step(const std::vector<codec::GpuObject>& wanted, bool complete,
                                const std::string& node_uid, Clock::Time now) {
  {
    const MutexLock lock(mutex_);
    if (!synced_)
      return fail(Code::kUnavailable,
                  "the API server's GPU objects are not known yet (is deploy/crds applied?)");
    dirty_ = false;
  }
  bool waiting = false;
  for (const auto& gpu : wanted) {
    std::optional<codec::GpuDigest> there;
    {
      const MutexLock lock(mutex_);
      if (const auto found = existing_.find(gpu.name); found != existing_.end())
        there = found->second;
    }
    const auto digest = codec::digest_of(gpu);
    if (there && there->spec == digest.spec && there->status == digest.status) continue;
    waiting = true;
    auto& shown = shown_[gpu.name];
    // Other changes can wait, and mostly revert before: a write now would delay the next write that shows free room.
    const auto urgent = urgent_status_of(gpu);
    const bool can_wait = there && there->spec == digest.spec && shown.urgent == urgent;
    if (!can_wait) shown.waits_since.reset();
    if (can_wait && now < shown.waits_since.value_or(now) + kGap) {
      if (!shown.waits_since) shown.waits_since = now;
      continue;
    }
    if (now < shown.next && !any_slice_ended(shown.slices, gpu)) continue;
    shown = {urgent, now + kGap, std::nullopt, slices_of(gpu)};
    CARVE_TRY_VOID(write(gpu, there ? &*there : nullptr, node_uid));
  }
  CARVE_TRY(const auto gone, remove_gone(wanted, complete, now));
  return waiting || gone;
}

}  // namespace carve::node
