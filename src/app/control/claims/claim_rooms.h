#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "codec/node/gpu_object.h"
#include "core/claims/claim_steps.h"

// The rooms of ElasticGPUs on the cards of the cluster, computed from the objects alone.
namespace carve::control {

/// The room of an ElasticGPU: kept for a pod that uses its claim, or for the claim (without a claim, the ElasticGPU).
struct ClaimRoom {
  std::string node;
  NominatedReservation reservation;
  friend bool operator==(const ClaimRoom&, const ClaimRoom&) = default;
};
inline constexpr std::string_view kClaimPart = "claim";  // the part of these reservations' slices
using ClaimRooms = std::map<std::string, ClaimRoom>;  // by the owner's UID

/// The slices of an owner that keep the room for the request on those cards.
[[nodiscard]] ClaimRoom room_for(const Owner& owner, const Request& request, const CardPlace& place);

/// Adds a card to the place of an ElasticGPU.
void add_card(CardPlace* place, const Card& card);

/// The cards of an ElasticGPU, which names them by UUIDs or indexes; nullopt: one of them does not exist.
[[nodiscard]] std::optional<CardPlace> place_of(const ClusterModel& model, const ElasticGpu& gpu);

/// The pods that use claims: those with cards, and those of `before` that still wait.
[[nodiscard]] ClaimBook::Users claim_users(const ClusterModel& model, const ClaimWorld& world,
                                           const ClaimBook::Users& before);

/// The rooms of all ElasticGPUs that have one. A pod with a record has no room: its record is booked.
///   out     `cards`: the cards of each ElasticGPU with a room, by its name
[[nodiscard]] ClaimRooms claim_rooms(const ClusterModel& model, const ClaimWorld& world, const ClaimBook::Users& users,
                                     GpuCards* cards);

/// Adds these rooms to the cards' holders, each by the name of the pod that waits with the claim, of the claim, or of
/// the ElasticGPU without one.
void add_room_holders(const ClusterModel& model, const ClaimWorld& world, const ClaimRooms& rooms,
                      std::vector<codec::GpuObject>* cards);

}  // namespace carve::control
