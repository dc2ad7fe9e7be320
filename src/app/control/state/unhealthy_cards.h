#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/control/state/cluster_model.h"
#include "base/log.h"
#include "codec/kube/event.h"
#include "port/kube_api.h"

namespace carve::control {

/// Cards that an operator closed in gpushare's way, with ConfigMaps kube-system/unhealthy-gpu-<node>. A marked card is
/// closed to new slices of every dialect; existing slices stay. Removing the ConfigMap's entry removes the mark. An
/// invalid text marks no card, and an event on the ConfigMap says so: only the current text counts, not the previous
/// one. The health that the driver reports is independent of these marks. One thread feeds the sink.
class UnhealthyCards {
 public:
  /// `post_event` may be empty.
  UnhealthyCards(ClusterModel& model, Log& log, std::function<void(codec::EventNote)> post_event)
      : model_(model), log_(log), post_event_(std::move(post_event)) {}

  /// The sink for KubeApi::watch of kPath. It selects the ConfigMaps by name.
  [[nodiscard]] KubeSink sink();
  static constexpr const char* kPath = "/api/v1/namespaces/kube-system/configmaps";

  /// The API server has answered: with a list, or with an error.
  [[nodiscard]] bool answered() const { return answered_; }

 private:
  void apply(const std::string& config_map);
  void remove(const std::string& config_map);
  void replace(const std::vector<std::string>& all);
  void mark(const std::string& node, std::set<int> indexes);

  ClusterModel& model_;
  Log& log_;
  const std::function<void(codec::EventNote)> post_event_;
  std::map<std::string, std::set<int>> marked_;    // by node
  std::map<std::string, std::string> refused_;     // by node: the invalid text
  std::atomic<bool> answered_ = false;
};

}  // namespace carve::control
