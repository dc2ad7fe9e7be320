#include "app/control/bind/binder.h"

#include <fmt/format.h>

#include <utility>

#include "codec/extender/extender.h"
#include "codec/record.h"

namespace carve::control {
namespace {

/// The slices for which another replica sent the pod there; empty if `wish` contains no valid record.
std::vector<Slice> slices_in(const std::string& wish) {
  if (wish.empty()) return {};
  const auto record = codec::decode_record(wish);
  return record ? slices_of(*record) : std::vector<Slice>();
}

}  // namespace

std::string what_it_got(const std::string& node, const std::vector<Slice>& slices) {
  std::string text = "on node " + node;
  for (const Slice& slice : slices) {
    text += fmt::format("{} container {}: ", &slice == slices.data() ? ":" : ";", slice.part);
    if (slice.whole) {
      text += "the whole card " + slice.card.str();
    } else {
      text += fmt::format("{} and compute {} ({}) of card {}", to_human(slice.memory), slice.compute.hundredths(),
                          to_string(slice.share), slice.card.str());
    }
  }
  return text;
}

std::string Binder::bind(std::string_view call) {
  struct InProgress {
    explicit InProgress(Binder& owner) : binder(owner) { ++binder.in_bind_; }
    InProgress(const InProgress&) = delete;
    InProgress& operator=(const InProgress&) = delete;
    ~InProgress() {
      // Before --in_bind_, so that busy() sees no gap.
      binder.last_ = binder.world_.clock.now().time_since_epoch().count();
      --binder.in_bind_;
    }
    Binder& binder;
  };
  const InProgress in_progress(*this);
  const auto done = bind_pod(call);
  return codec::binding_result(done ? std::string() : done.error().what);
}

bool Binder::busy() const {
  return in_bind_ > 0 || world_.clock.now().time_since_epoch() < Clock::Duration(last_.load()) + kBurst;
}

Result<ClusterModel::Pod> Binder::read_pod(const std::string& namespace_name, const std::string& name,
                                           const std::string& uid) {
  if (auto stored = world_.model.pod(uid)) return stored;
  // The watch has not shown the pod yet, or the pod requests nothing from Carve.
  CARVE_TRY(const auto text, world_.api.get(pod_path(namespace_name, name)));
  CARVE_TRY(auto object, codec::parse_cluster_pod(text));
  if (object.ask.uid != uid) return fail(Code::kNotFound, "another pod has this name now");
  PodEntry pod;
  pod.object = object;
  const PodRequests requests(world_.settings, world_.claims);
  if (auto entry = pod_entry_of(std::move(object), requests)) pod = std::move(*entry);
  return std::make_shared<const PodEntry>(std::move(pod));
}

Result<void> Binder::bind_pod(std::string_view call) {
  CARVE_TRY(const auto args, codec::parse_binding_args(call));
  const auto refuse = [this](Result<void> why) {
    ++refused_;
    return why;
  };
  // Twice kWrite: a pod that the model does not contain is read first.
  if (!world_.leader.leads_until(world_.clock.now() + 2 * kWrite)) {
    const auto holder = world_.leader.holder();
    return refuse(fail(Code::kUnavailable, fmt::format("this replica of carve-control does not lead{}; try again",
                                                       holder.empty() ? "" : " (the leader is " + holder + ")")));
  }
  const auto found = read_pod(args.namespace_name, args.pod, args.uid);
  if (!found) return refuse(fail_in("pod " + args.namespace_name + "/" + args.pod, found.error()));
  const PodEntry& pod = **found;
  if (!pod.request_error.empty()) return refuse(fail(Code::kInvalidArgument, pod.request_error));
  if (!pod.object.node.empty()) {
    if (pod.object.node == args.node && (pod.record || pod.parts.empty())) return {};  // the answer was lost
    return refuse(fail(Code::kFailedPrecondition, "the pod is already bound to node " + pod.object.node));
  }
  if (pod.parts.empty()) return bind_without_cards(pod, args.node);
  const auto epoch = world_.leader.epoch();
  auto why = world_.why_sent ? world_.why_sent(pod.owner(), args.node) : std::string();
  if (why.empty()) why = args.why;
  auto wish = world_.sent_for ? world_.sent_for(pod.owner(), args.node) : std::vector<Slice>();
  if (wish.empty()) wish = slices_in(args.wish);
  const auto room = world_.model.reserve(args.node, pod, world_.policy(pod, args.node), epoch, wish);
  if (!room) return refuse(fail_in("node " + args.node, room.error()));
  return write(pod, *room, why);
}

std::map<std::string, std::string> Binder::annotations_of(const PodEntry& pod, const Record& record,
                                                          const std::string& text) const {
  std::map<std::string, std::string> all;
  const auto wall = world_.clock.wall_now().time_since_epoch();
  const auto shown = codec::projections(pod.object.ask, record, world_.model.counted_cards(pod.object.node),
                                        world_.settings, static_cast<std::uint64_t>(wall.count()), pod.object.node);
  for (const auto& [key, value] : shown) all[key] = value;
  all[std::string(codec::kRecordAnnotation)] = text;
  return all;
}

Result<void> Binder::write(const PodEntry& pod, const Reservation& room, const std::string& why) {
  const auto& ask = pod.object.ask;
  const auto give_up = [&](Error error) -> Result<void> {
    world_.model.settle(room.node, room.owner, Outcome::kFailed);
    return tl::unexpected(std::move(error));
  };
  const auto record = record_of(room.epoch, room.slices);
  if (!record) return give_up(record.error());
  const auto text = codec::encode_record(*record);
  if (!text) return give_up(text.error());
  PodEntry bound = pod;
  bound.object.node = room.node;
  const auto body = codec::binding_body(pod.object, room.node, annotations_of(bound, *record, *text));
  // The last check before the write: it catches a process that was stopped since the first check.
  if (world_.leader.epoch() != room.epoch || !world_.leader.leads_until(world_.clock.now() + kWrite)) {
    ++refused_;
    return give_up({Code::kUnavailable, "this replica of carve-control no longer leads; try again"});
  }
  const auto written = world_.api.create(pod_path(ask.namespace_name, ask.name) + "/binding", body);
  if (written) {
    world_.model.settle(room.node, room.owner, Outcome::kBound);
    ++bound_;
    report_assigned(pod, room, why);
    return {};
  }
  const auto code = written.error().code;
  const bool lost = may_be_done(written.error());
  // 409: the pod is already bound, perhaps by an earlier write of ours with a lost answer; or the UID differs.
  if (!lost && code != Code::kAlreadyExists && code != Code::kAborted) {
    ++failed_;
    return give_up(written.error());
  }
  if (lost) ++unknown_;
  switch (read_outcome(room)) {
    case Seen::kOurs:
      world_.model.settle(room.node, room.owner, Outcome::kBound);
      ++found_bound_;
      report_assigned(pod, room);
      return {};
    case Seen::kNever:
      if (watch_is_behind(room))
        world_.model.settle(room.node, room.owner, Outcome::kUnknown);
      else
        world_.model.release(room.node, room.owner);
      break;
    case Seen::kUnbound:  // a refused write never takes effect; an unanswered one still may
      world_.model.settle(room.node, room.owner, lost ? Outcome::kUnknown : Outcome::kFailed);
      break;
    case Seen::kUnreadable:
      world_.model.settle(room.node, room.owner, Outcome::kUnknown);
      break;
  }
  if (!lost) ++failed_;
  return tl::unexpected(written.error());
}

/// A scheduler that is configured with more names than elasticgpu.io/slot also sends pods that request 0 of them, or
/// that have no slots. They hold nothing and get no record.
Result<void> Binder::bind_without_cards(const PodEntry& pod, const std::string& node) {
  const auto& ask = pod.object.ask;
  const auto written =
      world_.api.create(pod_path(ask.namespace_name, ask.name) + "/binding", codec::binding_body(pod.object, node, {}));
  if (!written) return tl::unexpected(written.error());
  ++bound_;
  return {};
}

Binder::Seen Binder::read_outcome(const Reservation& room) {
  const auto text = world_.api.get(pod_path(room.namespace_name, room.pod));
  if (!text) return text.error().code == Code::kNotFound ? Seen::kNever : Seen::kUnreadable;
  const auto object = codec::parse_cluster_pod(*text);
  if (!object) return Seen::kUnreadable;
  if (object->ask.uid != room.owner.uid || object->ended) return Seen::kNever;
  if (object->node.empty() || (object->node == room.node && object->record.empty())) return Seen::kUnbound;
  const auto record = codec::decode_record(object->record);
  const bool ours =
      object->node == room.node && record && record->owner == room.owner && slices_of(*record) == room.slices;
  return ours ? Seen::kOurs : Seen::kNever;
}

bool Binder::watch_is_behind(const Reservation& room) const { return world_.model.pod(room.owner.uid) != nullptr; }

void Binder::step() {
  const auto now = world_.clock.now();  // before the reads, so every read is at least as new
  for (const Reservation& room : world_.model.unsettled(now - kReadAfter)) {
    const auto seen = read_outcome(room);
    const bool expired = now >= room.since + kWriteExpired;
    if ((seen == Seen::kNever && (expired || !watch_is_behind(room))) || (seen == Seen::kUnbound && expired)) {
      ++released_;
      world_.model.release(room.node, room.owner);
      world_.log.info("room released: its write did not take effect",
                      {{"pod", room.namespace_name + "/" + room.pod}, {"node", room.node}});
    } else if (seen == Seen::kOurs && !room.bound) {
      ++found_bound_;
      world_.model.settle(room.node, room.owner, Outcome::kBound);
      if (const auto pod = world_.model.pod(room.owner.uid)) report_assigned(*pod, room);
    }
  }
}

void Binder::run(Clock& clock, const std::stop_token& stop) {
  while (clock.sleep_for(std::chrono::seconds(1), stop)) step();
}

void Binder::report_assigned(const PodEntry& pod, const Reservation& room, const std::string& why) {
  if (!world_.post_event) return;
  const auto& ask = pod.object.ask;
  world_.post_event({"Pod", ask.namespace_name, ask.name, ask.uid, "CardsAssigned",
                     "assigned " + what_it_got(room.node, room.slices) + (why.empty() ? "" : "; " + why), false});
}

Binder::Stats Binder::stats() const { return {bound_, refused_, failed_, unknown_, found_bound_, released_}; }

}  // namespace carve::control
