#pragma once

#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "codec/node/node_object.h"
#include "port/kube_api.h"

namespace carve::node {

/// The wanted content of the Node.
struct NodeWish {
  std::map<std::string, std::string> labels;
  bool labels_known = false;  // false: the cards are not known, labels stay as they are
  std::vector<codec::NodeCondition> conditions;
  codec::NodeChanges totals;  // by resource name; nullopt: must not exist
};

/// Keeps the labels, conditions and totals of this agent's Node. It also updates an annotation ("touches" the Node)
/// when slices become free: only a changed annotation makes kube-scheduler requeue pods that an extender refused. Each
/// kind is written immediately, and then at most once in kGap, the touch once in kTouchGap. A condition becomes True
/// after its trouble has lasted for kLasting, and False immediately.
class NodeStatus {
 public:
  static constexpr Clock::Duration kGap = std::chrono::seconds(2);
  static constexpr Clock::Duration kTouchGap = std::chrono::seconds(1);
  static constexpr Clock::Duration kLasting = std::chrono::seconds(2);
  static constexpr const char* kTouched = "elasticgpu.io/slices-freed";

  NodeStatus(std::string node, KubeApi& api, const Clock& clock)
      : node_(std::move(node)), api_(api), clock_(clock) {}

  void run_watch(const std::stop_token& stop);
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);
  [[nodiscard]] std::optional<codec::NodeObject> seen() const;

  /// Requests a touch, because part of a card became free.
  void freed() { touch_ = true; }
  /// Writes the touch if it is due. Call it before step(), because pods wait for it. True: it was written.
  Result<bool> touch();
  /// Writes one condition immediately, regardless of kGap, because pods wait for it.
  ///   errors  as step()
  Result<void> tell(const codec::NodeCondition& condition);
  /// Compares once and writes what is due. True: a write is not due yet.
  ///   errors  the API server's; kUnavailable: the Node is not known yet
  Result<bool> step(const NodeWish& wish);

 private:
  [[nodiscard]] std::vector<codec::NodeCondition> due_conditions(const NodeWish& wish,
                                                                 const codec::NodeObject& node);
  [[nodiscard]] bool due(const char* kind);
  Result<void> write_down(const std::set<std::string>& totals);
  Result<void> patch(const std::string& path, KubePatch kind, const std::string& body);
  void learn(const std::string& object) REQUIRES(mutex_);

  std::string node_;
  KubeApi& api_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::optional<codec::NodeObject> seen_ GUARDED_BY(mutex_);
  // Only for the thread of step().
  bool touch_ = false;
  bool waiting_ = false;
  Clock::Time next_touch_{};
  std::map<std::string, Clock::Time> next_;      // by kind of write
  std::map<std::string, Clock::Time> on_since_;  // of troubles, by condition type
};

}  // namespace carve::node
