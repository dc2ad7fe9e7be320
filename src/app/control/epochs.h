#pragma once

#include <cstdint>

#include "app/control/cluster_model.h"
#include "base/clock.h"

namespace carve::control {

/// Epochs up to this one may have been used: the next leader's is above it. No epoch is used twice, not by an
/// installation after another either: an API server was seen to hold a Lease that had been deleted against the records
/// of the next one (deploy/control/leader-policy.yaml), for as long as it ran. So they begin with the seconds since
/// 2026, which go faster than leaders can change and fit the Lease's int32 until 2094. Between replicas this clock
/// decides nothing: whoever follows another one counts on from the Lease, from the records, and from what it saw before
/// (LeaderElection), so that one whose clock is behind does not fall back. It counts only between an installation and
/// the next, and where a Lease was deleted by hand for one who never saw it: those have to come later than their clocks
/// differ.
[[nodiscard]] std::uint64_t epochs_so_far(const ClusterModel& model, const Clock& clock);

}  // namespace carve::control
