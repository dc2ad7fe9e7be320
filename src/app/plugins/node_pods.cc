#include "app/plugins/node_pods.h"

#include <fmt/format.h>

#include <utility>

namespace carve::plugins {
namespace {

constexpr std::string_view kPods = "/api/v1/pods";
constexpr std::size_t kRemembered = 10'000;

}  // namespace

void NodePods::run(const std::function<void()>& changed, const std::stop_token& stop) {
  KubeSink sink;
  sink.replace = [&](const std::vector<std::string>& objects) {
    replace(objects);
    changed();
  };
  sink.change = [&](const KubeChange& one) {
    change(one);
    changed();
  };
  sink.trouble = [](const Error&) {};
  api_.watch(std::string(kPods), {{"fieldSelector", "spec.nodeName=" + node_}}, sink, stop);
}

Result<void> NodePods::ask(const std::string& namespace_name, const std::string& name) {
  if (!name.empty()) {
    CARVE_TRY(const auto object, api_.get(fmt::format("/api/v1/namespaces/{}/pods/{}", namespace_name, name)));
    const MutexLock lock(mutex_);
    learn(object);
    return {};
  }
  CARVE_TRY(const auto objects, api_.list(std::string(kPods), {{"fieldSelector", "spec.nodeName=" + node_}}));
  const MutexLock lock(mutex_);
  for (const auto& object : objects) learn(object);
  return {};
}

void NodePods::learn(const std::string& object) {
  auto pod = codec::parse_node_pod(object);
  if (!pod || pod->node != node_) return;
  const auto uid = pod->uid;
  pods_[uid] = std::move(*pod);
  ++revision_;
}

void NodePods::forget(const std::string& uid) {
  const auto found = pods_.find(uid);
  if (found == pods_.end()) return;
  if (deleted_.size() >= kRemembered) deleted_.clear();
  deleted_.insert(uid);
  if (!found->second.mirror.empty()) deleted_.insert(found->second.mirror);
  pods_.erase(found);
  ++revision_;
}

void NodePods::replace(const std::vector<std::string>& objects) {
  const MutexLock lock(mutex_);
  auto before = std::exchange(pods_, {});
  for (const auto& object : objects) learn(object);
  // Pods that are not in the new list were deleted while the watch was interrupted.
  for (auto& [uid, pod] : before) {
    if (pods_.contains(uid)) continue;
    pods_.emplace(uid, std::move(pod));
    forget(uid);
  }
  synced_ = true;
}

void NodePods::change(const KubeChange& change) {
  const MutexLock lock(mutex_);
  if (change.kind == KubeChange::Kind::kPut) return learn(change.object);
  if (const auto pod = codec::parse_node_pod(change.object)) forget(pod->uid);
}

std::optional<codec::NodePod> NodePods::by_uid(const std::string& uid) const {
  const MutexLock lock(mutex_);
  if (const auto found = pods_.find(uid); found != pods_.end()) return found->second;
  for (const auto& [own, pod] : pods_) {
    if (!pod.mirror.empty() && pod.mirror == uid) return pod;
  }
  return std::nullopt;
}

std::optional<codec::NodePod> NodePods::by_name(const std::string& namespace_name, const std::string& name) const {
  const MutexLock lock(mutex_);
  const codec::NodePod* one = nullptr;
  for (const auto& [uid, pod] : pods_) {
    if (pod.namespace_name != namespace_name || pod.name != name || pod.ended) continue;
    if (one != nullptr) return std::nullopt;
    one = &pod;
  }
  return one == nullptr ? std::nullopt : std::optional(*one);
}

bool NodePods::was_deleted(const std::string& uid) const {
  const MutexLock lock(mutex_);
  return deleted_.contains(uid);
}

std::vector<codec::NodePod> NodePods::all() const {
  const MutexLock lock(mutex_);
  std::vector<codec::NodePod> pods;
  for (const auto& [uid, pod] : pods_) pods.push_back(pod);
  return pods;
}

std::uint64_t NodePods::revision() const {
  const MutexLock lock(mutex_);
  return revision_;
}

bool NodePods::synced() const {
  const MutexLock lock(mutex_);
  return synced_;
}

}  // namespace carve::plugins
