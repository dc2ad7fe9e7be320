#pragma once

#include <csignal>

#include "app/dashboard/dashboard_api.h"
#include "cmd/options.h"

namespace carve::cmd {

/// Serves the web page with these sources until one of the signals `stop_signals`, which are blocked. Returns the exit
/// code.
int serve_page(const DashboardOptions& options, dashboard::Sources sources, const sigset_t& stop_signals);
/// `carve dashboard --cluster`: the same, with what the API server tells the user of the kubeconfig.
int dashboard_of_cluster(const DashboardOptions& options, const sigset_t& stop_signals);

}  // namespace carve::cmd
