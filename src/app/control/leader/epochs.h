#pragma once

#include <cstdint>

#include "app/control/state/cluster_model.h"
#include "base/clock.h"

namespace carve::control {

/// Epochs up to the returned one may have been used; the next leader's epoch is higher. No epoch is used twice, not
/// even by two successive installations: an API server was seen to hold the Lease of a deleted installation against the
/// records of the next one (deploy/control/leader-policy.yaml) for as long as that server ran. So epochs start from the
/// seconds since 2026: these grow faster than leaders can change, and fit the Lease's int32 until 2094.
///
/// Between replicas this clock decides nothing. A new leader continues from the Lease, from the records, and from what
/// it saw before (LeaderElection), so a replica with a late clock does not fall back. The clock matters only
/// between one installation and the next, and for a replica that never saw a Lease that was deleted by hand. These
/// events must be further apart than the clocks differ.
[[nodiscard]] std::uint64_t epochs_so_far(const ClusterModel& model, const Clock& clock);

}  // namespace carve::control
