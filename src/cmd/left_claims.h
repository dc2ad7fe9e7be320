#pragma once

#include <stop_token>

#include "adapter/kubelet/kubelet_server.h"
#include "app/plugins/claims_left.h"
#include "app/plugins/dra_driver.h"
#include "base/clock.h"
#include "base/log.h"

namespace carve::cmd {

/// On a node with a setting `plugins` that does not contain dra: withdraws the ResourceSlices, and keeps the DRA driver
/// registered with the kubelet while claims are left (plugins::ClaimsLeft). Checks twice a second, until `stop`.
///   dra      refuses new claims (DraDriver::World::shut)
///   sockets  of the driver
void serve_left_claims(plugins::ClaimsLeft& left, DraCalls& dra, const kubelet::DraSocketOptions& sockets, Clock& clock,
                       Log& log, const std::stop_token& stop);

}  // namespace carve::cmd
