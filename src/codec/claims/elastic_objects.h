#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/dialects/dialect.h"
#include "core/claims/claim_steps.h"

// Elastic GPU's objects as JSON, in the three spellings of the field: those of the project's article, of its README,
// and of its code. Facts and sources: spec, systems.md R10.
namespace carve::codec {

inline constexpr std::string_view kElasticGpus = "/apis/elasticgpu.io/v1alpha1/elasticgpus";
inline constexpr std::string_view kElasticGpuClaims = "/apis/elasticgpu.io/v1alpha1/elasticgpuclaims";
inline constexpr std::string_view kElasticGpuClasses = "/apis/elasticgpu.io/v1alpha1/elasticgpuclasses";

/// Tolerant: an illegal field goes to `error` of the object, with what is legal.
///   errors  kInvalidArgument: not JSON, or without a name (and for claims, a UID)
[[nodiscard]] Result<ElasticClass> parse_elastic_class(std::string_view text);
[[nodiscard]] Result<ElasticClaim> parse_elastic_claim(std::string_view text, const DialectSettings& settings);
[[nodiscard]] Result<ElasticGpu> parse_elastic_gpu(std::string_view text, const DialectSettings& settings);

/// What the status of an ElasticGPU says of the room that is kept for it.
struct ElasticRoom {
  std::string name;  // of the ElasticGPU
  std::string node;
  std::vector<CardId> cards;
  bool kept = false;  // by its phase
};
/// For the agent of the node. Tolerant: what is missing is empty.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<ElasticRoom> parse_elastic_room(std::string_view text);

/// Amounts by resource names of any dialect, as in `requests` of a claim or `capacity` of an ElasticGPU. A memory may
/// have a unit ("4GB" and "4Gi" are 4 GiB, "4096MB" and "4096Mi" are 4 GiB); without one it counts in the name's unit.
///   errors  kInvalidArgument: no name of a dialect, two dialects, an illegal amount, a rate of several cards
[[nodiscard]] Result<Request> request_of_amounts(const std::vector<std::pair<std::string, std::string>>& amounts,
                                                 const DialectSettings& settings);

/// The body that creates it.
[[nodiscard]] std::string encode_elastic_gpu(const ElasticGpu& gpu);
/// Merge patches of the read object: its resourceVersion is a precondition.
[[nodiscard]] std::string claim_ref_patch(const ElasticGpu& gpu, const ElasticClaimRef& claim);
[[nodiscard]] std::string gpu_name_patch(const ElasticClaim& claim, std::string_view gpu);
[[nodiscard]] std::string protection_patch(const ElasticClaim& claim, std::string_view text, bool on);
/// Merge patches of status, without a precondition: the next step corrects an outdated one.
///   place   where its room is kept; nullptr: unknown, and what the status shows of it stays
[[nodiscard]] std::string elastic_gpu_status(GpuPhase phase, std::string_view message, const CardPlace* place);
///   gpu    of a Bound claim; nullptr: none
///   place  of its cards; nullptr: unknown
[[nodiscard]] std::string elastic_claim_status(ClaimPhase phase, std::string_view message, const ElasticGpu* gpu,
                                               const CardPlace* place);

/// What the status of a claim's JSON says of its place: "4 GiB, compute 10, fixed, on card GPU-1 of node n1". Empty: it
/// is not bound.
[[nodiscard]] std::string claim_place(std::string_view text);

/// The claims that the containers of a pod use, by its annotations elasticgpu.io/egpuc-CONTAINER and
/// egpuc.elasticgpu.io/CONTAINER.
struct PodClaim {
  std::string annotation;
  std::string container;
  std::string claim;
};
[[nodiscard]] std::vector<PodClaim> claims_of(const PodAsk& pod);

/// The same, checked: every annotation names a container, and a claim, and no container has two sources of cards.
struct ClaimUses {
  std::vector<PodClaim> legal;
  std::vector<Error> errors;
};
///   parts   what the containers request by resource names
[[nodiscard]] ClaimUses claim_uses(const PodAsk& pod, const std::vector<PartRequest>& parts);

inline constexpr std::string_view kClaimOfContainer = "elasticgpu.io/egpuc-";
inline constexpr std::string_view kClaimOfContainerLong = "egpuc.elasticgpu.io/";  // of the README, for long names
/// The container whose claim the annotation names; nullopt: it is another annotation.
[[nodiscard]] inline std::optional<std::string_view> container_with_claim(std::string_view annotation) {
  for (const auto start : {kClaimOfContainer, kClaimOfContainerLong}) {
    if (annotation.starts_with(start)) return annotation.substr(start.size());
  }
  return std::nullopt;
}

}  // namespace carve::codec
