#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "port/agent_api.h"

namespace carve::api {

/// The answer of gpu-manager at /usage: by the UID of the pod, each container's compute and memory on each card, and
/// what it requested. Compute is in hundredths of a card (of the request: in cards), memory in MiB. Slices of pods
/// only. Process IDs, the submitter and the cluster's name are left out.
///   source  tkestack/gpu-manager, pkg/api/runtime/display/api.proto: UsageResponse (zero values are left out)
[[nodiscard]] std::string gpu_manager_usage(const AgentView& view);

/// The answer of gpu-manager at /graph: a text in which the cards are the leaves of a tree. PHB joins cards of one PCIe
/// root complex, CPU those of one NUMA node, SYS those of the machine; a group of one has no line. ROOT and `aval`
/// count the cards without slices. Memory is in bytes, compute in hundredths of a card. Process IDs are left out.
///   source  tkestack/gpu-manager, pkg/device/nvidia/tree.go: PrintGraph
[[nodiscard]] std::string gpu_manager_graph(const AgentView& view);

/// The answer of gpu-manager at /version, with Carve's version.
[[nodiscard]] std::string gpu_manager_version(const AgentView& view);

/// The file vcuda.config (8,240 bytes) that gpu-manager writes for a container, for programs that read its offsets. As
/// with gpu-manager, it describes the container's first card. Carve's library does not read it.
///   errors  nullopt: no container of this name in a pod with this UID holds a card
///   source  tkestack/vcuda-controller: resource_data_t (spec: systems.md R8)
[[nodiscard]] std::optional<std::string> gpu_manager_config(const AgentView& view, std::string_view pod_uid,
                                                            std::string_view container);

}  // namespace carve::api
