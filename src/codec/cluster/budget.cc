#include "codec/cluster/budget.h"

#include <algorithm>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace read = json_read;

bool holds(const LabelRule& rule, const std::map<std::string, std::string>& labels) {
  const auto found = labels.find(rule.key);
  const bool there = found != labels.end();
  const bool among =
      there && std::find(rule.values.begin(), rule.values.end(), found->second) != rule.values.end();
  if (rule.word == "In") return among;
  if (rule.word == "NotIn") return !among;
  if (rule.word == "Exists") return there;
  if (rule.word == "DoesNotExist") return !there;
  return true;
}

}  // namespace

Result<Budget> parse_budget(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "PodDisruptionBudget"));
  Budget budget;
  budget.namespace_name = read::text(value, "metadata.namespace");
  budget.name = read::text(value, "metadata.name");
  if (budget.name.empty()) return fail(Code::kInvalidArgument, "PodDisruptionBudget: metadata.name is missing");
  budget.allowed = read::number(value, "status.disruptionsAllowed");
  const auto* selector = read::at(value, "spec.selector");
  budget.selects = selector != nullptr && selector->is_object();
  if (!budget.selects) return budget;
  const auto* labels = read::member(*selector, "matchLabels");
  if (labels != nullptr && labels->is_object()) {
    for (const auto& [key, label] : labels->get_object()) budget.labels[std::string(key)] = read::text_of(&label);
  }
  for (const auto& rule : read::list(*selector, "matchExpressions")) {
    LabelRule one{read::text(rule, "key"), read::text(rule, "operator"), {}};
    for (const auto& word : read::list(rule, "values")) one.values.push_back(read::text_of(&word));
    budget.rules.push_back(std::move(one));
  }
  return budget;
}

bool covers(const Budget& budget, const PodAsk& pod) {
  if (!budget.selects || budget.namespace_name != pod.namespace_name) return false;
  const bool labels = std::all_of(budget.labels.begin(), budget.labels.end(), [&](const auto& wanted) {
    const auto found = pod.labels.find(wanted.first);
    return found != pod.labels.end() && found->second == wanted.second;
  });
  return labels && std::all_of(budget.rules.begin(), budget.rules.end(),
                               [&](const LabelRule& rule) { return holds(rule, pod.labels); });
}

}  // namespace carve::codec
