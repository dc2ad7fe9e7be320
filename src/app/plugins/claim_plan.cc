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
    if (parsed->core_limit) merged.core_limit = parsed->core_limit;
  }
  return merged;
}

Result<void> check_core_limit(const std::string& request, const RecordPart& part, const RecordCard& held) {
  if (!may_have_ceiling(part.share)) {
    return fail(Code::kInvalidArgument,
                fmt::format("request {}: coreLimit {} with shareClass {}; legal with burst and besteffort", request,
                            part.ceiling.hundredths(), to_string(part.share)));
  }
  if (held.compute <= part.ceiling) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("request {}: coreLimit {} is below the {} hundredths that it has of the card", request,
                          part.ceiling.hundredths(), held.compute.hundredths()));
}

/// A device of the allocation, as a part with one card.
Result<RecordPart> part_of(const codec::Claim& claim, const codec::ClaimResult& result, const Card& card) {
  CARVE_TRY(const auto config, config_for(claim, result.request));
  RecordPart part;
  part.part = result.request;
  part.share = config.share.value_or(ShareClass::kBurst);
  part.priority = config.priority.value_or(PriorityClass::kStandard);
  part.dialect = "dra";
  RecordCard held{card.id, published_memory(card), CoreShare::whole()};
  if (const auto* memory = consumed(result, kMemory)) {
    CARVE_TRY(held.memory, codec::parse_bytes("consumedCapacity.memory", *memory));
  }
  if (const auto* cores = consumed(result, kCores)) {
    CARVE_TRY(const auto amount, codec::parse_bytes("consumedCapacity.cores", *cores));
    if (amount.count() > CoreShare::whole().hundredths()) {
      return fail(Code::kInvalidArgument,
                  fmt::format("consumedCapacity.cores of request {}: {} hundredths of a card; legal are 1 to 100",
                              result.request, *cores));
    }
    held.compute = CoreShare(static_cast<std::uint32_t>(amount.count()));
  }
  if (held.memory > published_memory(card)) {
    return fail(Code::kInvalidArgument,
                fmt::format("request {}: {} of memory on {}, which has {}", result.request, to_human(held.memory),
                            result.device, to_human(published_memory(card))));
  }
  if (held.memory == published_memory(card) && held.compute == CoreShare::whole()) {
    part.whole = part.exclusive = true;
    held.memory = card.memory;
  } else if (config.core_limit) {
    part.ceiling = *config.core_limit;
    CARVE_TRY_VOID(check_core_limit(result.request, part, held));
  }
  part.cards.push_back(std::move(held));
  return part;
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
                 const GpuInventory& cards, ClaimPlan* plan) {
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
  CARVE_TRY(RecordPart wanted, part_of(claim, result, *card));
  auto& parts = plan->record.parts;
  const ClaimDevice device{{base_of(result.request)}, result.pool, result.device, {}, result.share};
  RecordPart* part = part_named(plan->record, result.request);
  if (part == nullptr) {
    parts.push_back(std::move(wanted));
    plan->devices.push_back({device});
    return {};
  }
  for (const auto& other : part->cards) {
    if (other.card != card->id) continue;
    return fail(
        Code::kInvalidArgument,
        fmt::format("request {}: two of its devices are shares of one card, {}; request distinct cards by "
                    "\"constraints: [{{distinctAttribute: {}/uuid}}]\" in the claim, or one larger share",
                    result.request, result.device, kDriver));
  }
  // The classes belong to the part, so one request cannot mix whole cards and fractions.
  if (part->whole != wanted.whole) {
    return fail(Code::kInvalidArgument,
                fmt::format("request {}: whole cards and fractions in one request; "
                            "split it into two requests",
                            result.request));
  }
  part->cards.push_back(std::move(wanted.cards.front()));
  plan->devices[static_cast<std::size_t>(part - parts.data())].push_back(device);
  return {};
}

}  // namespace

Result<ClaimPlan> plan_claim(const codec::Claim& claim, const std::string& node, const GpuInventory& cards) {
  if (!claim.allocated) {
    return fail(Code::kFailedPrecondition,
                fmt::format("claim {}/{} has no allocation: a scheduler must place the pod (a pod with "
                            "spec.nodeName bypasses it)",
                            claim.namespace_name, claim.name));
  }
  ClaimPlan plan;
  plan.record.owner = {OwnerKind::kClaim, claim.uid};
  for (const auto& result : claim.results) {
    if (result.driver == kDriver) CARVE_TRY_VOID(add(claim, result, node, cards, &plan));
  }
  if (plan.record.parts.empty()) {
    return fail(Code::kFailedPrecondition,
                fmt::format("claim {}/{} has no device of driver {}", claim.namespace_name, claim.name, kDriver));
  }
  return plan;
}

PrepareRequest request_for(const codec::Claim& claim, const Record& record, const std::string& part) {
  return {record, part, "", label_of(claim, part), pods_of(claim)};
}

}  // namespace carve::plugins
