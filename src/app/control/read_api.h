#pragma once

#include <string>

#include "app/control/cluster_model.h"
#include "codec/views/cluster_view.h"

namespace carve::control {

/// Who is on which card, and who waits, as the model knows it now: what `carve inspect --cluster` shows, without the
/// question why somebody waits (`carve explain` answers that for one pod).
///   cost    a copy of every GPU object
[[nodiscard]] codec::ClusterView view_of(const ClusterModel& model);

}  // namespace carve::control
