#pragma once

#include <string>
#include <vector>

#include "codec/node/gpu_object.h"
#include "core/ledger/ledger.h"

namespace carve::codec {

/// A pod that asks for cards and is on no node.
struct WaitingPod {
  std::string space;
  std::string name;
  std::string asks;  // for a person
  std::string why;   // empty: not known
};

/// Who is on which card, everywhere.
struct ClusterView {
  std::vector<GpuObject> cards;  // sorted by node, then by their place in it
  std::vector<WaitingPod> waiting;
  std::string unread = {};  // what counts for those who wait and the caller may not read, a sentence; empty: nothing
};

/// Sorts the cards, so that two views of the same cluster are the same text.
[[nodiscard]] ClusterView cluster_view(std::vector<GpuObject> cards, std::vector<WaitingPod> waiting);

/// What the card's holders come to: of each owner the larger of its init parts and the sum of the others.
[[nodiscard]] CardUse use_of(const GpuObject& gpu);

/// Who a person says holds it: "namespace/pod", or the claim, or the slice's owner by UID.
[[nodiscard]] std::string name_of(const GpuHolder& holder);

/// {"nodes":[{"name",…,"cards":[{"uuid",…,"memory_bytes":{"total","granted","free"},"cores":{…},"holders":[…]}]}],
/// "totals":{…},"waiting":[…],"unread":"…"}. Bytes are bytes, cores are 1/100 of a card.
[[nodiscard]] std::string to_json(const ClusterView& view);

}  // namespace carve::codec
