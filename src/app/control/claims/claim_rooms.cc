#include "app/control/claims/claim_rooms.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <utility>

#include "codec/claims/elastic_objects.h"

namespace carve::control {
namespace {

/// The index in "gpu-3" or "3"; nullopt: a UUID.
std::optional<int> index_in(std::string_view name) {
  constexpr std::string_view kStart = "gpu-";
  if (name.starts_with(kStart)) name.remove_prefix(kStart.size());
  int index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return index;
}

/// How many pods may use the ElasticGPU at a time, by the class of its claim.
std::uint32_t most_pods(const ClaimWorld& world, const ElasticGpu& gpu) {
  std::string class_name = gpu.class_name;
  if (gpu.claim) {
    const auto claim = world.claims.find({gpu.claim->namespace_name, gpu.claim->name});
    if (claim != world.claims.end()) class_name = claim->second.class_name;
  }
  const auto by = world.classes.find(class_name);
  return by == world.classes.end() ? 1 : by->second.pods;
}

bool has_claim(const ElasticGpu& gpu) { return gpu.claim && !gpu.claim->uid.empty(); }

bool has_room(const ElasticGpu& gpu) { return gpu.error.empty() && (has_claim(gpu) || keeps_room(gpu.phase)); }

void add_rooms(const ClusterModel& model, const ElasticGpu& gpu, const CardPlace& place, std::uint32_t most,
               const ClaimBook::Users& users, ClaimRooms* rooms) {
  const std::string uid = has_claim(gpu) ? gpu.claim->uid : gpu.uid;
  std::uint32_t used = 0;
  if (const auto of = users.find(uid); of != users.end()) {
    for (const auto& pod : of->second) {
      ++used;
      const auto stored = model.pod(pod);
      if (stored && stored->holds()) continue;
      (*rooms)[pod] = room_for({OwnerKind::kPod, pod}, part_of(gpu.request, 1, most), place);
    }
  }
  if (used >= most || (used > 0 && gpu.request.whole)) return;
  (*rooms)[uid] = room_for({OwnerKind::kClaim, uid}, part_of(gpu.request, most - used, most), place);
}

}  // namespace

ClaimRoom room_for(const Owner& owner, const Request& request, const CardPlace& place) {
  constexpr std::int32_t kAboveAll = std::numeric_limits<std::int32_t>::max();  // no pod preempts a claim
  Slice slice;
  slice.owner = owner;
  slice.part = kClaimPart;
  slice.memory = request.memory.on(place.memory);
  slice.compute = request.compute.on(place.model).value_or(CoreShare::whole());
  slice.whole = request.whole;
  slice.exclusive = request.whole || request.constraints.exclusive;
  slice.share = request.share;
  slice.dialect = request.dialect;
  std::vector<Slice> slices;
  for (const CardId& card : place.cards) {
    slice.card = card;
    slices.push_back(slice);
  }
  return {place.node, {owner, kAboveAll, std::move(slices), {}}};
}

void add_card(CardPlace* place, const Card& card) {
  const bool first = place->cards.empty();
  if (first) place->model = card.model;
  place->memory = first ? card.memory : std::min(place->memory, card.memory);
  place->cards.push_back(card.id);
}

std::optional<CardPlace> place_of(const ClusterModel& model, const ElasticGpu& gpu) {
  const auto cluster = model.snapshot();
  const auto node = cluster->find(gpu.node);
  if (node == cluster->end()) return std::nullopt;
  CardPlace place{gpu.node, {}, {}};
  for (const auto& name : gpu.cards) {
    CardId id(name);
    if (const auto index = index_in(name)) {
      for (const auto& card : model.counted_cards(gpu.node)) {
        if (card.index == *index) id = card.id;
      }
    }
    const CardState* state = node->second->ledger.find(id);
    if (state == nullptr) return std::nullopt;
    add_card(&place, state->card);
    if (const Health& health = state->card.health; !health.ok && place.trouble.empty())
      place.trouble = fmt::format("card {} is unhealthy: {}", id.str(), health.reason);
  }
  return place.cards.empty() ? std::nullopt : std::optional(std::move(place));
}

ClaimBook::Users claim_users(const ClusterModel& model, const ClaimWorld& world, const ClaimBook::Users& before) {
  ClaimBook::Users all;
  const auto pods = model.pods_where(
      [](const PodEntry& pod) { return !pod.object.ended && !codec::claims_of(pod.object.ask).empty(); });
  for (const auto& pod : pods) {
    for (const auto& use : codec::claims_of(pod->object.ask)) {
      const auto claim = world.claims.find({pod->object.ask.namespace_name, use.claim});
      if (claim == world.claims.end()) continue;
      const auto known = before.find(claim->second.uid);
      const bool took = known != before.end() && known->second.contains(pod->object.ask.uid);
      if (pod->holds() || took) all[claim->second.uid].insert(pod->object.ask.uid);
    }
  }
  return all;
}

ClaimRooms claim_rooms(const ClusterModel& model, const ClaimWorld& world, const ClaimBook::Users& users,
                       GpuCards* cards) {
  ClaimRooms rooms;
  for (const auto& [name, gpu] : world.gpus) {
    if (!has_room(gpu)) continue;
    const auto place = place_of(model, gpu);
    if (!place) continue;
    (*cards)[name] = place->cards;
    add_rooms(model, gpu, *place, most_pods(world, gpu), users, &rooms);
  }
  return rooms;
}

void add_room_holders(const ClusterModel& model, const ClaimWorld& world, const ClaimRooms& rooms,
                      std::vector<codec::GpuObject>* cards) {
  std::map<std::string, codec::GpuHolder> names;  // by the UID of the claim, or of the ElasticGPU without one
  for (const auto& [name, gpu] : world.gpus) names[gpu.uid] = {{}, {}, "ElasticGPU " + name, {}, false};
  for (const auto& [name, claim] : world.claims)
    names[claim.uid] = {{}, {}, fmt::format("claim {}/{}", name.first, name.second), {}, false};
  std::map<std::pair<std::string, CardId>, std::vector<codec::GpuHolder>> holders;  // by node and card
  for (const auto& [uid, room] : rooms) {
    if (const auto pod = model.pod(uid))
      names[uid] = {{}, pod->object.ask.namespace_name, pod->object.ask.name, {}, false};
    for (const Slice& slice : room.reservation.slices) {
      auto holder = names[uid];
      holder.slice = slice;
      holders[{room.node, slice.card}].push_back(std::move(holder));
    }
  }
  if (holders.empty()) return;
  for (auto& gpu : *cards) {
    const auto found = holders.find({gpu.node, gpu.card.id});
    if (found != holders.end()) gpu.holders.insert(gpu.holders.end(), found->second.begin(), found->second.end());
  }
}

}  // namespace carve::control
