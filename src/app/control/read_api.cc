#include "app/control/read_api.h"

#include <algorithm>
#include <utility>

namespace carve::control {
namespace {

bool names(const codec::GpuObject& gpu, const Slice& slice) {
  return std::any_of(gpu.holders.begin(), gpu.holders.end(), [&](const codec::GpuHolder& holder) {
    return holder.slice.owner == slice.owner && holder.slice.part == slice.part;
  });
}

/// What the ledger books on the card and its node has not said yet: room set aside, and pods that were bound just now.
void add_booked(const ClusterModel& model, const ClusterState& cluster, codec::GpuObject* gpu) {
  const auto node = cluster.find(gpu->node);
  const CardState* card = node == cluster.end() ? nullptr : node->second->ledger.find(gpu->card.id);
  if (card == nullptr) return;
  for (const Slice& slice : card->slices) {
    if (names(*gpu, slice)) continue;
    codec::GpuHolder holder;
    holder.slice = slice;
    if (const auto pod = model.pod(slice.owner.uid)) {
      holder.space = pod->object.ask.space;
      holder.name = pod->object.ask.name;
    }
    gpu->holders.push_back(std::move(holder));
  }
}

}  // namespace

codec::ClusterView view_of(const ClusterModel& model) {
  std::vector<codec::WaitingPod> waiting;
  for (const auto& pod : model.pods_where([](const KnownPod& one) { return one.waits(); })) {
    waiting.push_back({pod->object.ask.space, pod->object.ask.name, to_human(pod->parts), pod->nonsense});
  }
  auto cards = model.gpu_objects();
  const auto cluster = model.snapshot();
  for (auto& gpu : cards) add_booked(model, *cluster, &gpu);
  return codec::cluster_view(std::move(cards), std::move(waiting));
}

}  // namespace carve::control
