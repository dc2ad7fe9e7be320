#pragma once

#include <map>
#include <string>
#include <string_view>

#include "port/gpu.h"

namespace carve::node {

/// The labels for selecting nodes, all below elasticgpu.io/, computed from the cards:
///   gpu.count, gpu.memory (MiB; of different cards the smallest)
///   gpu.product, gpu.family, gpu.compute (each only if all cards have the same)
///   gpu-model.<model>: the number of cards of that model, also if models are mixed
///   cuda.driver-version, cuda.runtime-version
[[nodiscard]] std::map<std::string, std::string> labels_of(const GpuInventory& cards);

/// Whether an agent writes and removes labels with this key. Others may set further labels below elasticgpu.io/.
[[nodiscard]] bool is_agents_label(std::string_view key);

}  // namespace carve::node
