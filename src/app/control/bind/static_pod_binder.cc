#include "app/control/bind/static_pod_binder.h"

#include <fmt/format.h>

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
  for (const auto& [key, value] : codec::projections(ask, record, world_.model.counted_cards(room.node),
                                                     world_.settings, static_cast<std::uint64_t>(wall.count())))
    all[key] = value;
  all[std::string(codec::kRecordAnnotation)] = text;
  if (world_.leader.epoch() != room.epoch || !world_.leader.leads_until(world_.clock.now() + Binder::kWrite))
    return fail(Code::kUnavailable, "this replica of carve-control no longer leads");
  const auto path = pod_path(ask.space, ask.name);
  const auto written = world_.api.patch(path, KubePatch::kMerge, codec::annotations_patch(pod.object, all));
  if (!written) return tl::unexpected(written.error());
  return {};
}

Result<void> StaticPodBinder::place(const PodEntry& pod) {
  const auto& node = pod.object.node;
  CARVE_TRY(const auto room, world_.model.reserve(node, pod, world_.policy(pod, node), world_.leader.epoch()));
  const auto written = write(pod, room);
  // A patch whose answer is lost is repeated with the same record, on the pod's then current resourceVersion.
  const auto lost = !written && may_be_done(written.error());
  world_.model.settle(node, pod.owner(), written ? Outcome::kBound : lost ? Outcome::kUnknown : Outcome::kFailed);
  if (!written) return written;
  const auto& ask = pod.object.ask;
  if (world_.post_event)
    world_.post_event(
        {"Pod", ask.space, ask.name, ask.uid, "CardsAssigned", "assigned " + what_it_got(node, room.slices), false});
  return {};
}

void StaticPodBinder::step() {
  if (!world_.leader.leads_until(world_.clock.now() + Binder::kWrite)) return;
  const auto open = world_.model.pods_where([](const PodEntry& pod) { return pod.unplaced() && !pod.object.started; });
  if (open.empty()) return tried_.clear();
  const auto cluster = world_.model.snapshot();
  for (const auto& pod : open) {
    const auto now = world_.clock.now();
    auto& tried = tried_[pod->object.ask.uid];
    if (now < tried.not_before || !cluster->contains(pod->object.node)) continue;
    const auto placed = place(*pod);
    const bool settled = placed || placed.error().code == Code::kAborted;
    const bool unsure = !settled && may_be_done(placed.error());
    const bool perhaps = unsure && !tried.unsure;  // the write may have taken effect: no event yet
    tried.unsure = unsure;
    tried.not_before = now + (!placed && (settled || perhaps) ? kRetrySoon : kRetry);
    if (settled || perhaps) continue;
    world_.log.warn("a pod whose node was chosen without Carve gets no cards",
                    {{"pod", pod->full_name()}, {"node", pod->object.node}, {"error", placed.error().what}});
    if (!world_.post_event) continue;
    const auto& ask = pod->object.ask;
    const auto why =
        unsure ? fmt::format("the record of its cards on node {} cannot be written", pod->object.node)
               : fmt::format("node {} was chosen without Carve and cannot provide the cards", pod->object.node);
    world_.post_event({"Pod", ask.space, ask.name, ask.uid, "NoCards", why + ": " + placed.error().what});
  }
}

void StaticPodBinder::run(const std::stop_token& stop) {
  while (world_.clock.sleep_for(kPoll, stop)) step();
}

}  // namespace carve::control
