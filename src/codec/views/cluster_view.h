#pragma once

#include <string>
#include <vector>

#include "codec/node/gpu_object.h"
#include "core/ledger/ledger.h"

namespace carve::codec {

/// A pod that requests cards and has no node.
struct WaitingPod {
  std::string namespace_name;
  std::string name;
  std::string asks;  // readable text
  std::string why;   // empty: unknown
};

/// All cards of the cluster with their holders, and the waiting pods.
struct ClusterView {
  std::vector<GpuObject> cards;  // sorted by node, then by their position on it
  std::vector<WaitingPod> waiting;
  std::string unread = {};  // a sentence: data about waiting pods that the caller may not read; empty: none
};

/// Sorts the cards, so that equal clusters give equal texts.
[[nodiscard]] ClusterView cluster_view(std::vector<GpuObject> cards, std::vector<WaitingPod> waiting);

/// The use of the card that results from its holders: for each owner the larger of its largest init part and the sum of
/// its run parts.
[[nodiscard]] CardUse use_of(const GpuObject& gpu);

/// What another owner could get of the card: nothing if it is held exclusively or unhealthy. Cores in 1/100 of a card.
[[nodiscard]] Bytes free_memory(const Card& card, const CardUse& use);
[[nodiscard]] std::uint32_t free_cores(const Card& card, const CardUse& use);

/// The readable name of a holder: "namespace/pod", or the claim, or the owner's UID.
[[nodiscard]] std::string name_of(const GpuHolder& holder);

/// {"nodes":[{"name",…,"cards":[{"uuid",…,"memory_bytes":{"total","granted","free"},"cores":{…},"holders":[…]}]}],
/// "totals":{…},"waiting":[…],"unread":"…"}. Memory is in bytes, cores are in 1/100 of a card.
[[nodiscard]] std::string to_json(const ClusterView& view);

}  // namespace carve::codec
