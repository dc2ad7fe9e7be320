#include "app/control/bind/static_pod_binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/control/bind/binder.h"
#include "codec/record.h"

namespace carve::control {

Result<void> StaticPodBinder::write(const PodEntry& pod, const Reservation& room) {
  const auto& ask = pod.object.ask;
  CARVE_TRY(const auto record, record_of(room.epoch, room.slices));
  CARVE_TRY(const auto text, codec::encode_record(record));
  const auto wall = world_.clock.wall_now().time_since_epoch();
  std::map<std::string, std::string> all;
  const auto shown = codec::projections(ask, record, world_.model.counted_cards(room.node), world_.settings,
                                        static_cast<std::uint64_t>(wall.count()), room.node);
  for (const auto& [key, value] : shown) all[key] = value;
  all[std::string(codec::kRecordAnnotation)] = text;
  if (world_.leader.epoch() != room.epoch || !world_.leader.leads_until(world_.clock.now() + Binder::kWrite))
    return fail(Code::kUnavailable, "this replica of carve-control no longer leads");
  const auto path = pod_path(ask.namespace_name, ask.name);
  const auto written = world_.api.patch(path, KubePatch::kMerge, codec::annotations_patch(pod.object, all));
  if (!written) return tl::unexpected(written.error());
  return {};
}

Result<void> StaticPodBinder::place(const PodEntry& pod) {
  const auto& node = pod.object.node;
  CARVE_TRY(const auto room, world_.model.reserve(node, pod, world_.policy(pod, node), world_.leader.epoch()));
  const auto written = write(pod, room);
  // A patch with a lost answer is repeated with the same record, on the pod's then current resourceVersion.
  const auto lost = !written && may_be_done(written.error());
  world_.model.settle(node, pod.owner(), written ? Outcome::kBound : lost ? Outcome::kUnknown : Outcome::kFailed);
  if (!written) return written;
  const auto& ask = pod.object.ask;
  if (world_.post_event)
    world_.post_event({"Pod", ask.namespace_name, ask.name, ask.uid, "CardsAssigned",
                       "assigned " + what_it_got(node, room.slices), false});
  return {};
}

void StaticPodBinder::look_at(const std::string& uid, const ClusterModel::Pod& pod) {
  ++examined_;
  if (pod && pod->unplaced() && !pod->object.started) {
    open_.try_emplace(uid);
  } else {
    open_.erase(uid);
  }
}

void StaticPodBinder::try_to_place(const PodEntry& pod, Tried* tried) {
  const auto now = world_.clock.now();
  const auto placed = place(pod);
  const bool settled = placed || placed.error().code == Code::kAborted;
  const bool unsure = !settled && may_be_done(placed.error());
  const bool perhaps = unsure && !tried->unsure;  // the write may have taken effect: no event yet
  tried->unsure = unsure;
  tried->not_before = now + (!placed && (settled || perhaps) ? kRetrySoon : kRetry);
  if (settled || perhaps) return;
  world_.log.warn("a pod with a node that was chosen without Carve gets no cards",
                  {{"pod", pod.full_name()}, {"node", pod.object.node}, {"error", placed.error().what}});
  if (!world_.post_event) return;
  const auto& ask = pod.object.ask;
  const auto why = unsure
                       ? fmt::format("the record of its cards on node {} cannot be written", pod.object.node)
                       : fmt::format("node {} was chosen without Carve and cannot provide the cards", pod.object.node);
  world_.post_event({"Pod", ask.namespace_name, ask.name, ask.uid, "NoCards", why + ": " + placed.error().what});
}

Clock::Time StaticPodBinder::step() {
  const auto changes = queue_.take();
  const auto start = world_.clock.now();
  if (!world_.leader.leads_until(start + Binder::kWrite)) {
    behind_ = true;
    return start + kResync;
  }
  if (behind_ || changes.all || start >= resync_at_) {
    std::map<std::string, Tried> before;
    before.swap(open_);
    for (const auto& pod : world_.model.unplaced()) {
      const auto& uid = pod->object.ask.uid;
      if (const auto known = before.find(uid); known != before.end()) open_.insert(*known);
      look_at(uid, pod);
    }
    behind_ = false;
    resync_at_ = start + kResync;
  } else {
    for (const auto& uid : changes.pods) look_at(uid, world_.model.pod(uid));
  }
  auto next = resync_at_;
  const auto cluster = world_.model.snapshot();
  for (auto& [uid, tried] : open_) {
    const auto pod = world_.model.pod(uid);
    // A pod that is no longer unplaced, or a node that appears, is a change.
    if (!pod || !pod->unplaced() || !cluster->contains(pod->object.node)) continue;
    if (world_.clock.now() >= tried.not_before) {
      ++examined_;
      try_to_place(*pod, &tried);
    }
    next = std::min(next, tried.not_before);
  }
  return next;
}

void StaticPodBinder::run(const std::stop_token& stop) {
  queue_.run(world_.clock, stop, [this] { return step(); });
}

}  // namespace carve::control
