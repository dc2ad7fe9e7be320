#pragma once

#include <string>

#include "codec/views/cluster_view.h"

namespace carve::cli {

/// `carve inspect` of a cluster: the cards of each node, what is granted of each card and to which pods; then the sums
/// and the waiting pods. `wide`: a line per slice, with full names.
[[nodiscard]] std::string render_cluster(const codec::ClusterView& view, bool wide);

}  // namespace carve::cli
