#include "app/control/state/cluster_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "codec/cluster/notes.h"
#include "core/policy/place_pod.h"

// The watches' events, and the ledgers that are built from them. Room that the binder sets aside: cluster_reserve.cc.
// An object that cannot be parsed keeps its last state, until it is deleted. That needs only its name and UID.
namespace carve::control {

KubeSink ClusterModel::nodes() {
  return {[this](const auto& all) { replace_nodes(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_node(change.object);
            const auto gone = codec::read_object_name(change.object);
            const MutexLock lock(mutex_);
            if (gone.name.empty()) return unreadable("Node", {Code::kInvalidArgument, "it is deleted and has no name"});
            touch_to_rebuild(gone.name).exists = false;
            publish();
          },
          {}};
}

KubeSink ClusterModel::gpus() {
  return {[this](const auto& all) { replace_gpus(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_gpu(change.object);
            const auto gone = codec::read_object_name(change.object);
            const MutexLock lock(mutex_);
            if (gone.name.empty()) return unreadable("GPU", {Code::kInvalidArgument, "it is deleted and has no name"});
            store_gpu(gone.name, std::nullopt);
            publish();
          },
          {}};
}

KubeSink ClusterModel::pods() {
  return {[this](const auto& all) { replace_pods(all); },
          [this](const KubeChange& change) {
            if (change.kind == KubeChange::Kind::kPut) return put_pod(change.object);
            const auto gone = codec::read_object_name(change.object);
            const MutexLock lock(mutex_);
            if (gone.uid.empty()) return unreadable("Pod", {Code::kInvalidArgument, "it is deleted and has no UID"});
            store_pod(gone.uid, nullptr);
            on_pod_settled(gone.uid);
            publish();
          },
          {}};
}

void ClusterModel::unreadable(const char* kind, const Error& error) {
  ++stats_.unreadable;
  log_.warn("an object from the API server cannot be parsed", {{"kind", kind}, {"error", error.what}});
}

NodeEntry& ClusterModel::touch(const std::string& node) {
  dirty_.insert(node);
  return nodes_[node];
}

NodeEntry& ClusterModel::touch_to_rebuild(const std::string& node) {
  NodeEntry& entry = touch(node);
  entry.rebuild = true;
  return entry;
}

NodeEntry& ClusterModel::touch_owner(const std::string& node, const Owner& owner) {
  NodeEntry& entry = touch(node);
  entry.changed_owners.insert(owner);
  return entry;
}

void ClusterModel::put_node(const std::string& text) {
  auto node = codec::parse_cluster_node(text);
  const MutexLock lock(mutex_);
  if (!node) return unreadable("Node", node.error());
  // Heartbeats, and all conditions except two, change nothing that is parsed.
  const auto stored = nodes_.find(node->name);
  if (stored != nodes_.end() && stored->second.exists && stored->second.node == *node) return;
  NodeEntry& entry = touch_to_rebuild(node->name);
  entry.exists = true;
  entry.node = std::move(*node);
  publish();
}

void ClusterModel::replace_nodes(const std::vector<std::string>& all) {
  std::vector<codec::ClusterNode> read;
  for (const auto& text : all) {
    auto node = codec::parse_cluster_node(text);
    if (node) {
      read.push_back(std::move(*node));
    } else {
      const MutexLock lock(mutex_);
      unreadable("Node", node.error());
    }
  }
  const MutexLock lock(mutex_);
  for (auto& [name, entry] : nodes_) {
    if (std::exchange(entry.exists, false)) dirty_.insert(name);
  }
  for (auto& node : read) {
    NodeEntry& entry = touch_to_rebuild(node.name);
    entry.exists = true;
    entry.node = std::move(node);
  }
  mark_synced(&nodes_synced_);
  publish();
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
  const MutexLock lock(mutex_);
  if (!object) return unreadable("GPU", object.error());
  gpu.object = std::move(*object);
  const auto name = gpu.object.name;
  store_gpu(name, std::move(gpu));
  publish();
}

void ClusterModel::replace_gpus(const std::vector<std::string>& all) {
  std::map<std::string, GpuEntry> read;
  std::set<std::string> kept;
  for (const auto& text : all) {
    GpuEntry gpu;
    auto object = codec::parse_gpu_object(text, &gpu.unreadable_holders);
    if (!object) {
      kept.insert(codec::read_object_name(text).name);
      const MutexLock lock(mutex_);
      unreadable("GPU", object.error());
      continue;
    }
    gpu.object = std::move(*object);
    const auto name = gpu.object.name;
    read[name] = std::move(gpu);
  }
  const MutexLock lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [name, node] : gpu_node_) {
    if (!read.contains(name) && !kept.contains(name)) gone.push_back(name);
  }
  for (const auto& name : gone) store_gpu(name, std::nullopt);
  for (auto& [name, gpu] : read) store_gpu(name, std::move(gpu));
  mark_synced(&gpus_synced_);
  publish();
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

/// Keeps the indexes of pods_, and publishes a change of a pod that waits or is unplaced.
void ClusterModel::index_pod(const std::string& uid, const PodEntry* before, const PodEntry* now) {
  const bool was_of_interest = waiting_.contains(uid) || unplaced_.contains(uid);
  if (before != nullptr && before->holds()) {
    --holding_;
    const auto held = before->object.deleting ? held_.end() : held_.find(before->object.priority);
    if (held != held_.end() && --held->second == 0) held_.erase(held);
  }
  if (now != nullptr && now->holds()) {
    ++holding_;
    if (!now->object.deleting) ++held_[now->object.priority];
  }
  waiting_.erase(uid);
  unplaced_.erase(uid);
  if (now != nullptr && now->waits()) waiting_.insert(uid);
  if (now != nullptr && now->unplaced()) unplaced_.insert(uid);
  if (was_of_interest || waiting_.contains(uid) || unplaced_.contains(uid)) changes_.pod(uid);
}

void ClusterModel::store_pod(const std::string& uid, Pod pod) {
  const auto stored = pods_.find(uid);
  const Pod before = stored == pods_.end() ? nullptr : stored->second;
  index_pod(uid, before.get(), pod.get());
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
    const MutexLock lock(mutex_);
    return unreadable("Pod", object.error());
  }
  const auto uid = object->ask.uid;
  // A pod with a node and without a record was placed without Carve: room may still be set aside (static_pod_binder.h).
  const bool decided = (!object->node.empty() && !object->record.empty()) || object->ended;
  auto entry = pod_entry_of(std::move(*object), requests_);
  const MutexLock lock(mutex_);
  if (entry) {
    store_pod(uid, std::make_shared<const PodEntry>(std::move(*entry)));
  } else if (pods_.contains(uid)) {
    store_pod(uid, nullptr);
  }
  if (decided) on_pod_settled(uid);
  publish();
}

void ClusterModel::replace_pods(const std::vector<std::string>& all) {
  std::map<std::string, Pod> read;
  std::set<std::string> decided;
  std::set<std::string> kept;
  for (const auto& text : all) {
    auto object = codec::parse_cluster_pod(text);
    if (!object) {
      kept.insert(codec::read_object_name(text).uid);
      const MutexLock lock(mutex_);
      unreadable("Pod", object.error());
      continue;
    }
    const auto uid = object->ask.uid;
    if ((!object->node.empty() && !object->record.empty()) || object->ended) decided.insert(uid);
    if (auto entry = pod_entry_of(std::move(*object), requests_))
      read[uid] = std::make_shared<const PodEntry>(std::move(*entry));
  }
  const MutexLock lock(mutex_);
  std::vector<std::string> gone;
  for (const auto& [uid, pod] : pods_) {
    if (!read.contains(uid) && !kept.contains(uid)) gone.push_back(uid);
  }
  // Room for a pod that is missing in this list stays: the list may be older than the pod. The binder reads the pod.
  for (const auto& uid : gone) store_pod(uid, nullptr);
  for (const auto& [uid, pod] : read) store_pod(uid, pod);
  for (const auto& uid : decided) on_pod_settled(uid);
  mark_synced(&pods_synced_);
  publish();
}

void ClusterModel::mark(const std::string& node, std::set<int> indexes) {
  const MutexLock lock(mutex_);
  touch_to_rebuild(node).marked = std::move(indexes);
  publish();
}

void ClusterModel::read_pods_again(const std::function<bool(const PodEntry&)>& which) {
  const MutexLock lock(mutex_);
  std::vector<Pod> found;
  for (const auto& [uid, pod] : pods_) {
    if (which(*pod)) found.push_back(pod);
  }
  for (const auto& pod : found) {
    auto now = pod_entry_of(pod->object, requests_);
    if (!now || (now->parts == pod->parts && now->request_error == pod->request_error)) continue;
    store_pod(pod->object.ask.uid, std::make_shared<const PodEntry>(std::move(*now)));
  }
  publish();
}

bool ClusterModel::drains(const std::string& node) const {
  const MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.exists && found->second.node.modes.drains;
}

std::vector<codec::GpuObject> ClusterModel::gpu_objects() const {
  std::vector<codec::GpuObject> all;
  const MutexLock lock(mutex_);
  for (const auto& [name, node] : nodes_) {
    for (const auto& [object, gpu] : node.gpus) all.push_back(gpu.object);
  }
  return all;
}

bool ClusterModel::synced() const {
  const MutexLock lock(mutex_);
  return all_synced();
}

/// Conflicts are reported from the moment that all three lists are complete: before it, a pod's card may simply not
/// have arrived yet.
void ClusterModel::mark_synced(bool* which) {
  if (all_synced()) return;
  *which = true;
  if (!all_synced()) return;
  for (const auto& [name, entry] : nodes_) dirty_.insert(name);
  changes_.all();
}

void ClusterModel::report_conflicts(const std::string& node, const std::vector<Conflict>& before,
                                    const std::vector<Conflict>& now) {
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

void ClusterModel::rebuild_node(const std::string& name, ClusterState::Nodes* changed) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  NodeEntry& entry = found->second;
  auto assembled = assemble_node(entry);
  ++stats_.rebuilt;
  const auto invalid = invalid_records(entry);
  assembled.conflicts.insert(assembled.conflicts.end(), invalid.begin(), invalid.end());
  // Without its Node object, the cards are gone and the pods are about to be deleted: this is not a conflict.
  if (!all_synced() || !entry.exists) assembled.conflicts.clear();
  report_conflicts(name, entry.conflicts, assembled.conflicts);
  entry.conflicts = std::move(assembled.conflicts);
  if (entry.exists && !entry.gpus.empty()) {
    (*changed)[name] = std::move(assembled.state);
  } else {
    (*changed)[name] = nullptr;
  }
  if (entry.empty()) nodes_.erase(found);
}

void ClusterModel::publish() {
  if (dirty_.empty()) return;
  ClusterState::Nodes changed;
  for (const auto& name : dirty_) rebuild_node(name, &changed);
  dirty_.clear();
  auto next = std::make_shared<ClusterState>(*published_);
  next->change(changed);
  published_ = std::move(next);
  for (const auto& [name, state] : changed) count_for_quotas(name, state.get());
  for (const auto& [name, state] : changed) changes_.node(name);
}

bool ClusterModel::expire_lingering_of(const std::string& node, Clock::Time now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return false;
  auto& gone = found->second.lingering;
  for (auto at = gone.begin(); at != gone.end();) {
    const bool over = at->second.until <= now;
    if (over) {
      (void)touch_owner(node, at->first);
    } else {
      linger_until_ = std::min(linger_until_, at->second.until);
    }
    at = over ? gone.erase(at) : std::next(at);
  }
  return !gone.empty();
}

void ClusterModel::expire_lingering(Clock::Time now) {
  if (now < linger_until_) return;
  linger_until_ = Clock::Time::max();
  for (auto at = lingering_.begin(); at != lingering_.end();)
    at = expire_lingering_of(*at, now) ? std::next(at) : lingering_.erase(at);
}

Clock::Time ClusterModel::expire_locked() {
  const auto now = clock_.now();
  expire_lingering(now);
  const auto nominated_until = expire_nominated(now);
  publish();
  return std::min(linger_until_, nominated_until);
}

Clock::Time ClusterModel::expire() {
  const MutexLock lock(mutex_);
  return expire_locked();
}

std::shared_ptr<const ClusterState> ClusterModel::snapshot() const {
  const MutexLock lock(mutex_);
  return published_;
}

std::uint64_t ClusterModel::highest_epoch() const {
  std::uint64_t highest = 0;
  const MutexLock lock(mutex_);
  for (const auto& [uid, pod] : pods_) {
    // A forged epoch would raise all later ones. No real epoch comes near this bound.
    if (pod->record && pod->record->epoch < INT32_MAX / 2) highest = std::max(highest, pod->record->epoch);
  }
  return highest;
}

ClusterModel::Pod ClusterModel::pod(const std::string& uid) const {
  const MutexLock lock(mutex_);
  const auto found = pods_.find(uid);
  return found == pods_.end() ? nullptr : found->second;
}

std::vector<ClusterModel::Pod> ClusterModel::waiting() const {
  std::vector<Pod> chosen;
  const MutexLock lock(mutex_);
  for (const auto& uid : waiting_) chosen.push_back(pods_.at(uid));
  return chosen;
}

std::vector<ClusterModel::Pod> ClusterModel::unplaced() const {
  std::vector<Pod> chosen;
  const MutexLock lock(mutex_);
  for (const auto& uid : unplaced_) chosen.push_back(pods_.at(uid));
  return chosen;
}

std::size_t ClusterModel::waiting_count() const {
  const MutexLock lock(mutex_);
  return waiting_.size();
}

std::int64_t ClusterModel::lowest_held_priority() const {
  const MutexLock lock(mutex_);
  return held_.empty() ? INT64_MAX : std::int64_t{held_.begin()->first};
}

std::vector<ClusterModel::Pod> ClusterModel::pods_where(const std::function<bool(const PodEntry&)>& wanted) const {
  std::vector<Pod> chosen;
  const MutexLock lock(mutex_);
  for (const auto& [uid, pod] : pods_) {
    if (wanted(*pod)) chosen.push_back(pod);
  }
  return chosen;
}

std::vector<codec::CountedCard> ClusterModel::counted_cards(const std::string& node) const {
  std::vector<codec::CountedCard> cards;
  const MutexLock lock(mutex_);
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return cards;
  for (const auto& [name, gpu] : entry->second.gpus)
    cards.push_back({gpu.object.card.id, gpu.object.index, gpu.object.card.memory});
  return cards;
}

std::vector<std::pair<std::string, Conflict>> ClusterModel::conflicts() const {
  std::vector<std::pair<std::string, Conflict>> all;
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : nodes_) {
    for (const auto& one : entry.conflicts) all.emplace_back(name, one);
  }
  return all;
}

ClusterModel::Stats ClusterModel::stats() const {
  const MutexLock lock(mutex_);
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
  now.holding = holding_;
  now.waiting = waiting_.size();
  now.unplaced = unplaced_.size();
  return now;
}

}  // namespace carve::control
