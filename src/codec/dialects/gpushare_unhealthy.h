#pragma once

#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

// How an operator of gpushare takes cards out of service: a ConfigMap for each node, by hand.
namespace carve::codec {

inline constexpr std::string_view kUnhealthyGpusSpace = "kube-system";
inline constexpr std::string_view kUnhealthyGpusPrefix = "unhealthy-gpu-";  // followed by the node's name
inline constexpr std::string_view kUnhealthyGpusKey = "gpus";

/// The node that such a ConfigMap is about; empty: it is another ConfigMap.
[[nodiscard]] std::string node_of_unhealthy_gpus(std::string_view config_map_name);

/// "1,3": positions of cards in the driver's list, from 0. Blanks around them and an empty text are legal.
///   errors  kInvalidArgument: one of them is not such a number; then none counts. gpushare itself read such text as
///           card 0
///   source  gpushare-device-plugin, pkg/gpu/nvidia
[[nodiscard]] Result<std::set<int>> parse_unhealthy_gpus(std::string_view text);

}  // namespace carve::codec
