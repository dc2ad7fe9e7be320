#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.h"
#include "codec/dialects/pod_ask.h"
#include "codec/dra/event.h"
#include "core/cluster/cluster.h"
#include "core/policy/rules.h"
#include "port/kube_api.h"

namespace carve::control {

/// The placement rules as they are now: the ConfigMap `carve-placement`, followed while it changes, so that the next
/// pod is placed by what it says now and nothing is started anew. A file that is wrong changes nothing: the last good
/// rules stay, and an event on the ConfigMap, the log and a metric say so. Without the ConfigMap the installation's own
/// policy counts. Safe from any thread; the sink is fed by one.
class PolicyWatcher {
 public:
  static constexpr const char* kConfigMap = "carve-placement";
  static constexpr const char* kKey = "placement.conf";

  /// `otherwise`: for the cluster, where the file says nothing about it. `tell` may be empty.
  PolicyWatcher(const PolicyRow& otherwise, Log& log, std::function<void(codec::EventNote)> post_event);

  /// What KubeApi::watch delivers of the ConfigMap's namespace, with query().
  [[nodiscard]] KubeSink sink();
  [[nodiscard]] static KubeApi::Query query();

  /// What it points to never changes.
  [[nodiscard]] std::shared_ptr<const PlacementRules> rules() const;
  /// The API server has said what there is, or that it will not.
  [[nodiscard]] bool answered() const;

  struct Stats {
    bool good = true;            // what stands there now is what counts
    std::uint64_t changes = 0;   // other rules count since
    std::uint64_t refused = 0;   // texts that were wrong
    std::size_t pools = 0;
    std::size_t namespaces = 0;
    std::string version;         // the resourceVersion that was read last, good or not; empty: there is none
  };
  [[nodiscard]] Stats stats() const;

 private:
  void apply(const std::string& config_map);
  void remove();
  void put(PlacementRules rules);  // under the lock

  const PolicyRow& otherwise_;
  Log& log_;
  const std::function<void(codec::EventNote)> post_event_;
  mutable std::mutex mutex_;
  std::shared_ptr<const PlacementRules> rules_;
  std::string text_;  // as last read
  bool answered_ = false;
  Stats stats_;
};

/// What counts for that pod. A preference that is nonsense is none: admission refuses it.
[[nodiscard]] PodPolicy policy_of(const PlacementRules& rules, const codec::PodAsk& pod);

/// What ranks that node's cards for that pod.
[[nodiscard]] const PolicyRow& card_policy(const PlacementRules& rules, const codec::PodAsk& pod,
                                           const ClusterState& cluster, const std::string& node);

/// One policy for everything, as cluster.conf says it.
[[nodiscard]] PlacementRules rules_of(const PolicyRow& everywhere);

/// The rules that a text makes, with `otherwise` for the cluster where it says nothing about it.
///   errors  parse_placement_rules()'s
[[nodiscard]] Result<PlacementRules> placement_rules_from(const std::string& text, const PolicyRow& otherwise);

}  // namespace carve::control
