#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/cli/cluster/questions.h"
#include "app/control/cluster_model.h"

namespace carve::cli {

/// The label selector of the agents' pods.
inline constexpr const char* kAgents = "app.kubernetes.io/name=carve,app.kubernetes.io/component=agent";

/// What every question about the cluster begins with, as the API server wrote it.
struct Objects {
  std::vector<std::string> nodes;
  std::vector<std::string> gpus;
  std::vector<std::string> pods;
  std::vector<std::string> config_maps;  // of kube-system: some say which cards an operator took out
  std::string no_config_maps;            // why the caller may not read those; empty: they are read
};

///   errors  kNotFound: this cluster knows no GPU objects; the API server's
[[nodiscard]] Result<Objects> read_all(KubeApi& api);

/// What an answer says where the caller may not read all that counts, one sentence; empty: all was read.
[[nodiscard]] std::string unread_of(const Objects& all);

/// control's model, fed with them once: with the cards that an operator took out, and the room that is kept for pods
/// whose nominatedNodeName names a node.
[[nodiscard]] std::unique_ptr<control::ClusterModel> model_of(const ClusterAccess& access, const Objects& all);

/// The pods that ask for cards and are on no node, and why.
[[nodiscard]] std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all,
                                                        const ClusterState& state);

}  // namespace carve::cli
