#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/node/node_object.h"
#include "port/kube_api.h"

namespace carve::node {

/// What the Node should say.
struct NodeWish {
  std::map<std::string, std::string> labels;
  bool labels_known = false;  // false: the cards are not known, labels stay as they are
  std::vector<codec::NodeCondition> conditions;
  codec::NodeChanges totals;  // names of ours; nullopt: must not be there
};

/// Keeps the own Node's labels, conditions and totals, and touches it when slices are free:
/// kube-scheduler tries pods again that an extender refused when an annotation of a Node changes,
/// and not before. Each kind is written at most once in kGap, the touch once in kTouchGap, the
/// first at once. A condition is told when its trouble has lasted for kLasting, and heals at once.
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

  /// Something of a card became free.
  void freed() { touch_ = true; }
  /// The touch that is due, first of all: somebody waits for it.
  Result<void> touch();
  /// One condition at once, before its time and all others: somebody waits for it.
  ///   errors  as step()
  Result<void> tell(const codec::NodeCondition& condition);
  /// One comparison and its writes. True: something waits for its time.
  ///   errors  the API server's; kUnavailable: the Node was not heard of yet
  Result<bool> step(const NodeWish& wish);

 private:
  [[nodiscard]] std::vector<codec::NodeCondition> due_conditions(const NodeWish& wish,
                                                                 const codec::NodeObject& node);
  [[nodiscard]] bool due(const char* kind);
  Result<void> write_down(const std::set<std::string>& totals);
  Result<void> patch(const std::string& path, KubePatch kind, const std::string& body);
  void learn(const std::string& object);

  std::string node_;
  KubeApi& api_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::optional<codec::NodeObject> seen_;
  // The stepping thread's own.
  bool touch_ = false;
  bool waiting_ = false;
  Clock::Time next_touch_{};
  std::map<std::string, Clock::Time> next_;      // by kind of write
  std::map<std::string, Clock::Time> on_since_;  // of troubles, by condition type
};

}  // namespace carve::node
