#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/views/cluster_view.h"

namespace carve::codec {

/// A pod on a card, as gpushare counts it.
struct GpushareHolder {
  std::string space;
  std::string name;
  std::uint64_t used = 0;  // in units
};

/// A card and who is on it, sorted by name.
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

/// How gpushare counts a cluster: per node and card how much of its memory is there and granted, and to which pods, in
/// whole `unit`s: of a card rounded down, of a pod rounded up, so that what is left is never overstated. The slices of
/// every dialect count. Nodes are sorted (the original's order was random).
///   in      node: empty: all
[[nodiscard]] std::vector<GpushareNode> gpushare_nodes(const ClusterView& view, Bytes unit, std::string_view node);

/// What gpushare's scheduler extender answers at /inspect and /inspect/<node>. Of a node that has no card of ours, or
/// is not there, it says so in `error` (the original crashed).
///   source  gpushare-scheduler-extender, pkg/scheduler/inspect
[[nodiscard]] std::string gpushare_inspect(const ClusterView& view, Bytes unit, std::string_view node);

}  // namespace carve::codec
