#include "app/control/state/cluster_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/policy/place_pod.h"

// The watches' events, and the ledgers that are built from them. Room that the binder sets aside: cluster_reserve.cc.
namespace carve::control {

KubeSink ClusterModel::nodes() {
  return {[this](const auto& all) { replace_nodes(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_node(change.object);
            const auto gone = codec::parse_cluster_node(change.object);
            const std::lock_guard lock(mutex_);
            if (!gone) return unreadable("Node", gone.error());
            touch_to_rebuild(gone->name).exists = false;
          },
          {}};
}

KubeSink ClusterModel::gpus() {
  return {[this](const auto& all) { replace_gpus(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_gpu(change.object);
            std::size_t unreadable_holders = 0;
            const auto gone = codec::parse_gpu_object(change.object, &unreadable_holders);
            const std::lock_guard lock(mutex_);
            if (!gone) return unreadable("GPU", gone.error());
            store_gpu(gone->name, std::nullopt);
          },
          {}};
}

KubeSink ClusterModel::pods() {
  return {[this](const auto& all) { replace_pods(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_pod(change.object);
            const auto gone = codec::parse_cluster_pod(change.object);
            const std::lock_guard lock(mutex_);
            if (!gone) return unreadable("Pod", gone.error());
            store_pod(gone->ask.uid, nullptr);
            on_pod_settled(gone->ask.uid);
          },
          {}};
}

void ClusterModel::unreadable(const char* kind, const Error& error) {
  ++stats_.unreadable;
  log_.warn("an object from the API server cannot be parsed", {{"kind", kind}, {"error", error.what}});
}

NodeEntry& ClusterModel::touch(const std::string& node) const {
  dirty_.insert(node);
  return nodes_[node];
}

NodeEntry& ClusterModel::touch_to_rebuild(const std::string& node) const {
  NodeEntry& entry = touch(node);
  entry.rebuild = true;
  return entry;
}

NodeEntry& ClusterModel::touch_owner(const std::string& node, const Owner& owner) const {
  NodeEntry& entry = touch(node);
  entry.changed_owners.insert(owner);
  return entry;
}

void ClusterModel::put_node(const std::string& text) {
  auto node = codec::parse_cluster_node(text);
  const std::lock_guard lock(mutex_);
  if (!node) return unreadable("Node", node.error());
  // Heartbeats, and all conditions except two, change nothing that is parsed.
  const auto stored = nodes_.find(node->name);
  if (stored != nodes_.end() && stored->second.exists && stored->second.node == *node) return;
  NodeEntry& entry = touch_to_rebuild(node->name);
  entry.exists = true;
  entry.node = std::move(*node);
}

void ClusterModel::replace_nodes(const std::vector<std::string>& all) {
  std::vector<codec::ClusterNode> read;
  for (const auto& text : all) {
    auto node = codec::parse_cluster_node(text);
    if (node) {
      read.push_back(std::move(*node));
    } else {
      const std::lock_guard lock(mutex_);
      unreadable("Node", node.error());
    }
  }
  const std::lock_guard lock(mutex_);
  for (auto& [name, entry] : nodes_) {
    if (std::exchange(entry.exists, false)) dirty_.insert(name);
  }
  for (auto& node : read) {
    NodeEntry& entry = touch_to_rebuild(node.name);
    entry.exists = true;
    entry.node = std::move(node);
  }
  mark_synced(&nodes_synced_);
}

void ClusterModel::store_gpu(const std::string& name, std::optional<GpuEntry> gpu) {
  const auto before = gpu_node_.find(name);
  if (before != gpu_node_.end() && (!gpu || gpu->object.node != before->second)) {
    touch(before->second).put_gpu(name, std::nullopt);
    gpu_node_.erase(before);
  }
  if (!gpu) return;
  gpu_node_[name] = gpu->object.node;
  NodeEntry& entry = touch(gpu->object.node);
  // From now on this object accounts for these slices.
  for (const auto& holder : gpu->object.holders) {
    if (entry.lingering.erase(holder.slice.owner) > 0) entry.changed_owners.insert(holder.slice.owner);
  }
  entry.put_gpu(name, std::move(gpu));
}

void ClusterModel::put_gpu(const std::string& text) {
  GpuEntry gpu;
  auto object = codec::parse_gpu_object(text, &gpu.unreadable_holders);
  const std::lock_guard lock(mutex_);
  if (!object) return unreadable("GPU", object.error());
  gpu.object = std::move(*object);
  const auto name = gpu.object.name;
  store_gpu(name, std::move(gpu));
}

void ClusterModel::replace_gpus(const std::vector<std::string>& all) {
  std::map<std::string, GpuEntry> read;
  for (const auto& text : all) {
    GpuEntry gpu;
    auto object = codec::parse_gpu_object(text, &gpu.unreadable_holders);
    if (!object) {
      const std::lock_guard lock(mutex_);
      unreadable("GPU", object.error());
      continue;
    }
    gpu.object = std::move(*object);
    const auto name = gpu.object.name;
    read[name] = std::move(gpu);
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [name, node] : gpu_node_) {
    if (!read.contains(name)) gone.push_back(name);
  }
  for (const auto& name : gone) store_gpu(name, std::nullopt);
  for (auto& [name, gpu] : read) store_gpu(name, std::move(gpu));
  mark_synced(&gpus_synced_);
}

/// The pod's slices stay booked until its node has had the time to name them in a GPU object.
void ClusterModel::on_pod_removed(const PodEntry& pod) {
  const auto now = clock_.now();
  if (now >= departed_cleanup_at_) {  // not for each of thousands of deleted pods
    std::erase_if(departed_, [&](const auto& one) { return one.second + kDeparted <= now; });
    departed_cleanup_at_ = now + std::chrono::seconds(1);
  }
  departed_[pod.object.ask.uid] = now;
  NodeEntry& entry = touch_owner(pod.object.node, pod.owner());
  if (entry.named(pod.owner())) return;
  lingering_.insert(pod.object.node);
  entry.lingering[pod.owner()] = {slices_of(*pod.record), pod.record->epoch, now + kLinger};
  linger_until_ = std::min(linger_until_, now + kLinger);
}

void ClusterModel::store_pod(const std::string& uid, Pod pod) {
  const auto stored = pods_.find(uid);
  const Pod before = stored == pods_.end() ? nullptr : stored->second;
  const auto same = [&](const codec::ClusterPod& a, const codec::ClusterPod& b) {
    return a.node == b.node && a.record == b.record && a.ended == b.ended;
  };
  if (before && pod && !pod->object.node.empty() && same(before->object, pod->object)) {
    // Only its status changed: no booking changes.
    stored->second = nodes_[pod->object.node].pods[uid] = pod;
    return;
  }
  if (before && !before->object.node.empty()) touch_owner(before->object.node, before->owner()).pods.erase(uid);
  if (pod) {
    pods_[uid] = pod;
    if (!pod->object.node.empty()) touch_owner(pod->object.node, pod->owner()).pods[uid] = pod;
  } else if (before) {
    pods_.erase(stored);
  }
  if (before && before->holds() && !(pod && pod->holds())) on_pod_removed(*before);
}

void ClusterModel::put_pod(const std::string& text) {
  auto object = codec::parse_cluster_pod(text);
  if (!object) {
    const std::lock_guard lock(mutex_);
    return unreadable("Pod", object.error());
  }
  const auto uid = object->ask.uid;
  // A pod with a node and without a record was placed without Carve: room may still be set aside (static_pod_binder.h).
  const bool decided = (!object->node.empty() && !object->record.empty()) || object->ended;
  auto entry = pod_entry_of(std::move(*object), settings_);
  const std::lock_guard lock(mutex_);
  if (entry) {
    store_pod(uid, std::make_shared<const PodEntry>(std::move(*entry)));
  } else if (pods_.contains(uid)) {
    store_pod(uid, nullptr);
  }
  if (decided) on_pod_settled(uid);
}

void ClusterModel::replace_pods(const std::vector<std::string>& all) {
  std::map<std::string, Pod> read;
  std::set<std::string> decided;
  for (const auto& text : all) {
    auto object = codec::parse_cluster_pod(text);
    if (!object) {
      const std::lock_guard lock(mutex_);
      unreadable("Pod", object.error());
      continue;
    }
    const auto uid = object->ask.uid;
    if ((!object->node.empty() && !object->record.empty()) || object->ended) decided.insert(uid);
    if (auto entry = pod_entry_of(std::move(*object), settings_))
      read[uid] = std::make_shared<const PodEntry>(std::move(*entry));
  }
  const std::lock_guard lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [uid, pod] : pods_) {
    if (!read.contains(uid)) gone.push_back(uid);
  }
  // Room for a pod that is missing in this list stays: the list may be older than the pod. The binder reads the pod.
  for (const auto& uid : gone) store_pod(uid, nullptr);
  for (const auto& [uid, pod] : read) store_pod(uid, pod);
  for (const auto& uid : decided) on_pod_settled(uid);
  mark_synced(&pods_synced_);
}

void ClusterModel::mark(const std::string& node, std::set<int> indexes) {
  const std::lock_guard lock(mutex_);
  touch_to_rebuild(node).marked = std::move(indexes);
}

std::vector<codec::GpuObject> ClusterModel::gpu_objects() const {
  std::vector<codec::GpuObject> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, node] : nodes_) {
    for (const auto& [object, gpu] : node.gpus) all.push_back(gpu.object);
  }
  return all;
}

bool ClusterModel::synced() const {
  const std::lock_guard lock(mutex_);
  return all_synced();
}

/// Conflicts are reported from the moment that all three lists are complete: before it, a pod's card may simply not
/// have arrived yet.
void ClusterModel::mark_synced(bool* which) {
  if (all_synced()) return;
  *which = true;
  if (!all_synced()) return;
  for (const auto& [name, entry] : nodes_) dirty_.insert(name);
}

void ClusterModel::report_conflicts(const std::string& node, const std::vector<Conflict>& before,
                                    const std::vector<Conflict>& now) const {
  for (const auto& one : now) {
    if (std::find(before.begin(), before.end(), one) != before.end()) continue;
    ++stats_.conflicts_seen;
    log_.error("a booked slice does not fit",
               {{"node", node},
                {"owner", fmt::format("{} {}", to_string(one.owner.kind), one.owner.uid)},
                {"card", one.card.str()},
                {"why", one.why},
                {"hint", "the card is closed to new slices until one of its owners releases its slice"}});
  }
  for (const auto& one : before) {
    if (std::find(now.begin(), now.end(), one) != now.end()) continue;
    log_.info("a booked slice that did not fit is resolved", {{"node", node}, {"owner", one.owner.uid}});
  }
}

void ClusterModel::refresh_node(const std::string& name, ClusterState::Nodes* changed) const {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  NodeEntry& entry = found->second;
  auto assembled = assemble_node(entry);
  ++stats_.rebuilt;
  const auto invalid = invalid_records(entry);
  assembled.conflicts.insert(assembled.conflicts.end(), invalid.begin(), invalid.end());
  if (!all_synced()) assembled.conflicts.clear();
  report_conflicts(name, entry.conflicts, assembled.conflicts);
  entry.conflicts = std::move(assembled.conflicts);
  if (entry.exists && !entry.gpus.empty()) {
    (*changed)[name] = std::move(assembled.state);
  } else {
    (*changed)[name] = nullptr;
  }
  if (entry.empty()) nodes_.erase(found);
}

void ClusterModel::expire_lingering() const {
  const auto now = clock_.now();
  if (now < linger_until_) return;
  linger_until_ = Clock::Time::max();
  for (auto at = lingering_.begin(); at != lingering_.end();) {
    const auto found = nodes_.find(*at);
    bool left = false;
    if (found != nodes_.end()) {
      auto& gone = found->second.lingering;
      std::erase_if(gone, [&](const auto& one) {
        if (one.second.until > now) {
          linger_until_ = std::min(linger_until_, one.second.until);
          return false;
        }
        (void)touch_owner(*at, one.first);
        return true;
      });
      left = !gone.empty();
    }
    at = left ? std::next(at) : lingering_.erase(at);
  }
}

void ClusterModel::refresh() const {
  expire_lingering();
  expire_nominated();
  if (dirty_.empty()) return;
  ClusterState::Nodes changed;
  for (const auto& name : dirty_) refresh_node(name, &changed);
  dirty_.clear();
  auto next = std::make_shared<ClusterState>(*published_);
  next->change(changed);
  published_ = std::move(next);
}

std::shared_ptr<const ClusterState> ClusterModel::snapshot() const {
  const std::lock_guard lock(mutex_);
  refresh();
  return published_;
}

std::uint64_t ClusterModel::highest_epoch() const {
  std::uint64_t highest = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [uid, pod] : pods_) {
    // A forged epoch would raise all later ones. No real epoch comes near this bound.
    if (pod->record && pod->record->epoch < INT32_MAX / 2) highest = std::max(highest, pod->record->epoch);
  }
  return highest;
}

ClusterModel::Pod ClusterModel::pod(const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : found->second;
}

void ClusterModel::each_pod(const std::function<void(const PodEntry&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [uid, pod] : pods_) visit(*pod);
}

std::vector<ClusterModel::Pod> ClusterModel::pods_where(const std::function<bool(const PodEntry&)>& wanted) const {
  std::vector<Pod> chosen;
  const std::lock_guard lock(mutex_);
  for (const auto& [uid, pod] : pods_) {
    if (wanted(*pod)) chosen.push_back(pod);
  }
  return chosen;
}

std::vector<codec::CountedCard> ClusterModel::counted_cards(const std::string& node) const {
  std::vector<codec::CountedCard> cards;
  const std::lock_guard lock(mutex_);
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return cards;
  for (const auto& [name, gpu] : entry->second.gpus)
    cards.push_back({gpu.object.card.id, gpu.object.index, gpu.object.card.memory});
  return cards;
}

std::vector<std::pair<std::string, Conflict>> ClusterModel::conflicts() const {
  std::vector<std::pair<std::string, Conflict>> all;
  const std::lock_guard lock(mutex_);
  refresh();
  for (const auto& [name, entry] : nodes_) {
    for (const auto& one : entry.conflicts) all.emplace_back(name, one);
  }
  return all;
}

ClusterModel::Stats ClusterModel::stats() const {
  const std::lock_guard lock(mutex_);
  refresh();
  Stats now = stats_;
  now.nodes = published_->size();
  for (const auto& [name, state] : *published_) {
    now.cards += state->ledger.cards().size();
    now.leaving += state->closed.empty() ? 0 : 1;
    now.conflicting += state->closed_to.empty() ? 0 : 1;
    for (const auto& card : state->ledger.cards()) now.closed += card.card.closed.empty() ? 0 : 1;
  }
  for (const auto& [name, entry] : nodes_) {
    now.conflicts += entry.conflicts.size();
    now.reserved += entry.reserved.size();
    now.nominated += entry.kept.size();
  }
  for (const auto& [uid, pod] : pods_) {
    now.holding += pod->holds() ? 1 : 0;
    now.waiting += pod->waits() ? 1 : 0;
    now.unplaced += pod->unplaced() ? 1 : 0;
  }
  return now;
}

}  // namespace carve::control
