#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/model/card.h"
#include "core/model/record.h"
#include "port/gpu.h"

namespace carve::plugins {

inline constexpr std::string_view kDriver = "gpu.elasticgpu.io";
inline constexpr std::string_view kMemory = "memory";
inline constexpr std::string_view kCores = "cores";
/// The number of slices: a claim's request for one device is one slice, whether or not the claim names the capacity.
inline constexpr std::string_view kSliceCount = "slices";
inline constexpr std::string_view kUnhealthyTaint = "gpu.elasticgpu.io/unhealthy";
/// The taint of a card that pods use through slots. kube-scheduler's sum of claims does not show what of it is free.
inline constexpr std::string_view kSlotsTaint = "gpu.elasticgpu.io/used-by-slots";
/// The taint of a card on which a claim was refused for lack of room, until there is room. It is another one than
/// kSlotsTaint, because claims that share a card with slots tolerate that one.
inline constexpr std::string_view kFullTaint = "gpu.elasticgpu.io/full";

inline constexpr std::string_view kResourceSlices = "/apis/resource.k8s.io/v1/resourceslices";
/// The field selector of this driver's ResourceSlices of a node.
[[nodiscard]] std::string slices_of_node(const std::string& node);

/// The card's name in ResourceSlices: a DNS label from its UUID, which never changes ("gpu-8f0c4a…").
[[nodiscard]] std::string device_name(const CardId& card);

/// The card's memory as published: whole MiB, because it must be a multiple of the capacity's default and step.
[[nodiscard]] Bytes published_memory(const Card& card);

/// Whether a part can start on its cards: on none that became unhealthy after the decision. A part that already holds
/// its slices is not asked: it runs there.
///   errors  kUnavailable: a card is unhealthy, with the reason
[[nodiscard]] Result<void> check_health(const RecordPart& part, const GpuInventory& cards);

/// The card with this device name, or nullptr.
[[nodiscard]] const Card* card_named(const GpuInventory& cards, std::string_view device);

}  // namespace carve::plugins
