#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/views/cluster_view.h"

namespace carve::codec {

/// A pod on a card, as gpushare counts it.
struct GpushareHolder {
  std::string namespace_name;
  std::string name;
  std::uint64_t used = 0;  // in units
};

/// A card and its pods, sorted by name.
struct GpushareCard {
  int index = 0;
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::vector<GpushareHolder> holders;
};

struct GpushareNode {
  std::string name;
  std::uint64_t total = 0;
  std::uint64_t used = 0;
  std::vector<GpushareCard> cards;
};

/// The cluster as gpushare counts it: per node and card the total and the granted memory, and the pods that hold it, in
/// whole `unit`s. A card's memory is rounded down and a pod's is rounded up, so that free memory is never overstated.
/// The slices of every dialect count. Nodes are sorted (the original's order was random).
///   in      node: empty: all nodes
[[nodiscard]] std::vector<GpushareNode> gpushare_nodes(const ClusterView& view, Bytes unit, std::string_view node);

/// The answer of gpushare's scheduler extender at /inspect and /inspect/<node>. For a node that does not exist or has
/// no card managed by Carve, `error` says so (the original crashed).
///   source  gpushare-scheduler-extender, pkg/scheduler/inspect
[[nodiscard]] std::string gpushare_inspect(const ClusterView& view, Bytes unit, std::string_view node);

}  // namespace carve::codec
