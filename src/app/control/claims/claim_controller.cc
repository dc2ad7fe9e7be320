#include "app/control/claims/claim_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "codec/claims/elastic_objects.h"
#include "core/cluster/cluster.h"
#include "core/policy/place_pod.h"

namespace carve::control {
namespace {

constexpr std::int32_t kAboveAll = std::numeric_limits<std::int32_t>::max();  // no pod preempts a claim

std::string claim_path(const ElasticClaim& claim) {
  return fmt::format("/apis/elasticgpu.io/v1alpha1/namespaces/{}/elasticgpuclaims/{}", claim.namespace_name,
                     claim.name);
}
std::string gpu_path(const std::string& name) { return fmt::format("{}/{}", codec::kElasticGpus, name); }

}  // namespace

bool ClaimController::has_room(const Owner& owner, const Request& request, const CardPlace& place) const {
  const auto cluster = world_.model.snapshot();
  const auto node = cluster->find(place.node);
  if (node == cluster->end()) return false;
  PartRequest part{std::string(kClaimPart), Phase::kRun, request};
  part.request.constraints.cards = place.cards;
  const SeenLedger seen(*node->second, owner, kAboveAll);
  return place_pod(*seen, node->second->links, owner, {part}, kPolicies[0]).has_value();
}

void ClaimController::read_users() {
  const auto before = world_.book.users();
  auto all = claim_users(world_.model, world_.book.world(), before);
  {
    const MutexLock lock(rooms_mutex_);
    for (const auto& [claim, users] : before) {
      for (const auto& pod : users) {
        if (all[claim].contains(pod)) continue;
        left_[claim].insert({OwnerKind::kPod, pod});
        freed_.insert(claim);
      }
    }
  }
  world_.book.keep_users(before, all);
}

/// Slices of pods that used the claim until now end on the room of the claim.
void ClaimController::add_leaving(const std::string& uid, ClaimRoom* room) {
  const auto left = left_.find(uid);
  if (left == left_.end()) return;
  const auto cluster = world_.model.snapshot();
  const auto node = cluster->find(room->node);
  std::erase_if(left->second, [&](const Owner& pod) {
    return node == cluster->end() || node->second->ledger.slices_of(pod).empty();
  });
  room->reservation.going.assign(left->second.begin(), left->second.end());
}

ClaimRooms ClaimController::wanted_rooms() {
  const auto world = world_.book.world();
  GpuCards cards;
  ClaimRooms rooms = claim_rooms(world_.model, world, world_.book.users(), &cards);
  world_.book.know_cards(std::move(cards));
  for (auto& [uid, room] : rooms) {
    if (room.reservation.owner.kind == OwnerKind::kClaim) add_leaving(uid, &room);
  }
  for (const auto& [name, gpu] : world.gpus) {
    if (gpu.claim && gpu.error.empty()) chosen_.erase(gpu.claim->uid);
  }
  const auto now = world_.clock.now();
  std::erase_if(chosen_, [&](const auto& one) { return one.second.second <= now; });
  for (const auto& [uid, chosen] : chosen_) rooms.try_emplace(uid, chosen.first);
  std::erase_if(left_, [](const auto& one) { return one.second.empty(); });
  return rooms;
}

void ClaimController::reserve_rooms() {
  const MutexLock lock(rooms_mutex_);
  ClaimRooms wanted = wanted_rooms();
  for (const auto& [uid, room] : rooms_) {
    if (!wanted.contains(uid)) world_.model.drop_nominated_reservation(uid);
  }
  for (const auto& [uid, room] : wanted) {
    const auto kept = rooms_.find(uid);
    if (kept != rooms_.end() && kept->second == room && world_.model.has_nominated_reservation(uid)) continue;
    world_.model.put_nominated_reservation(room.node, room.reservation, Clock::Time::max());
  }
  rooms_ = std::move(wanted);
}

Result<ClaimController::Place> ClaimController::place_of_first_user(const ElasticClaim& claim) const {
  const auto users = world_.book.users();
  const auto of = users.find(claim.uid);
  if (of == users.end()) return Place();
  for (const auto& uid : of->second) {
    const auto pod = world_.model.pod(uid);
    if (!pod || !pod->holds()) continue;
    for (const auto& use : codec::claims_of(pod->object.ask)) {
      const RecordPart* part = use.claim == claim.name ? part_named(*pod->record, use.container) : nullptr;
      if (part == nullptr || part->cards.empty()) continue;
      ElasticGpu there;
      there.node = pod->object.node;
      for (const auto& held : part->cards) there.cards.push_back(held.card.str());
      return place_of(world_.model, there);
    }
  }
  return Place();
}

Result<ClaimController::Place> ClaimController::choose(const ElasticClaim& claim, const ElasticClass& by,
                                                       const Request& request) {
  if (by.waits) return place_of_first_user(claim);
  const Owner owner{OwnerKind::kClaim, claim.uid};
  const auto cluster = world_.model.snapshot();
  const PartRequest part{std::string(kClaimPart), Phase::kRun, request};
  std::vector<std::string> names;
  for (const auto& [name, state] : *cluster) names.push_back(name);
  if (names.empty()) return fail(Code::kFailedPrecondition, "no node has cards");
  PodEntry as_pod;
  as_pod.object.ask.namespace_name = claim.namespace_name;
  const auto found = fit(*cluster, owner, {part}, names, world_.policy(as_pod, names.front()), kAboveAll);
  const FittingNode* best = choose_node(found.nodes);
  if (best == nullptr) return fail(Code::kResourceExhausted, explain(found.refused));
  const auto& state = *cluster->at(best->node);
  const SeenLedger seen(state, owner, kAboveAll);
  CARVE_TRY(const auto slices, place_pod(*seen, state.links, owner, {part}, world_.policy(as_pod, best->node)));
  CardPlace place{best->node, {}, {}};
  for (const Slice& slice : slices) add_card(&place, state.ledger.find(slice.card)->card);
  {
    const MutexLock lock(rooms_mutex_);
    const ClaimRoom room = room_for(owner, request, place);
    chosen_[claim.uid] = {room, world_.clock.now() + kAppears};
    rooms_[claim.uid] = room;
    world_.model.put_nominated_reservation(room.node, room.reservation, Clock::Time::max());
  }
  // A pod may have taken the room before it was kept.
  if (has_room(owner, request, place)) return Place(place);
  const MutexLock lock(rooms_mutex_);
  chosen_.erase(claim.uid);
  rooms_.erase(claim.uid);
  world_.model.drop_nominated_reservation(claim.uid);
  return fail(Code::kUnavailable, "another pod took the room meanwhile; the choice is repeated");
}

void ClaimController::say(const ElasticClaim& claim, const char* reason, std::string message, bool warning) const {
  if (!world_.post_event) return;
  world_.post_event(
      {"ElasticGPUClaim", claim.namespace_name, claim.name, claim.uid, reason, std::move(message), warning});
}

Result<void> ClaimController::write(const ClaimStep& step) {
  const auto done = [](const Result<std::string>& written) {
    return written ? Result<void>() : Result<void>(tl::unexpected(written.error()));
  };
  if (const auto* one = std::get_if<Protect>(&step)) {
    CARVE_TRY(const auto text, world_.api.get(claim_path(one->claim)));
    return done(world_.api.patch(claim_path(one->claim), KubePatch::kMerge,
                                 codec::protection_patch(one->claim, text, one->on)));
  }
  if (const auto* one = std::get_if<CreateGpu>(&step)) {
    const auto made = world_.api.create(std::string(codec::kElasticGpus), codec::encode_elastic_gpu(one->gpu));
    if (made || made.error().code == Code::kAlreadyExists) return {};
    return tl::unexpected(made.error());
  }
  if (const auto* one = std::get_if<ReferToClaim>(&step))
    return done(
        world_.api.patch(gpu_path(one->gpu.name), KubePatch::kMerge, codec::claim_ref_patch(one->gpu, one->claim)));
  if (const auto* one = std::get_if<ReferToGpu>(&step))
    return done(
        world_.api.patch(claim_path(one->claim), KubePatch::kMerge, codec::gpu_name_patch(one->claim, one->gpu)));
  if (const auto* one = std::get_if<SetGpuStatus>(&step))
    return done(world_.api.patch(gpu_path(one->gpu.name) + "/status", KubePatch::kMerge,
                                 codec::elastic_gpu_status(one->phase, one->message,
                                                           one->place ? &*one->place : nullptr)));
  if (const auto* one = std::get_if<DeleteGpu>(&step)) {
    const auto gone = world_.api.remove(gpu_path(one->gpu.name));
    return gone || gone.error().code == Code::kNotFound ? Result<void>() : gone;
  }
  const auto& one = std::get<SetClaimStatus>(step);
  const auto place = one.gpu ? place_of(world_.model, *one.gpu) : Place();
  const ElasticGpu shown = one.gpu.value_or(ElasticGpu());
  CARVE_TRY_VOID(done(world_.api.patch(claim_path(one.claim) + "/status", KubePatch::kMerge,
                                       codec::elastic_claim_status(one.phase, one.message, one.gpu ? &shown : nullptr,
                                                                   place ? &*place : nullptr))));
  if (one.phase == ClaimPhase::kBound) {
    say(one.claim, "Bound",
        fmt::format("bound to ElasticGPU {} on card{} {} of node {}", shown.name, shown.cards.size() == 1 ? "" : "s",
                    place ? card_list(place->cards) : card_list(shown.cards), shown.node),
        false);
    return requeue_on(shown.node);
  }
  say(one.claim, one.phase == ClaimPhase::kLost ? "Lost" : "Pending", one.message, true);
  return {};
}

/// Makes kube-scheduler retry pods that wait for a claim: they are not waiting pods of the model while the claim cannot
/// be used.
Result<void> ClaimController::requeue_on(const std::string& node) {
  const auto body = fmt::format(R"({{"metadata":{{"annotations":{{"elasticgpu.io/slices-free":"{}"}}}}}})",
                                world_.clock.wall_now().time_since_epoch().count());
  const auto done = world_.api.patch("/api/v1/nodes/" + node, KubePatch::kMerge, body);
  return done ? Result<void>() : Result<void>(tl::unexpected(done.error()));
}

Result<void> ClaimController::requeue_for_freed(const ClaimWorld& world) {
  for (auto at = freed_.begin(); at != freed_.end(); at = freed_.erase(at)) {
    for (const auto& [name, gpu] : world.gpus) {
      if (gpu.claim && gpu.claim->uid == *at) CARVE_TRY_VOID(requeue_on(gpu.node));
    }
  }
  return {};
}

Clock::Time ClaimController::step() {
  (void)queue_.take();
  const auto now = world_.clock.now();
  if (!world_.model.synced() || !world_.book.answered()) return now + kResync;
  if (world_.book.empty() && idle_) return now + kResync;
  read_users();
  reserve_rooms();
  world_.model.read_pods_again([](const PodEntry& pod) { return !codec::claims_of(pod.object.ask).empty(); });
  idle_ = world_.book.empty();
  auto world = world_.book.world();
  world.place_of = [this](const ElasticGpu& gpu) { return control::place_of(world_.model, gpu); };
  world.has_room = [this](const ElasticGpu& gpu, const CardPlace& place) {
    return has_room({OwnerKind::kClaim, gpu.uid}, gpu.request, place);
  };
  const auto users = world_.book.users();
  world.users = [&](const ElasticClaim& claim) {
    const auto of = users.find(claim.uid);
    return of == users.end() ? 0 : of->second.size();
  };
  world.choose = [this](const ElasticClaim& claim, const ElasticClass& by, const Request& request) {
    return choose(claim, by, request);
  };
  if (!world_.leader.leads_until(now + kWrite)) return now + kResync;
  if (const auto touched = requeue_for_freed(world); !touched) return now + kRetry;
  const auto steps = claim_steps(world);
  for (const auto& one : steps) {
    if (!world_.leader.leads_until(world_.clock.now() + kWrite)) return world_.clock.now() + kRetry;
    const auto done = write(one);
    if (done || done.error().code == Code::kAborted || done.error().code == Code::kNotFound) continue;
    world_.log.warn("an Elastic GPU object is not written", {{"error", done.error().what}});
    return world_.clock.now() + kRetry;
  }
  return world_.clock.now() + (steps.empty() ? Clock::Duration(kResync) : kGap);
}

void ClaimController::run(const std::stop_token& stop) {
  queue_.run(world_.clock, stop, [this] { return step(); }, kGap);
}

}  // namespace carve::control
