#include "app/control/api/read_api.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "app/control/claims/claim_rooms.h"
#include "app/control/state/policy_watcher.h"
#include "core/cluster/ruled_fit.h"

namespace carve::control {
namespace {

bool names(const codec::GpuObject& gpu, const Slice& slice) {
  return std::any_of(gpu.holders.begin(), gpu.holders.end(), [&](const codec::GpuHolder& holder) {
    return holder.slice.owner == slice.owner && holder.slice.part == slice.part;
  });
}

const CardState* card_of(const ClusterState& cluster, const codec::GpuObject& gpu) {
  const auto node = cluster.find(gpu.node);
  return node == cluster.end() ? nullptr : node->second->ledger.find(gpu.card.id);
}

void add_booked(const ClusterModel& model, const CardState& card, codec::GpuObject* gpu) {
  for (const Slice& slice : card.slices) {
    if (names(*gpu, slice)) continue;
    codec::GpuHolder holder;
    holder.slice = slice;
    if (const auto pod = model.pod(slice.owner.uid)) {
      holder.namespace_name = pod->object.ask.namespace_name;
      holder.name = pod->object.ask.name;
    }
    gpu->holders.push_back(std::move(holder));
  }
}

codec::ClusterView view(const ClusterModel& model, const ClaimBook& claims, const PlacementRules* rules) {
  const auto cluster = model.snapshot();
  std::vector<codec::WaitingPod> waiting;
  for (const auto& pod : model.waiting()) {
    const bool asked = rules != nullptr && waiting.size() < kWhys;
    waiting.push_back({pod->object.ask.namespace_name, pod->object.ask.name, to_human(pod->parts),
                       asked ? why_it_waits(*pod, model, *cluster, *rules) : pod->request_error});
  }
  auto cards = model.gpu_objects();
  add_unreported(model, *cluster, &cards);
  const auto world = claims.world();
  GpuCards places;
  add_room_holders(model, world, claim_rooms(model, world, claims.users(), &places), &cards);
  return codec::cluster_view(std::move(cards), std::move(waiting));
}

}  // namespace

std::string why_it_waits(const PodEntry& pod, const ClusterModel& model, const ClusterState& cluster,
                         const PlacementRules& rules) {
  if (!pod.request_error.empty()) return pod.request_error;
  std::vector<std::string> names;
  for (const auto& [name, state] : cluster) names.push_back(name);
  if (names.empty()) return "no node has cards";
  const auto found = fit(cluster, pod.owner(), model.within_quota(pod), names, policy_of(rules, pod.object.ask),
                         pod.object.priority);
  if (!found.nodes.empty()) return "fits on " + found.nodes.front().node + "; it waits for something else";
  return explain(found.refused);
}

void add_unreported(const ClusterModel& model, const ClusterState& cluster, std::vector<codec::GpuObject>* cards) {
  for (auto& gpu : *cards) {
    const CardState* card = card_of(cluster, gpu);
    if (card == nullptr) continue;
    add_booked(model, *card, &gpu);
    gpu.card.closed = card->card.closed;
    gpu.card.mode = card->card.mode;
  }
}

codec::ClusterView view_of(const ClusterModel& model, const ClaimBook& claims) { return view(model, claims, nullptr); }

codec::ClusterView view_with_whys(const ClusterModel& model, const ClaimBook& claims, const PlacementRules& rules) {
  return view(model, claims, &rules);
}

}  // namespace carve::control
