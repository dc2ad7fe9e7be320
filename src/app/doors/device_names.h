#pragma once

#include <string>
#include <string_view>

#include "core/model/card.h"
#include "port/gpu.h"

namespace carve::doors {

inline constexpr std::string_view kDriver = "gpu.elasticgpu.io";
inline constexpr std::string_view kMemory = "memory";
inline constexpr std::string_view kCores = "cores";
inline constexpr std::string_view kUnhealthyTaint = "gpu.elasticgpu.io/unhealthy";
/// Of a card that pods hold by slots: what of it is free, the scheduler's sum of claims does not tell.
inline constexpr std::string_view kSlotsTaint = "gpu.elasticgpu.io/used-by-slots";

/// The card's name in ResourceSlices: a DNS label from its UUID, stable for ever ("gpu-8f0c4a…").
[[nodiscard]] std::string device_name(const CardId& card);

/// The card's memory as published: whole MiB, because default and grain of the capacity must divide it.
[[nodiscard]] Bytes published_memory(const Card& card);

/// The card behind a device name, or nullptr.
[[nodiscard]] const Card* card_named(const GpuInventory& cards, std::string_view device);

}  // namespace carve::doors
