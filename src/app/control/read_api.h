#pragma once

#include <string>

#include "app/control/cluster_model.h"
#include "codec/views/cluster_view.h"

namespace carve::control {

/// Who is on which card, and who waits, as the model knows it now: what the nodes say, and what the ledger books beyond
/// that (pods that were bound just now, room that is set aside, nodes whose agent is away). Without the question why
/// somebody waits (`carve explain` answers that for one pod).
///   cost    a copy of every GPU object; the model's snapshot()
[[nodiscard]] codec::ClusterView view_of(const ClusterModel& model);

}  // namespace carve::control
