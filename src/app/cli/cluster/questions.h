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

// Answers a person's questions about a whole cluster from the API server alone, with the same model and the same
// placement engine as control. The caller needs the permission to read Nodes, Pods and GPU objects; control need not
// run. If the caller may not read the ConfigMaps of kube-system (gpushare's lists of cards that were taken out of use),
// the answer says so.
namespace carve::cli {

/// The API server to ask, and how this installation reads requests and chooses cards.
struct ClusterAccess {
  KubeApi& api;
  const Clock& clock;
  Log& log;
  codec::DialectSettings dialects;
  PlacementRules placement;
  std::string namespace_name = "carve-system";  // the namespace of Carve
};

/// All cards and waiting pods; with `node`, only the cards of that node.
///   errors  kNotFound: the node has no card, or Carve is not installed; those of the API server
[[nodiscard]] Result<codec::ClusterView> ask_cluster(const ClusterAccess& access, const std::string& node);

/// The address of each Node, by the Node's name.
///   errors  those of the API server
[[nodiscard]] Result<std::map<std::string, std::string>> ask_addresses(KubeApi& api);

/// One pod: its request, its slices, and where it fits or why it waits.
///   errors  kNotFound: the pod does not exist; those of the API server
[[nodiscard]] Result<codec::Explanation> ask_pod(const ClusterAccess& access, const std::string& namespace_name,
                                                 const std::string& name);

}  // namespace carve::cli
