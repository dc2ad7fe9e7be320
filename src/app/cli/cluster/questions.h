#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "codec/dialects/dialect.h"
#include "codec/views/cluster_view.h"
#include "codec/views/explanation.h"
#include "core/policy/rules.h"
#include "port/kube_api.h"

// What a person asks of a whole cluster, answered from the API server alone, by the same model and the same engine that
// control uses: it needs no more than the right to read Nodes, Pods and GPU objects, and no control that runs. Who may
// not read the ConfigMaps of kube-system (gpushare's lists of cards that were taken out) is told so.
namespace carve::cli {

/// Whom to ask, and how this installation reads requests and chooses cards.
struct ClusterAccess {
  KubeApi& api;
  const Clock& clock;
  Log& log;
  codec::DialectSettings dialects;
  PlacementRules placement;
  std::string space = "carve-system";  // where Carve is installed
};

/// Everything, or with `node` that one node's cards.
///   errors  kNotFound: no such node, or Carve is not installed there; the API server's
[[nodiscard]] Result<codec::ClusterView> ask_cluster(const ClusterAccess& access, const std::string& node);

/// By which address each Node is reached, by its name.
///   errors  the API server's
[[nodiscard]] Result<std::map<std::string, std::string>> ask_addresses(KubeApi& api);

/// One pod.
///   errors  kNotFound: no such pod; the API server's
[[nodiscard]] Result<codec::Explanation> ask_pod(const ClusterAccess& access, const std::string& space,
                                                 const std::string& name);

}  // namespace carve::cli
