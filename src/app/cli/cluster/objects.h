#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/cli/cluster/questions.h"
#include "app/control/cluster_model.h"

namespace carve::cli {

/// What every question about the cluster begins with, as the API server wrote it.
struct Objects {
  std::vector<std::string> nodes;
  std::vector<std::string> gpus;
  std::vector<std::string> pods;
};

///   errors  kNotFound: this cluster knows no GPU objects; the API server's
[[nodiscard]] Result<Objects> read_all(KubeApi& api);

/// control's model, fed with them once.
[[nodiscard]] std::unique_ptr<control::ClusterModel> model_of(const ClusterAccess& access, const Objects& all);

/// The pods that ask for cards and are on no node, and why.
[[nodiscard]] std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all,
                                                        const ClusterState& state);

}  // namespace carve::cli
