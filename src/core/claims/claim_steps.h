#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/claims/elastic.h"

namespace carve {

/// The place of an ElasticGPU's cards in the cluster, and whether they can serve now.
struct CardPlace {
  std::string node;
  std::vector<CardId> cards;
  Bytes memory;              // of the card; of several cards, of the smallest one
  std::string trouble = {};  // why its slices cannot be used: unhealthy, the node is gone; empty: they can
  std::string model = {};    // of the card; of several cards, of the first one
  friend bool operator==(const CardPlace&, const CardPlace&) = default;
};

/// Everything that a step depends on.
struct ClaimWorld {
  std::map<std::string, ElasticClass> classes;                    // by name
  std::map<std::string, ElasticGpu> gpus;                       // by name
  std::map<std::pair<std::string, std::string>, ElasticClaim> claims;  // by namespace and name
  /// Where the cards of an ElasticGPU are; nullopt: one of them does not exist.
  std::function<std::optional<CardPlace>(const ElasticGpu&)> place_of;
  /// Whether the room of an Available ElasticGPU can be kept: nothing else holds it.
  std::function<bool(const ElasticGpu&, const CardPlace&)> has_room;
  /// Pods that use the claim and have not ended.
  std::function<std::size_t(const ElasticClaim&)> users;
  /// The node and the cards that a new ElasticGPU for the claim would get: those of the first pod that uses it where
  /// the class waits for one (nullopt: none is placed yet), else the engine's choice. The error is the reason.
  std::function<Result<std::optional<CardPlace>>(const ElasticClaim&, const ElasticClass&, const Request&)> choose;
};

// The single writes. Each is harmless when it is repeated, and the next step follows from the objects alone, so that a
// controller may die between any two of them.
struct CreateGpu {
  ElasticGpu gpu;  // with its claim
  friend bool operator==(const CreateGpu&, const CreateGpu&) = default;
};
struct ReferToClaim {  // spec.claimRef, with the UID
  ElasticGpu gpu;
  ElasticClaimRef claim;
  friend bool operator==(const ReferToClaim&, const ReferToClaim&) = default;
};
struct ReferToGpu {  // spec.elasticGPUName
  ElasticClaim claim;
  std::string gpu;
  friend bool operator==(const ReferToGpu&, const ReferToGpu&) = default;
};
struct SetGpuStatus {
  ElasticGpu gpu;
  GpuPhase phase;
  std::string message;
  std::optional<CardPlace> place;  // nullopt: what the status shows of it stays
  friend bool operator==(const SetGpuStatus&, const SetGpuStatus&) = default;
};
struct SetClaimStatus {
  ElasticClaim claim;
  ClaimPhase phase;
  std::string message;
  std::optional<ElasticGpu> gpu;  // of a Bound claim
  friend bool operator==(const SetClaimStatus&, const SetClaimStatus&) = default;
};
struct DeleteGpu {
  ElasticGpu gpu;
  friend bool operator==(const DeleteGpu&, const DeleteGpu&) = default;
};
struct Protect {  // add the finalizer, or remove it
  ElasticClaim claim;
  bool on = true;
  friend bool operator==(const Protect&, const Protect&) = default;
};
using ClaimStep = std::variant<Protect, CreateGpu, ReferToClaim, ReferToGpu, SetGpuStatus, SetClaimStatus, DeleteGpu>;

/// The writes that are due now, at most one per object. Empty: everything is as it should be.
///   cost    O(claims × ElasticGPUs) of claims that are not bound
[[nodiscard]] std::vector<ClaimStep> claim_steps(const ClaimWorld& world);

/// The request of a claim as its class's provisioner gives it: share class, dialect, whole or not.
[[nodiscard]] Request request_by(const Provisioner& provisioner, const ElasticClass& by, Request request);

/// The name of the ElasticGPU that is provisioned for a claim. It follows from the claim's UID, so that a repeated
/// creation creates nothing.
[[nodiscard]] std::string provisioned_name(const ElasticClaim& claim);

}  // namespace carve
