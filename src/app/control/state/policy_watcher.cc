#include "app/control/state/policy_watcher.h"

#include <utility>

#include "codec/cluster/notes.h"
#include "codec/placement/placement_text.h"

namespace carve::control {

PlacementRules rules_of(const PolicyRow& everywhere) {
  const Policies both = PodPolicy(everywhere).on({});
  return {{both.node, both.card}, {}, {}};
}

Result<PlacementRules> placement_rules_from(const std::string& text, const PolicyRow& otherwise) {
  CARVE_TRY(auto rules, codec::parse_placement_rules(text));
  const auto installed = rules_of(otherwise).cluster;
  if (rules.cluster.node == nullptr) rules.cluster.node = installed.node;
  if (rules.cluster.card == nullptr) rules.cluster.card = installed.card;
  return rules;
}

PodPolicy policy_of(const PlacementRules& rules, const codec::PodAsk& pod) {
  return {rules, pod.namespace_name, codec::placement_of(pod).value_or(PolicyChoice{})};
}

const PolicyRow& card_policy(const PlacementRules& rules, const codec::PodAsk& pod,
                             const ClusterState& cluster, const std::string& node) {
  const auto found = cluster.find(node);
  return *policy_of(rules, pod)
              .on(found == cluster.end() ? NodeLabels{} : found->second->labels)
              .card;
}

PolicyWatcher::PolicyWatcher(const PolicyRow& otherwise, Log& log, std::function<void(codec::EventNote)> post_event,
                             std::function<void(const PlacementRules&)> changed)
    : otherwise_(otherwise),
      log_(log),
      post_event_(std::move(post_event)),
      changed_(std::move(changed)),
      rules_(std::make_shared<const PlacementRules>(rules_of(otherwise))) {}

KubeApi::Query PolicyWatcher::query() {
  return {{"fieldSelector", std::string("metadata.name=") + kConfigMap}};
}

KubeSink PolicyWatcher::sink() {
  return {[this](const std::vector<std::string>& all) { all.empty() ? remove() : apply(all.front()); },
          [this](const KubeChange& change) { change.kind == KubeChange::Kind::kPut ? apply(change.object) : remove(); },
          [this](const Error&) {
            const MutexLock lock(mutex_);
            answered_ = true;
          }};
}

bool PolicyWatcher::put(PlacementRules rules) {
  answered_ = has_rules_ = true;
  stats_.good = true;
  if (rules == *rules_) return false;
  ++stats_.changes;
  stats_.pools = rules.pools.size();
  stats_.namespaces = rules.namespaces.size();
  log_.info("placement rules changed", {{"rules", codec::to_text(rules)}});
  rules_ = std::make_shared<const PlacementRules>(std::move(rules));
  return true;
}

void PolicyWatcher::report_change() {
  if (changed_) changed_(*rules());
}

void PolicyWatcher::remove() {
  bool changed = false;
  {
    const MutexLock lock(mutex_);
    text_.clear();
    stats_.version.clear();
    changed = put(rules_of(otherwise_));
  }
  if (changed) report_change();
}

void PolicyWatcher::apply(const std::string& config_map) {
  auto text = codec::config_map_value(config_map, kKey);
  auto rules = placement_rules_from(text, otherwise_);
  const auto name = codec::read_object_name(config_map);
  bool changed = false;
  bool report = false;
  {
    const MutexLock lock(mutex_);
    stats_.version = name.version;
    if (rules) {
      text_ = std::move(text);
      changed = put(std::move(*rules));
    } else {
      if (!has_rules_) {
        // This process has no earlier rules. The quotas are a limit: those that can be read apply.
        auto known = rules_of(otherwise_);
        known.quotas = codec::quotas_of_valid_lines(text);
        changed = put(std::move(known));
      }
      answered_ = true;
      stats_.good = false;
      report = text != text_;  // else its labels changed, or the watch restarted: already reported
      stats_.refused += report ? 1 : 0;
      text_ = std::move(text);
    }
  }
  if (changed) report_change();
  if (!report) return;
  log_.error("invalid placement rules: the last valid rules stay in effect",
             {{"configmap", kConfigMap}, {"error", rules.error().what}});
  if (!post_event_) return;
  post_event_({"ConfigMap", name.namespace_name, name.name, name.uid, "PlacementRefused",
               "invalid placement rules, the last valid rules stay in effect: " + rules.error().what});
}

std::shared_ptr<const PlacementRules> PolicyWatcher::rules() const {
  const MutexLock lock(mutex_);
  return rules_;
}

bool PolicyWatcher::answered() const {
  const MutexLock lock(mutex_);
  return answered_;
}

PolicyWatcher::Stats PolicyWatcher::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

}  // namespace carve::control
