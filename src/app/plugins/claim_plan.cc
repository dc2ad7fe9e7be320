#include "app/plugins/claim_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/plugins/device_names.h"
#include "codec/dra/share_config.h"
#include "codec/quantity.h"

namespace carve::plugins {
namespace {

std::string base_of(const std::string& request) { return request.substr(0, request.find('/')); }

/// The consumed amount of a capacity, under its name or its qualified name; nullptr: not set.
const std::string* consumed(const codec::ClaimResult& result, std::string_view name) {
  auto found = result.consumed.find(std::string(name));
  if (found == result.consumed.end()) found = result.consumed.find(fmt::format("{}/{}", kDriver, name));
  return found == result.consumed.end() ? nullptr : &found->second;
}

/// Merges the configurations in the order of the allocation, the DeviceClass's before the claim's. A later member
/// overrides an earlier one.
Result<codec::ShareConfig> config_for(const codec::Claim& claim, const std::string& request) {
  codec::ShareConfig merged;
  for (const auto& config : claim.configs) {
    if (config.driver != kDriver) continue;
    const auto names = [&](const std::string& name) { return name == request || name == base_of(request); };
    if (!config.requests.empty() && std::none_of(config.requests.begin(), config.requests.end(), names))
      continue;
    const auto parsed = codec::parse_share_config(config.parameters);
    if (!parsed) {
      return fail_in(fmt::format("configuration of request {} (from the {})", request,
                                 config.from_class ? "DeviceClass" : "claim"),
                     parsed.error());
    }
    if (parsed->share) merged.share = parsed->share;
    if (parsed->priority) merged.priority = parsed->priority;
  }
  return merged;
}

Result<Slice> slice_of(const codec::Claim& claim, const codec::ClaimResult& result, const Card& card) {
  CARVE_TRY(const auto config, config_for(claim, result.request));
  Slice slice;
  slice.owner = {OwnerKind::kClaim, claim.uid};
  slice.part = result.request;
  slice.card = card.id;
  slice.memory = published_memory(card);
  slice.compute = CoreShare::whole();
  slice.share = config.share.value_or(ShareClass::kBurst);
  slice.priority = config.priority.value_or(PriorityClass::kStandard);
  slice.dialect = "dra";
  if (const auto* memory = consumed(result, kMemory)) {
    CARVE_TRY(slice.memory, codec::parse_bytes("consumedCapacity.memory", *memory));
  }
  if (const auto* cores = consumed(result, kCores)) {
    CARVE_TRY(const auto amount, codec::parse_bytes("consumedCapacity.cores", *cores));
    if (amount.count() > CoreShare::whole().hundredths()) {
      return fail(Code::kInvalidArgument,
                  fmt::format("consumedCapacity.cores of request {}: {} hundredths of a card; legal are 1 to 100",
                              result.request, *cores));
    }
    slice.compute = CoreShare(static_cast<std::uint32_t>(amount.count()));
  }
  if (slice.memory > published_memory(card)) {
    return fail(Code::kInvalidArgument,
                fmt::format("request {}: {} of memory on {}, which has {}", result.request, to_human(slice.memory),
                            result.device, to_human(published_memory(card))));
  }
  if (slice.memory == published_memory(card) && slice.compute == CoreShare::whole()) {
    slice.whole = slice.exclusive = true;
    slice.memory = card.memory;
  }
  return slice;
}

std::string label_of(const codec::Claim& claim, const std::string& part) {
  for (const auto& user : claim.users) {
    if (user.resource == "pods" && claim.users.size() == 1)
      return fmt::format("{}/{}/{}", claim.namespace_name, user.name, part);
  }
  return fmt::format("{}/{}/{}", claim.namespace_name, claim.name, part);
}

std::vector<std::string> pods_of(const codec::Claim& claim) {
  std::vector<std::string> pods;
  for (const auto& user : claim.users) {
    if (user.resource == "pods") pods.push_back(user.uid);
  }
  return pods;
}

Result<void> add(const codec::Claim& claim, const codec::ClaimResult& result, const std::string& node,
                 const GpuInventory& cards, std::vector<PlannedPart>* parts) {
  if (result.pool != node) {
    return fail(Code::kFailedPrecondition,
                fmt::format("request {} is allocated from pool {}, but this node is {}", result.request,
                            result.pool, node));
  }
  const Card* card = card_named(cards, result.device);
  if (card == nullptr) {
    return fail(
        Code::kNotFound,
        fmt::format("request {}: this node has no card {} (any more); delete the pod so that the claim "
                    "is allocated again",
                    result.request, result.device));
  }
  CARVE_TRY(Slice slice, slice_of(claim, result, *card));
  auto part = std::find_if(parts->begin(), parts->end(), [&](const PlannedPart& other) {
    return other.request.slices.front().part == result.request;
  });
  if (part == parts->end()) {
    parts->push_back({{{}, "", label_of(claim, result.request), pods_of(claim)}, {}});
    part = std::prev(parts->end());
  }
  for (const auto& other : part->request.slices) {
    if (other.card != slice.card) continue;
    return fail(
        Code::kInvalidArgument,
        fmt::format("request {}: two of its devices are shares of one card, {}; request distinct cards by "
                    "\"constraints: [{{distinctAttribute: {}/uuid}}]\" in the claim, or one larger share",
                    result.request, result.device, kDriver));
  }
  part->request.slices.push_back(std::move(slice));
  part->devices.push_back({{base_of(result.request)}, result.pool, result.device, {}, result.share});
  return {};
}

}  // namespace

Result<std::vector<PlannedPart>> plan_claim(const codec::Claim& claim, const std::string& node,
                                            const GpuInventory& cards) {
  if (!claim.allocated) {
    return fail(Code::kFailedPrecondition,
                fmt::format("claim {}/{} has no allocation: a scheduler must place the pod (a pod with "
                            "spec.nodeName bypasses it)",
                            claim.namespace_name, claim.name));
  }
  std::vector<PlannedPart> parts;
  for (const auto& result : claim.results) {
    if (result.driver == kDriver) CARVE_TRY_VOID(add(claim, result, node, cards, &parts));
  }
  if (parts.empty()) {
    return fail(Code::kFailedPrecondition,
                fmt::format("claim {}/{} has no device of driver {}", claim.namespace_name, claim.name, kDriver));
  }
  // The record requires equal classes within a part, so one request cannot mix whole cards and fractions.
  for (const auto& part : parts) {
    for (const auto& slice : part.request.slices) {
      if (slice.whole != part.request.slices.front().whole)
        return fail(Code::kInvalidArgument,
                    fmt::format("request {}: whole cards and fractions in one request; "
                                "split it into two requests",
                                slice.part));
    }
  }
  return parts;
}

}  // namespace carve::plugins
