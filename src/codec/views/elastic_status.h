#pragma once

#include <string>

#include "codec/views/cluster_view.h"

namespace carve::codec {

/// The answer of Elastic GPU's scheduler extender at /scheduler/status: for each of its two resource names the same
/// JSON text, by node the cards in their order, with the total and free hundredths and MiB of each. The slices of every
/// dialect count.
///   source  elastic-ai/elastic-gpu-scheduler, pkg/routes/routes.go and pkg/scheduler/gpu.go
[[nodiscard]] std::string elastic_status(const ClusterView& view);

}  // namespace carve::codec
