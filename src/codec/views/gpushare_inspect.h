#pragma once

#include <string>
#include <string_view>

#include "codec/views/cluster_view.h"

namespace carve::codec {

/// What gpushare's scheduler extender answers at /inspect and /inspect/<node>: per node and card how much of its memory
/// is there and granted, and to which pods, in whole `unit`s: of a card rounded down, of a pod rounded up, so that what
/// is left is never overstated. Every dialect's slices count. Nodes are sorted (the original's order was random); of a
/// node that has no card of ours, or is not there, it says so in `error` (the original crashed).
///   in      node: empty: all
///   source  gpushare-scheduler-extender, pkg/scheduler/inspect
[[nodiscard]] std::string gpushare_inspect(const ClusterView& view, Bytes unit, std::string_view node);

}  // namespace carve::codec
