#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/control/cluster_model.h"
#include "base/log.h"
#include "codec/dra/event.h"
#include "port/kube_api.h"

namespace carve::control {

/// Cards that an operator took out in gpushare's way: ConfigMaps kube-system/unhealthy-gpu-<node>. Nothing new is put
/// on them, in whatever dialect it is asked for; who holds there stays, and with the ConfigMap's entry goes the mark. A
/// text that is wrong marks no card, and an event on the ConfigMap says so: what counts is what stands there now, not
/// what did before. Health as the driver tells it is another matter, and counts beside. The sink is fed by one thread.
class UnhealthyCards {
 public:
  /// `tell` may be empty.
  UnhealthyCards(ClusterModel& model, Log& log, std::function<void(codec::EventNote)> post_event)
      : model_(model), log_(log), post_event_(std::move(post_event)) {}

  /// What KubeApi::watch delivers of kPath; names say which of them are meant.
  [[nodiscard]] KubeSink sink();
  static constexpr const char* kPath = "/api/v1/namespaces/kube-system/configmaps";

  /// The API server has said what there is, or that it will not.
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
  std::map<std::string, std::string> refused_;     // by node: the text that is wrong
  std::atomic<bool> answered_ = false;
};

}  // namespace carve::control
