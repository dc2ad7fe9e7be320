#include "app/plugins/dra_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "app/plugins/remedy.h"
#include "app/plugins/device_names.h"

namespace carve::plugins {
namespace {

constexpr std::string_view kClaims = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}";

// The status of a successful prepare waits until the container has started, because the API server is busy with that
// start and no client waits for the status.
constexpr auto kStartFirst = std::chrono::seconds(2);

std::string claim_path(const std::string& namespace_name, const std::string& name) {
  return fmt::format(kClaims, namespace_name, name);
}

/// The key of a claim's refusals in the Node's condition.
std::string refusal_key(const std::string& uid) { return "claim " + uid; }

bool holds(const std::vector<Slice>& held, const std::string& uid) {
  return std::any_of(held.begin(), held.end(), [&](const Slice& slice) {
    return slice.owner.kind == OwnerKind::kClaim && slice.owner.uid == uid;
  });
}

std::string described(const RecordPart& part, const RecordCard& card) {
  if (part.whole) return "the whole card";
  return fmt::format("{}, compute {}, {}, {}", to_human(card.memory), to_human(card.compute, part.ceiling),
                     to_string(part.share), to_string(part.priority));
}

}  // namespace

DraCalls::PerClaim<std::vector<ClaimDevice>> DraDriver::prepare(const std::vector<ClaimRef>& claims) {
  PerClaim<std::vector<ClaimDevice>> answers;
  for (const auto& claim : claims) answers.insert_or_assign(claim.uid, prepare_one(claim));
  return answers;
}

Result<std::vector<ClaimDevice>> DraDriver::prepare_one(const ClaimRef& ref) {
  auto text = world_.api.get(claim_path(ref.namespace_name, ref.name));
  if (!text) {
    const auto code = text.error().code;
    if (code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
        code == Code::kResourceExhausted) {
      const MutexLock lock(mutex_);
      if (const auto known = answered_.find(ref.uid); known != answered_.end())
        return known->second;
    }
    return refuse(ref, fail_in("the claim cannot be read", text.error()).value(), nullptr);
  }
  auto claim = codec::parse_claim(*text);
  if (!claim) return refuse(ref, claim.error(), nullptr);
  claim->namespace_name = ref.namespace_name;
  if (claim->uid != ref.uid) {
    const auto what = fmt::format("the kubelet requests UID {}, but the API server's claim of that name has UID {}",
                                  ref.uid, claim->uid);
    return refuse(ref, {Code::kAborted, what}, nullptr);
  }
  const auto cards = world_.slices.cards();
  const auto plan = plan_claim(*claim, node_, cards);
  if (!plan) return refuse(ref, plan.error(), &*claim);
  if (!holds(world_.slices.held(), ref.uid)) {
    if (const auto may = may_start(plan->record, cards); !may) return refuse(ref, may.error(), &*claim);
  }
  auto answer = bring_up(*claim, *plan);
  if (!answer) {
    if (answer.error().code == Code::kResourceExhausted) note_full(plan->record, cards);
    return refuse(ref, answer.error(), &*claim);
  }
  post_ready(*claim, *plan);
  world_.notices.settled(refusal_key(ref.uid));
  const MutexLock lock(mutex_);
  refused_.erase(ref.uid);
  answered_[ref.uid] = *answer;
  return answer;
}

/// A claim starts neither on a node that is shut nor on an unhealthy card. A claim that runs there is not touched.
Result<void> DraDriver::may_start(const Record& record, const GpuInventory& cards) const {
  const auto shut = world_.shut ? world_.shut() : std::string();
  if (!shut.empty()) return fail(Code::kFailedPrecondition, shut);
  for (const auto& part : record.parts) CARVE_TRY_VOID(check_health(part, cards));
  return {};
}

/// kube-scheduler counts only claims. Where slots use the card, too, it may promise more than the card has.
void DraDriver::note_full(const Record& record, const GpuInventory& cards) {
  if (world_.full != nullptr)
    world_.full->refused(slices_of(record), world_.slices.held(), cards, world_.clock.now());
}

/// Reports every refusal: on the Node, and on the pods that use the claim. `claim`: nullptr if the claim could not be
/// read, or if it is another claim of that name.
Result<std::vector<ClaimDevice>> DraDriver::refuse(const ClaimRef& ref, const Error& error, const codec::Claim* claim) {
  const auto name = fmt::format("claim {}/{}", ref.namespace_name, ref.name);
  const auto fix = remedy(error.code, Plugin::kClaim);
  world_.log.warn("claim refused", {{"claim", name}, {"error", error.what}, {"hint", fix}});
  world_.notices.refused(refusal_key(ref.uid), fmt::format("{}: {}. {}", name, error.what, fix));
  if (claim != nullptr) report_to_pods(*claim, fmt::format("claim {}: {}. {}", ref.name, error.what, fix));
  return fail_in(name, error);
}

/// Prepares all parts or none: if a part is refused, the parts that this call prepared are undone.
Result<std::vector<ClaimDevice>> DraDriver::bring_up(const codec::Claim& claim, const ClaimPlan& plan) {
  const bool known = holds(world_.slices.held(), claim.uid);
  std::vector<ClaimDevice> devices;
  for (std::size_t i = 0; i < plan.record.parts.size(); ++i) {
    const auto& part = plan.record.parts[i].part;
    const auto prepared = world_.slices.prepare(request_for(claim, plan.record, part));
    if (!prepared) {
      if (!known) {
        const auto undone = world_.slices.unprepare({OwnerKind::kClaim, claim.uid});
        if (!undone)
          world_.log.warn("a partly prepared claim could not be undone",
                          {{"claim", claim.uid}, {"error", undone.error().what}});
      }
      return fail_in("request " + part, prepared.error());
    }
    // One CDI device contains all cards of the part. A container gets the CDI devices of all its claim devices.
    const auto first = devices.insert(devices.end(), plan.devices[i].begin(), plan.devices[i].end());
    first->cdi = {prepared->device};
  }
  return devices;
}

DraCalls::PerClaim<void> DraDriver::unprepare(const std::vector<ClaimRef>& claims) {
  PerClaim<void> answers;
  for (const auto& claim : claims) {
    world_.notices.settled(refusal_key(claim.uid));
    world_.notices.drop_later("status of " + refusal_key(claim.uid));
    auto done = world_.slices.unprepare({OwnerKind::kClaim, claim.uid});
    if (done) {
      const MutexLock lock(mutex_);
      answered_.erase(claim.uid);
      refused_.erase(claim.uid);
    } else {
      world_.log.warn("claim not unprepared",
                      {{"claim", claim.namespace_name + "/" + claim.name}, {"error", done.error().what}});
    }
    answers.insert_or_assign(claim.uid, std::move(done));
  }
  return answers;
}

std::vector<DeviceHealthView> DraDriver::health() const {
  std::vector<DeviceHealthView> views;
  for (const auto& card : world_.slices.cards().cards)
    views.push_back({node_, device_name(card.id), card.health.ok, card.health.reason});
  return views;
}

void DraDriver::post_ready(const codec::Claim& claim, const ClaimPlan& plan) {
  std::vector<codec::DeviceStatus> devices;
  bool all_known = true;
  for (std::size_t p = 0; p < plan.devices.size(); ++p) {
    const auto& part = plan.record.parts[p];
    for (std::size_t i = 0; i < plan.devices[p].size(); ++i) {
      const auto& device = plan.devices[p][i];
      const auto& card = part.cards[i];
      const auto key = fmt::format("{}/{}/{}", device.pool, device.device, device.share);
      all_known =
          all_known && std::find(claim.ready.begin(), claim.ready.end(), key) != claim.ready.end();
      devices.push_back(
          {std::string(kDriver), device.pool, device.device, device.share, true, "Prepared",
           fmt::format("{} of {}", described(part, card), card.card.str()),
           fmt::format(R"({{"uuid":"{}","memory":"{}","cores":{},"whole":{}}})", card.card.str(),
                       to_canonical(card.memory), card.compute.hundredths(), part.whole)});
    }
  }
  if (!all_known) post_status(claim, devices, kStartFirst);
}

/// If a client wrote opaque parameters with blanks in them, the API server (1.36) treats every JSON patch of this
/// status as a change of the allocation and refuses it. The event on the pod still carries the same text.
void DraDriver::post_status(const codec::Claim& claim, const std::vector<codec::DeviceStatus>& devices,
                          Clock::Duration after) {
  const auto now = events::rfc3339(world_.clock.wall_now());
  world_.notices.post_later(
      "status of " + refusal_key(claim.uid), after, "claim status",
      [path = claim_path(claim.namespace_name, claim.name) + "/status",
       body = codec::claim_status_body(claim, devices, now)](KubeApi& api) -> Result<void> {
        const auto written =
            api.patch(path, KubePatch::kApply, body, {{"fieldManager", "carve-agent"}, {"force", "true"}});
        // Not an error: the claim was deleted, or another claim has its name now.
        if (!written && written.error().code != Code::kNotFound && written.error().code != Code::kAborted)
          return tl::unexpected(written.error());
        return {};
      });
}

/// Sets Ready: False on each of the claim's devices of this node. Once per message, because the kubelet retries.
void DraDriver::post_refused(const codec::Claim& claim, const std::string& message) {
  std::vector<codec::DeviceStatus> devices;
  for (const auto& result : claim.results) {
    if (result.driver != kDriver || result.pool != node_) continue;
    devices.push_back(
        {result.driver, result.pool, result.device, result.share, false, "Refused", message, ""});
  }
  if (devices.empty()) return;
  {
    const MutexLock lock(mutex_);
    auto& told = refused_[claim.uid];
    if (told == message) return;
    told = message;
  }
  post_status(claim, devices, {});
}

void DraDriver::report_to_pods(const codec::Claim& claim, const std::string& message) {
  for (const auto& user : claim.users) {
    if (user.resource == "pods")
      world_.notices.warn({"Pod", claim.namespace_name, user.name, user.uid, "SliceRefused", message});
  }
  post_refused(claim, message);
}

}  // namespace carve::plugins
