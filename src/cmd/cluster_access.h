#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/cli/cluster/questions.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/cluster_config.h"
#include "cmd/options.h"
#include "port/kube_api.h"

// How a command of a person reaches a cluster: with the rights of the user's kubeconfig.
namespace carve::cmd {

/// The namespace of Carve.
[[nodiscard]] std::string space_of(const ClusterOptions& options);

/// The path of a ConfigMap.
[[nodiscard]] std::string map_in(const std::string& namespace_name, const std::string& name);

/// The API server. An error names the kubeconfig files.
[[nodiscard]] Result<std::unique_ptr<KubeApi>> api_of(const ClusterOptions& options, Clock& clock, Log& log);

/// Opens the API server, reads how this installation reads requests and chooses cards, and calls `use` with both.
int with_cluster(const ClusterOptions& options,
                 const std::function<int(const cli::ClusterAccess&, const ClusterConfig&)>& use);

}  // namespace carve::cmd
