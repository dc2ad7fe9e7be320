#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "app/control/state/cluster_model.h"
#include "core/cluster/ruled_fit.h"
#include "core/policy/place_pod.h"

// Room that is set aside while a decision is written.
namespace carve::control {

namespace {

/// The same requests, each restricted to the cards that `wish` names for its part.
std::vector<PartRequest> on_cards_of(const std::vector<Slice>& wish, std::vector<PartRequest> parts) {
  for (auto& part : parts) {
    auto& cards = part.request.constraints.cards;
    if (!cards.empty()) continue;
    for (const Slice& slice : wish) {
      if (slice.part == part.part) cards.push_back(slice.card);
    }
  }
  return parts;
}

}  // namespace

Result<Reservation> ClusterModel::reserve(const std::string& node, const PodEntry& pod,
                                          const PolicyRow& policy, std::uint64_t epoch,
                                          const std::vector<Slice>& wish) {
  const Owner owner = pod.owner();
  const MutexLock lock(mutex_);
  const auto stored = pods_.find(owner.uid);
  if (stored != pods_.end() && !stored->second->object.node.empty() &&
      !(stored->second->unplaced() && stored->second->object.node == node))
    return fail(Code::kFailedPrecondition, "the pod is already bound to node " + stored->second->object.node);
  expire_locked();
  if (!published_->contains(node)) return fail(Code::kNotFound, fmt::format("node {}: {}", node, kNoCardThere));
  NodeEntry& entry = nodes_[node];
  // A pod that got this node without Carve is already bound there, and waits for its cards.
  const bool bound_here = stored != pods_.end() && stored->second->object.node == node;
  if (entry.node.leaving && !bound_here) return fail(Code::kUnavailable, kAgentIsReplaced);
  // This applies to a bound pod as well: the kubelet has given it that plugin's devices, or will.
  if (const auto& why = closed_by_dialect(*published_->at(node), pod.parts); !why.empty())
    return fail(Code::kUnavailable, why);
  if (const auto found = entry.reserved.find(owner); found != entry.reserved.end()) {
    if (found->second.epoch == epoch) {
      ++found->second.writes_in_flight;
      found->second.since = clock_.now();
      return found->second;
    }
    // From an earlier term: another leader may have assigned the same room since.
    free_room(node, owner);
    publish();
  }
  return reserve_locked(node, pod, policy, epoch, wish);
}

Result<Reservation> ClusterModel::reserve_locked(const std::string& node, const PodEntry& pod, const PolicyRow& policy,
                                                 std::uint64_t epoch, const std::vector<Slice>& wish) {
  const auto state = published_->find(node);
  if (state == published_->end()) return fail(Code::kNotFound, fmt::format("node {}: {}", node, kNoCardThere));
  const SeenLedger seen(*state->second, pod.owner(), pod.object.priority);
  const auto placed = [&](const std::vector<PartRequest>& asked) {
    return place_pod(*seen, state->second->links, pod.owner(), asked, policy);
  };
  const auto parts = quota_book_.within(pod.object.ask.namespace_name, pod.owner(), pod.parts);
  std::optional<std::vector<Slice>> wished;
  if (!wish.empty()) {
    if (auto found = placed(on_cards_of(wish, parts))) wished = std::move(*found);
  }
  std::vector<Slice> slices;
  if (wished) {
    slices = std::move(*wished);
  } else {
    CARVE_TRY(slices, placed(parts));
  }
  const auto& ask = pod.object.ask;
  Reservation room{node,  pod.owner(), ask.namespace_name, ask.name, std::move(slices), epoch, clock_.now(), 1,
                   false, false};
  touch_owner(node, pod.owner()).reserved[pod.owner()] = room;
  reserved_[ask.uid].insert(node);
  publish();
  return room;
}

void ClusterModel::settle(const std::string& node, const Owner& owner, Outcome outcome) {
  const MutexLock lock(mutex_);
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return;
  const auto found = entry->second.reserved.find(owner);
  if (found == entry->second.reserved.end()) return;  // the watch has shown the record already
  Reservation& room = found->second;
  room.writes_in_flight = std::max(0, room.writes_in_flight - 1);
  room.outcome_unknown = room.outcome_unknown || outcome == Outcome::kUnknown;
  room.bound = room.bound || outcome == Outcome::kBound;
  if (room.writes_in_flight == 0 && !room.outcome_unknown && !room.bound) free_room(node, owner);
  publish();
}

void ClusterModel::release(const std::string& node, const Owner& owner) {
  const MutexLock lock(mutex_);
  free_room(node, owner);
  publish();
}

void ClusterModel::free_room(const std::string& node, const Owner& owner) {
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end() || entry->second.reserved.erase(owner) == 0) return;
  (void)touch_owner(node, owner);
  const auto where = reserved_.find(owner.uid);
  if (where == reserved_.end()) return;
  where->second.erase(node);
  if (where->second.empty()) reserved_.erase(where);
}

/// The pod is bound with a record, or has ended: other sources account for its slices now.
void ClusterModel::drop_reservations(const std::string& uid) {
  const auto where = reserved_.find(uid);
  if (where == reserved_.end()) return;
  const Owner owner{OwnerKind::kPod, uid};
  for (const auto& node : where->second) touch_owner(node, owner).reserved.erase(owner);
  reserved_.erase(where);
}

void ClusterModel::on_pod_settled(const std::string& uid) {
  drop_reservations(uid);
  erase_nominated(uid);
}

void ClusterModel::erase_nominated(const std::string& uid) {
  const auto where = nominated_.find(uid);
  if (where == nominated_.end()) return;
  std::erase_if(touch(where->second).kept, [&](const auto& one) { return one.first.uid == uid; });
  nominated_.erase(where);
}

void ClusterModel::put_nominated_reservation(const std::string& node, NominatedReservation reservation,
                                             Clock::Time until) {
  const MutexLock lock(mutex_);
  const Owner owner = reservation.owner;
  erase_nominated(owner.uid);
  nominated_[owner.uid] = node;
  touch(node).kept[owner] = {std::move(reservation), until};
  publish();
}

void ClusterModel::drop_nominated_reservation(const std::string& uid) {
  const MutexLock lock(mutex_);
  erase_nominated(uid);
  publish();
}

bool ClusterModel::has_nominated_reservation(const std::string& uid) const {
  const auto now = clock_.now();
  const MutexLock lock(mutex_);
  const auto where = nominated_.find(uid);
  const auto entry = where == nominated_.end() ? nodes_.end() : nodes_.find(where->second);
  if (entry == nodes_.end()) return false;
  const auto kept = entry->second.kept.find({OwnerKind::kPod, uid});
  return kept != entry->second.kept.end() && now < kept->second.until;
}

Clock::Time ClusterModel::expire_nominated(Clock::Time now) {
  auto next = Clock::Time::max();
  for (auto at = nominated_.begin(); at != nominated_.end();) {
    const auto entry = nodes_.find(at->second);
    bool over = entry == nodes_.end();
    if (!over) {
      auto& kept = entry->second.kept;
      const auto room = kept.find({OwnerKind::kPod, at->first});
      over = room != kept.end() && room->second.until <= now;
      if (room != kept.end() && !over) next = std::min(next, room->second.until);
      if (over) kept.erase(room);
    }
    if (over) dirty_.insert(at->second);
    at = over ? nominated_.erase(at) : std::next(at);
  }
  return next;
}

std::vector<std::string> ClusterModel::departed() const {
  std::vector<std::string> uids;
  const auto now = clock_.now();
  const MutexLock lock(mutex_);
  for (const auto& [uid, since] : departed_) {
    if (now < since + kDeparted) uids.push_back(uid);
  }
  return uids;
}

std::vector<Reservation> ClusterModel::unsettled(Clock::Time before) const {
  std::vector<Reservation> open;
  const MutexLock lock(mutex_);
  for (const auto& [uid, where] : reserved_) {
    for (const auto& node : where) {
      const auto entry = nodes_.find(node);
      if (entry == nodes_.end()) continue;
      const auto found = entry->second.reserved.find({OwnerKind::kPod, uid});
      if (found != entry->second.reserved.end() && found->second.writes_in_flight == 0 && found->second.since <= before)
        open.push_back(found->second);
    }
  }
  return open;
}

void ClusterModel::set_quotas(Quotas quotas) {
  const MutexLock lock(mutex_);
  if (quotas == quota_book_.quotas()) return;
  quota_book_.set(std::move(quotas));
  for (const auto& [name, state] : *published_) count_for_quotas(name, state.get());
  ++quota_changes_;
  changes_.all();
}

std::uint64_t ClusterModel::quota_changes() const {
  const MutexLock lock(mutex_);
  return quota_changes_;
}

std::vector<PartRequest> ClusterModel::within_quota(const std::string& namespace_name, const Owner& owner,
                                                    std::vector<PartRequest> parts) const {
  const MutexLock lock(mutex_);
  return quota_book_.within(namespace_name, owner, std::move(parts));
}

std::vector<PartRequest> ClusterModel::within_quota(const PodEntry& pod) const {
  return within_quota(pod.object.ask.namespace_name, pod.owner(), pod.parts);
}

std::vector<QuotaUse> ClusterModel::quota_uses() const {
  const MutexLock lock(mutex_);
  return quota_book_.uses();
}

void ClusterModel::count_for_quotas(const std::string& node, const NodeState* state) {
  if (!quota_book_.any()) return;
  std::map<Owner, std::string> names;
  if (state != nullptr) {
    for (const CardState& card : state->ledger.cards()) {
      for (const Slice& slice : card.slices) {
        if (!names.contains(slice.owner)) names[slice.owner] = namespace_of(node, slice.owner);
      }
    }
  }
  quota_book_.put(node, state, [&](const Owner& owner) { return names.at(owner); });
}

std::string ClusterModel::namespace_of(const std::string& node, const Owner& owner) const {
  const auto pod = owner.kind == OwnerKind::kPod ? pods_.find(owner.uid) : pods_.end();
  if (pod != pods_.end()) return pod->second->object.ask.namespace_name;
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return {};
  const auto reserved = entry->second.reserved.find(owner);
  if (reserved != entry->second.reserved.end()) return reserved->second.namespace_name;
  for (const auto& [name, gpu] : entry->second.gpus) {
    for (const auto& holder : gpu.object.holders) {
      if (holder.slice.owner == owner) return holder.namespace_name;
    }
  }
  return {};
}

}  // namespace carve::control
