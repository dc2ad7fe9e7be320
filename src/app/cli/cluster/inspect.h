#pragma once

#include <string>

#include "codec/views/cluster_view.h"

namespace carve::cli {

/// `carve inspect` of a cluster: the cards of each node, what is granted of each card and to which pods; then the sums
/// and the waiting pods. `wide`: a line per slice, with full names.
[[nodiscard]] std::string render_cluster(const codec::ClusterView& view, bool wide);

/// The lines of the wide form as CSV, with bytes and hundredths of a card. A card without a slice has one line.
[[nodiscard]] std::string cluster_csv(const codec::ClusterView& view);

/// The names of the GPU objects as `kubectl get -o name` prints them, one per line.
[[nodiscard]] std::string cluster_names(const codec::ClusterView& view);

}  // namespace carve::cli
