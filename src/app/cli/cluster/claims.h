#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/dialect.h"
#include "codec/dra/claim.h"
#include "codec/views/explanation.h"
#include "port/kube_api.h"

// ResourceClaims for Carve's devices and ElasticGPUClaims, as `carve explain` and the doctor see them.
namespace carve::cli {

/// Which DeviceClasses select Carve's devices: those that contain the driver's name. Only kube-scheduler evaluates
/// their expressions. Reads each class at most once.
class CarveClasses {
 public:
  explicit CarveClasses(KubeApi& api) : api_(api) {}
  [[nodiscard]] bool contains(const std::string& device_class);

 private:
  KubeApi& api_;
  std::map<std::string, bool> known_;
};

/// Whether the claim has a device of Carve's driver or requests one.
[[nodiscard]] bool is_of_carve(const codec::Claim& claim, CarveClasses& classes);

/// The claims for Carve's devices of a pod (its JSON), one entry per request. A claim that cannot be read is one entry
/// that says why.
///   cost    one read per claim of the pod and per DeviceClass
[[nodiscard]] std::vector<codec::ClaimExplanation> claims_of_pod(KubeApi& api, std::string_view pod);

/// The ElasticGPUClaims of the pod's containers, one entry per container.
///   cost    one read per claim
[[nodiscard]] std::vector<codec::ClaimExplanation> elastic_claims_of_pod(KubeApi& api, const codec::PodAsk& pod,
                                                                         const codec::DialectSettings& settings);

/// "pool/device/share" of an allocated device, the key of codec::Claim::ready and refused.
[[nodiscard]] std::string device_key(const codec::ClaimResult& result);

}  // namespace carve::cli
