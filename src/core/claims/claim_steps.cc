#include "core/claims/claim_steps.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace carve {
namespace {

/// One computation: which objects have a step already, and what was found so far.
struct Steps {
  const ClaimWorld& world;
  std::vector<ClaimStep> all = {};
  std::set<std::string> gpus = {};  // names of ElasticGPUs with a step
};

const ElasticClaim* claim_of(const ClaimWorld& world, const ElasticClaimRef& ref) {
  const auto found = world.claims.find({ref.namespace_name, ref.name});
  return found == world.claims.end() ? nullptr : &found->second;
}

bool is_of(const ElasticGpu& gpu, const ElasticClaim& claim) {
  return gpu.claim && gpu.claim->uid == claim.uid && !claim.uid.empty();
}

using Place = std::optional<CardPlace>;

void say_gpu(Steps& steps, const ElasticGpu& gpu, const Place& place, GpuPhase phase, std::string message) {
  const bool placed = !place || (gpu.shown_node == place->node && gpu.shown_cards == card_list(place->cards));
  if (placed && gpu.phase == to_string(phase) && gpu.message == message) return;
  steps.all.push_back(SetGpuStatus{gpu, phase, std::move(message), place});
  steps.gpus.insert(gpu.name);
}

void say_claim(Steps& steps, const ElasticClaim& claim, ClaimPhase phase, std::string message,
               std::optional<ElasticGpu> gpu = std::nullopt) {
  if (claim.phase == to_string(phase) && claim.message == message) return;
  steps.all.push_back(SetClaimStatus{claim, phase, std::move(message), std::move(gpu)});
}

/// The claim of this ElasticGPU is gone: by the reclaim policy it is deleted, or kept for an administrator.
void reclaim(Steps& steps, const ElasticGpu& gpu, const Place& place) {
  if (gpu.retain)
    return say_gpu(steps, gpu, place, GpuPhase::kReleased, "its claim is deleted; clear spec.claimRef to reuse it");
  steps.all.push_back(DeleteGpu{gpu});
  steps.gpus.insert(gpu.name);
}

void step_gpu(Steps& steps, const ElasticGpu& gpu) {
  if (gpu.deleting) return;
  if (!gpu.error.empty()) return say_gpu(steps, gpu, {}, GpuPhase::kFailed, gpu.error);
  const Place place = steps.world.place_of(gpu);
  const ElasticClaim* claim = gpu.claim ? claim_of(steps.world, *gpu.claim) : nullptr;
  const bool released = gpu.claim && !gpu.claim->uid.empty() && (claim == nullptr || claim->uid != gpu.claim->uid);
  if (released) return reclaim(steps, gpu, place);
  if (!place)
    return say_gpu(steps, gpu, place, GpuPhase::kFailed,
                   "there is no card " + card_list(gpu.cards) + " on node " + gpu.node);
  if (!place->trouble.empty()) return say_gpu(steps, gpu, place, GpuPhase::kFailed, place->trouble);
  if (gpu.claim && !gpu.claim->uid.empty()) return say_gpu(steps, gpu, place, GpuPhase::kBound, "");
  if (gpu.phase != to_string(GpuPhase::kAvailable) && !steps.world.has_room(gpu, *place))
    return say_gpu(steps, gpu, place, GpuPhase::kPending, "other slices hold the room on the card");
  say_gpu(steps, gpu, place, GpuPhase::kAvailable, "");
}

/// The smallest Available ElasticGPU that serves the claim; nullptr: there is none.
const ElasticGpu* match(const Steps& steps, const ElasticClaim& claim, const Request& request) {
  const ElasticGpu* best = nullptr;
  std::tuple<bool, Bytes, CoreShare, std::string> least;
  for (const auto& [name, gpu] : steps.world.gpus) {
    if (gpu.deleting || gpu.phase != to_string(GpuPhase::kAvailable) || steps.gpus.contains(name)) continue;
    if (!gpu.class_name.empty() && gpu.class_name != claim.class_name) continue;
    const bool meant = gpu.claim && gpu.claim->namespace_name == claim.namespace_name && gpu.claim->name == claim.name;
    if (gpu.claim && !meant) continue;
    const auto place = steps.world.place_of(gpu);
    if (!place || !place->trouble.empty() || !serves(gpu, request, place->memory, place->model)) continue;
    std::tuple size{!meant, gpu.request.memory.on(place->memory), gpu.request.compute.share(), name};
    if (best != nullptr && size >= least) continue;
    best = &gpu;
    least = std::move(size);
  }
  return best;
}

ElasticGpu provisioned(const ElasticClaim& claim, const ElasticClass& by, const Request& request,
                       const CardPlace& place) {
  ElasticGpu gpu;
  gpu.name = provisioned_name(claim);
  gpu.class_name = by.name;
  gpu.node = place.node;
  for (const CardId& card : place.cards) gpu.cards.push_back(card.str());
  gpu.request = request;
  gpu.request.compute = request.compute.on(place.model).value_or(CoreShare());
  gpu.claim = ElasticClaimRef{claim.namespace_name, claim.name, claim.uid};
  gpu.retain = by.retain;
  return gpu;
}

void bind(Steps& steps, const ElasticClaim& claim) {
  const auto found = steps.world.classes.find(claim.class_name);
  if (found == steps.world.classes.end())
    return say_claim(steps, claim, ClaimPhase::kPending,
                     claim.class_name.empty() ? "it names no class" : "class " + claim.class_name + " does not exist");
  const ElasticClass& by = found->second;
  if (!by.error.empty()) return say_claim(steps, claim, ClaimPhase::kPending, "class " + by.name + ": " + by.error);
  const Provisioner* provisioner = provisioner_named(by.provisioner);
  if (provisioner == nullptr)
    return say_claim(steps, claim, ClaimPhase::kPending,
                     "class " + by.name + ": provisioner \"" + by.provisioner + "\" does not exist; legal are " +
                         provisioner_names());
  if (!provisioner->unsupported.empty())
    return say_claim(steps, claim, ClaimPhase::kPending,
                     "provisioner " + by.provisioner + ": " + std::string(provisioner->unsupported));
  const Request request = request_by(*provisioner, by, claim.request);
  if (const ElasticGpu* gpu = match(steps, claim, request)) {
    steps.all.push_back(ReferToClaim{*gpu, {claim.namespace_name, claim.name, claim.uid}});
    steps.gpus.insert(gpu->name);
    return;
  }
  const auto place = steps.world.choose(claim, by, request);
  if (!place) return say_claim(steps, claim, ClaimPhase::kPending, place.error().what);
  if (!*place) return say_claim(steps, claim, ClaimPhase::kPending, "waits for the first pod that uses it");
  steps.all.push_back(CreateGpu{provisioned(claim, by, request, **place)});
}

void step_claim(Steps& steps, const ElasticClaim& claim) {
  // Only while pods use it: without control, an unused claim can be deleted.
  const bool used = steps.world.users(claim) > 0;
  if (claim.is_protected != used && (!claim.deleting || !used)) return steps.all.push_back(Protect{claim, used});
  if (claim.deleting) return;
  if (!claim.gpu.empty()) {
    const auto found = steps.world.gpus.find(claim.gpu);
    if (found == steps.world.gpus.end())
      return say_claim(steps, claim, ClaimPhase::kLost, "ElasticGPU " + claim.gpu + " does not exist");
    if (!is_of(found->second, claim))
      return say_claim(steps, claim, ClaimPhase::kLost, "ElasticGPU " + claim.gpu + " belongs to another claim");
    ElasticGpu shown = found->second;
    const auto by = steps.world.classes.find(claim.class_name);
    const auto* provisioner = by == steps.world.classes.end() ? nullptr : provisioner_named(by->second.provisioner);
    if (provisioner != nullptr) shown.request = request_by(*provisioner, by->second, shown.request);
    return say_claim(steps, claim, ClaimPhase::kBound, "", std::move(shown));
  }
  if (!claim.error.empty()) return say_claim(steps, claim, ClaimPhase::kPending, claim.error);
  for (const auto& [name, gpu] : steps.world.gpus) {  // a controller died between the two references
    if (is_of(gpu, claim) && !gpu.deleting) return steps.all.push_back(ReferToGpu{claim, name});
  }
  bind(steps, claim);
}

}  // namespace

std::vector<ClaimStep> claim_steps(const ClaimWorld& world) {
  Steps steps{world};
  for (const auto& [name, gpu] : world.gpus) step_gpu(steps, gpu);
  for (const auto& [name, claim] : world.claims) step_claim(steps, claim);
  return std::move(steps.all);
}

Request request_by(const Provisioner& provisioner, const ElasticClass& by, Request request) {
  if (provisioner.whole || request.whole) {
    Request all = whole_cards(request.count);
    all.dialect = provisioner.dialect;
    return all;
  }
  request.share = by.enforced ? ShareClass::kFixed : provisioner.share;
  request.dialect = provisioner.dialect;
  if (request.compute.is_none()) request.share = ShareClass::kBestEffort;
  return request;
}

std::string provisioned_name(const ElasticClaim& claim) { return "egpu-" + claim.uid; }

}  // namespace carve
