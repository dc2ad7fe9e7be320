#pragma once

#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "core/model/card.h"
#include "port/kube_api.h"

namespace carve::plugins {

/// The cards of this node on which room is kept for an ElasticGPU, with or without a claim that uses it. Control states
/// the node and the card in the status of each. Safe from any thread.
class ClaimedCards {
 public:
  ClaimedCards(std::string node, KubeApi& api) : node_(std::move(node)), api_(api) {}

  /// Lists and watches until `stop`.
  void run(const std::stop_token& stop);
  [[nodiscard]] std::set<CardId> cards() const;
  /// Whether the list has arrived at least once, or the API server has no such objects.
  [[nodiscard]] bool synced() const;

  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);

 private:
  void learn(const std::string& object) REQUIRES(mutex_);

  const std::string node_;
  KubeApi& api_;
  mutable Mutex mutex_;
  bool synced_ GUARDED_BY(mutex_) = false;
  std::map<std::string, std::vector<CardId>> cards_ GUARDED_BY(mutex_);  // by the name of the ElasticGPU
};

}  // namespace carve::plugins
