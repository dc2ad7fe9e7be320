#pragma once

#include <map>
#include <string>
#include <string_view>

#include "port/gpu.h"

namespace carve::node {

/// The labels by which people choose nodes, all below elasticgpu.io/: a projection of the cards.
///   gpu.count, gpu.product, gpu.memory (MiB), gpu.family, gpu.compute: of cards that are all
///   alike; of different ones product, family and compute are left out and gpu.memory is the
///   smallest gpu-model.<model>: how many of that model, also where models are mixed
///   cuda.driver-version, cuda.runtime-version
[[nodiscard]] std::map<std::string, std::string> labels_of(const GpuInventory& cards);

/// Whether the key of a label is one that an agent writes and takes away; others may put labels below our prefix.
[[nodiscard]] bool is_agents_label(std::string_view key);

}  // namespace carve::node
