#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codec/dra/resource_slice.h"
#include "port/gpu.h"

namespace carve::plugins {

/// What limits the offer of this node's cards to claims (DRA).
struct OfferLimits {
  std::set<CardId> cards = {};  // kSlotsTaint: slots use them, or room is kept on them for an ElasticGPU
  std::set<CardId> full = {};   // kFullTaint: a claim was refused for lack of room (full_cards.h)
  std::map<CardId, CardMode> modes = {};  // that the Node states; absent: any
  bool known = true;     // false: `cards` may be incomplete
  bool awaited = false;  // not known yet, but soon: until then no ResourceSlice is created
};

/// The devices that this node offers: one per card, with its capacities memory, cores and slices, and the attributes
/// that claims select on. An unhealthy card carries a taint, and so do the cards in `limits`. The order is that of the
/// inventory: kube-scheduler takes the first device that fits. A claim for less than the whole card gets all of an
/// exclusive card, and a claim for the whole card gets all of a shared card but 1 MiB, as a fraction.
[[nodiscard]] std::vector<codec::PublishedDevice> devices_of(const GpuInventory& cards,
                                                             const OfferLimits& limits = {});

/// Copies the used-by-slots taints of `existing` to `wanted`. For the time until the cards that slots use are known.
void keep_slots_taints(std::vector<codec::PublishedSlice>* wanted, const std::vector<codec::PublishedSlice>& existing);

/// The ResourceSlices for these devices: at most 64 devices each (the limit with taints), with stable names. plan()
/// sets generations and versions.
[[nodiscard]] std::vector<codec::PublishedSlice> slices_for(
    const std::string& node, const std::vector<codec::PublishedDevice>& devices);

/// One write to the API server.
struct SliceWrite {
  enum class Kind { kCreate, kReplace, kRemove } kind = Kind::kCreate;
  codec::PublishedSlice slice;
};

/// The writes that bring the API server to `wanted`; none if it has that already. All slices of a pool carry one
/// generation, which rises whenever anything but a taint changes. New slices come first and surplus ones last, so that
/// the generation is complete as early as possible. `last_generation` survives a deletion of all slices.
[[nodiscard]] std::vector<SliceWrite> plan(const std::vector<codec::PublishedSlice>& wanted,
                                           const std::vector<codec::PublishedSlice>& existing,
                                           std::int64_t last_generation);

/// "580.65.06" → "580.65.6": a semantic version has no leading zeros. nullopt: not a version.
[[nodiscard]] std::optional<std::string> semantic_version(std::string_view text);

}  // namespace carve::plugins
