#pragma once

#include <string>
#include <vector>

#include "app/cli/cluster/questions.h"
#include "app/control/claims/claim_rooms.h"
#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"

namespace carve::cli {

/// The label selector of the agents' pods.
inline constexpr const char* kAgents = "app.kubernetes.io/name=carve,app.kubernetes.io/component=agent";

/// The objects that every question about the cluster needs, as JSON from the API server.
struct Objects {
  std::vector<std::string> nodes;
  std::vector<std::string> gpus;
  std::vector<std::string> pods;
  std::vector<std::string> config_maps;  // of kube-system; some name cards that an operator took out of use
  std::string no_config_maps;            // why the caller may not read config_maps; empty: they were read
  std::vector<std::string> elastic_classes;
  std::vector<std::string> elastic_gpus;
  std::vector<std::string> elastic_claims;
  std::string
      no_claims;  // why the caller may not read these three; empty: they were read, or the cluster has no such kind
};

/// The cluster as control knows it.
class KnownCluster {
 public:
  /// control's model with these objects, including the cards that an operator took out of use, the capacity that is
  /// reserved for pods with a nominatedNodeName, and the rooms of ElasticGPUs.
  KnownCluster(const ClusterAccess& access, const Objects& all);
  [[nodiscard]] const control::ClusterModel& model() const { return model_; }
  /// What pods request, by resource names and by claims.
  [[nodiscard]] const control::PodRequests& requests() const { return requests_; }
  /// Adds the rooms of claims, and of pods that wait with a claim, to the cards' holders.
  void add_claims(std::vector<codec::GpuObject>* cards) const;

 private:
  void keep_claims();

  control::ClaimBook claims_;
  control::PodRequests requests_;
  control::ClusterModel model_;
  control::ClaimRooms rooms_;
};

///   errors  kNotFound: this cluster has no resource gpus.elasticgpu.io; those of the API server
[[nodiscard]] Result<Objects> read_all(KubeApi& api);

/// The cards. Objects that cannot be parsed are left out; model_of() logs them.
[[nodiscard]] std::vector<codec::GpuObject> cards_of(const Objects& all);

/// One sentence for the answer that says which objects the caller may not read and what follows; empty: all were read.
[[nodiscard]] std::string unread_of(const Objects& all);

/// The pods that request cards and are not bound, with the reason.
[[nodiscard]] std::vector<codec::WaitingPod> waiting_of(const ClusterAccess& access, const Objects& all,
                                                        const KnownCluster& cluster);

}  // namespace carve::cli
