#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/mutex.h"
#include "codec/dialects/pod_ask.h"
#include "codec/kube/event.h"
#include "core/cluster/cluster.h"
#include "core/policy/rules.h"
#include "port/kube_api.h"

namespace carve::control {

/// The current placement rules, from a watch of the ConfigMap `carve-placement`: a change applies to the next pod
/// without a restart. An invalid file changes nothing: the last valid rules stay in effect, and an event on the
/// ConfigMap, the log and a metric report it. After a start there are none; then the quotas of its valid lines apply.
/// Without the ConfigMap the installation's own policy applies. Safe from any thread; one thread feeds the sink.
class PolicyWatcher {
 public:
  static constexpr const char* kConfigMap = "carve-placement";
  static constexpr const char* kKey = "placement.conf";

  /// `otherwise`: the cluster's policy if the file does not set it. `changed` is called with each new set of rules. It
  /// and `post_event` may be empty.
  PolicyWatcher(const PolicyRow& otherwise, Log& log, std::function<void(codec::EventNote)> post_event,
                std::function<void(const PlacementRules&)> changed = {});

  /// The sink for KubeApi::watch of the ConfigMaps in Carve's namespace, with query().
  [[nodiscard]] KubeSink sink();
  [[nodiscard]] static KubeApi::Query query();

  /// The returned object never changes.
  [[nodiscard]] std::shared_ptr<const PlacementRules> rules() const;
  /// The API server has answered: with a list, or with an error.
  [[nodiscard]] bool answered() const;

  struct Stats {
    bool good = true;           // the current text is valid and in effect
    std::uint64_t changes = 0;  // of the rules in effect
    std::uint64_t refused = 0;  // invalid texts
    std::size_t pools = 0;
    std::size_t namespaces = 0;
    std::string version;  // the resourceVersion that was read last, valid or not; empty: no ConfigMap
  };
  [[nodiscard]] Stats stats() const;

 private:
  void apply(const std::string& config_map);
  void remove();
  /// True: the rules are other ones.
  bool put(PlacementRules rules) REQUIRES(mutex_);
  void report_change();

  const PolicyRow& otherwise_;
  Log& log_;
  const std::function<void(codec::EventNote)> post_event_;
  const std::function<void(const PlacementRules&)> changed_;
  mutable Mutex mutex_;
  std::shared_ptr<const PlacementRules> rules_ GUARDED_BY(mutex_);
  std::string text_ GUARDED_BY(mutex_);  // as last read
  bool answered_ GUARDED_BY(mutex_) = false;
  bool has_rules_ GUARDED_BY(mutex_) = false;  // a file was valid, or there was none
  Stats stats_ GUARDED_BY(mutex_);
};

/// The policy for that pod. An invalid preference counts as none; admission refuses it.
[[nodiscard]] PodPolicy policy_of(const PlacementRules& rules, const codec::PodAsk& pod);

/// The policy that ranks that node's cards for that pod.
[[nodiscard]] const PolicyRow& card_policy(const PlacementRules& rules, const codec::PodAsk& pod,
                                           const ClusterState& cluster, const std::string& node);

/// Rules with one policy for everything, as cluster.conf sets it.
[[nodiscard]] PlacementRules rules_of(const PolicyRow& everywhere);

/// Parses rules from a text, with `otherwise` as the cluster's policy if the text does not set it.
///   errors  parse_placement_rules()'s
[[nodiscard]] Result<PlacementRules> placement_rules_from(const std::string& text, const PolicyRow& otherwise);

}  // namespace carve::control
