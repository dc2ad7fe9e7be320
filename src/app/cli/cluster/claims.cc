#include "app/cli/cluster/claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/plugins/device_names.h"
#include "codec/claims/elastic_objects.h"
#include "codec/kubelet/node_pod.h"

namespace carve::cli {
namespace {

constexpr const char* kClasses = "/apis/resource.k8s.io/v1/deviceclasses/";

std::string amounts(const std::map<std::string, std::string>& capacity) {
  std::string text;
  for (const auto& [name, amount] : capacity) text += fmt::format(", {} {}", name, amount);
  return text;
}

std::string asks_text(const codec::ClaimAsk& ask) {
  const auto devices =
      ask.count == 0 ? std::string("all devices") : fmt::format("{} device{}", ask.count, ask.count == 1 ? "" : "s");
  return fmt::format("{} of class {}{}", devices, ask.device_class, amounts(ask.capacity));
}

std::string state_of(const codec::Claim& claim, const codec::ClaimResult& result) {
  const auto key = device_key(result);
  if (std::find(claim.ready.begin(), claim.ready.end(), key) != claim.ready.end()) return "prepared";
  if (const auto found = claim.refused.find(key); found != claim.refused.end()) return "refused: " + found->second;
  return "allocated, not prepared by the node's agent yet";
}

std::vector<codec::ClaimExplanation> explained(const codec::Claim& claim) {
  std::vector<codec::ClaimExplanation> out;
  for (const auto& result : claim.results) {
    if (result.driver != plugins::kDriver) continue;
    const auto ask = std::find_if(claim.asks.begin(), claim.asks.end(),
                                  [&](const codec::ClaimAsk& one) { return one.request == result.request; });
    out.push_back({claim.name, result.request, ask == claim.asks.end() ? std::string() : asks_text(*ask),
                   fmt::format("{} on node {}{}", result.device, result.pool, amounts(result.consumed)),
                   state_of(claim, result)});
  }
  if (claim.allocated) return out;
  for (const auto& ask : claim.asks)
    out.push_back({claim.name, ask.request, asks_text(ask), {}, "not allocated: kube-scheduler chooses its card"});
  return out;
}

}  // namespace

bool CarveClasses::contains(const std::string& device_class) {
  const auto [found, fresh] = known_.emplace(device_class, false);
  if (fresh) {
    const auto text = api_.get(kClasses + device_class);
    found->second = text && text->find(plugins::kDriver) != std::string::npos;
  }
  return found->second;
}

bool is_of_carve(const codec::Claim& claim, CarveClasses& classes) {
  const bool allocated =
      std::any_of(claim.results.begin(), claim.results.end(),
                  [](const codec::ClaimResult& result) { return result.driver == plugins::kDriver; });
  return allocated || (!claim.allocated && std::any_of(claim.classes.begin(), claim.classes.end(),
                                                       [&](const auto& name) { return classes.contains(name); }));
}

std::string device_key(const codec::ClaimResult& result) {
  return result.pool + "/" + result.device + "/" + result.share;
}

std::vector<codec::ClaimExplanation> claims_of_pod(KubeApi& api, std::string_view pod) {
  std::vector<codec::ClaimExplanation> out;
  const auto read = codec::parse_node_pod(pod);
  if (!read) return out;
  CarveClasses classes(api);
  std::set<std::string> names;
  for (const auto& use : read->claims) names.insert(use.claim);
  for (const auto& name : names) {
    const auto text =
        api.get("/apis/resource.k8s.io/v1/namespaces/" + read->namespace_name + "/resourceclaims/" + name);
    const auto claim = text ? codec::parse_claim(*text) : Result<codec::Claim>(tl::unexpected(text.error()));
    if (!claim) {
      out.push_back({name, {}, {}, {}, "the claim cannot be read: " + claim.error().what});
    } else if (is_of_carve(*claim, classes)) {
      const auto more = explained(*claim);
      out.insert(out.end(), more.begin(), more.end());
    }
  }
  return out;
}

std::vector<codec::ClaimExplanation> elastic_claims_of_pod(KubeApi& api, const codec::PodAsk& pod,
                                                           const codec::DialectSettings& settings) {
  std::vector<codec::ClaimExplanation> out;
  for (const auto& use : codec::claims_of(pod)) {
    const auto text = api.get(fmt::format("/apis/elasticgpu.io/v1alpha1/namespaces/{}/elasticgpuclaims/{}",
                                          pod.namespace_name, use.claim));
    const auto claim = text ? codec::parse_elastic_claim(*text, settings)
                            : Result<ElasticClaim>(tl::unexpected(text.error()));
    if (!claim) {
      out.push_back({use.claim, {}, {}, {}, "the ElasticGPUClaim cannot be read: " + claim.error().what});
      continue;
    }
    const Request& request = claim->request;  // its class decides about the share
    const auto asks = !claim->error.empty() ? claim->error
                      : request.whole       ? to_human(request)
                                            : fmt::format("{}{}, compute {}",
                                                          request.count == 1 ? "" : fmt::format("{} × ", request.count),
                                                          to_human(request.memory.bytes()), to_human(request.compute));
    out.push_back({claim->name, use.container, fmt::format("{}, of class {}", asks, claim->class_name),
                   codec::claim_place(*text),
                   fmt::format("{}{}{}", claim->phase.empty() ? "Pending" : claim->phase,
                               claim->message.empty() ? "" : ": ", claim->message)});
  }
  return out;
}

}  // namespace carve::cli
