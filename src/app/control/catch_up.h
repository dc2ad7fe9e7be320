#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "app/control/cluster_model.h"
#include "port/kube_api.h"

namespace carve::control {

/// Whether the model knows what the leader before us wrote: watches run behind the server, by how much nobody says. So
/// all pods are listed, now, from the server itself, and each decision on the list must be seen in the model. One
/// thread.
class CatchUp {
 public:
  CatchUp(KubeApi& api, const ClusterModel& model, const Clock& clock) : api_(api), model_(model), clock_(clock) {}
  /// For Leader::World::caught_up. The list is made once per term, and again each second, for the pods that went since.
  Result<bool> operator()(std::uint64_t term);

 private:
  struct Decided {
    std::string node;
    std::string record;
  };
  KubeApi& api_;
  const ClusterModel& model_;
  const Clock& clock_;
  std::uint64_t term_ = 0;
  Clock::Time listed_{};
  std::map<std::string, Decided> wanted_;  // by UID: not seen in the model yet
};

}  // namespace carve::control
