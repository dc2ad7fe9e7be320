#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codec/dra/resource_slice.h"
#include "port/gpu.h"

namespace carve::doors {

/// The devices that this node offers: one per card, shared by memory and cores, with what people select on.
/// An unhealthy card carries a taint, and so does one `by_slots`. In the order of the inventory: the scheduler takes
/// the first that fits.
[[nodiscard]] std::vector<codec::PublishedDevice> devices_of(const GpuInventory& cards,
                                                             const std::set<CardId>& by_slots = {});

/// Leaves the taint of cards that slots use on those that have it: while nobody knows yet which they are.
void keep_slots_taints(std::vector<codec::PublishedSlice>* wanted, const std::vector<codec::PublishedSlice>& existing);

/// The ResourceSlices for these devices: at most 64 each (the limit beside taints), names that do not change.
/// Generation and versions are plan()'s business.
[[nodiscard]] std::vector<codec::PublishedSlice> slices_for(
    const std::string& node, const std::vector<codec::PublishedDevice>& devices);

/// One write to the API server.
struct SliceWrite {
  enum class Kind { kCreate, kReplace, kRemove } kind = Kind::kCreate;
  codec::PublishedSlice slice;
};

/// What has to be written so that the server has `wanted`: nothing when it does. All slices of a pool carry
/// one generation, raised whenever anything but a taint changes; new ones first, surplus ones last, so that a
/// whole generation is there as early as possible. `last_generation` survives a deletion of all of them.
[[nodiscard]] std::vector<SliceWrite> plan(const std::vector<codec::PublishedSlice>& wanted,
                                           const std::vector<codec::PublishedSlice>& existing,
                                           std::int64_t last_generation);

/// "580.65.06" → "580.65.6": a semantic version has no leading zeros. nullopt when it is none.
[[nodiscard]] std::optional<std::string> semantic_version(std::string_view text);

}  // namespace carve::doors
