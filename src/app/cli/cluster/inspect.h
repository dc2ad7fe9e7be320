#pragma once

#include <string>

#include "codec/views/cluster_view.h"

namespace carve::cli {

/// `carve inspect` of a cluster: per node its cards, what is granted of each and to whom; at the end the sums, and who
/// waits. `wide`: a line per slice, with full names.
[[nodiscard]] std::string render_cluster(const codec::ClusterView& view, bool wide);

}  // namespace carve::cli
