#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

namespace carve::codec {

/// One requirement of a label selector: In, NotIn, Exists, DoesNotExist.
struct LabelRule {
  std::string key;
  std::string word;
  std::vector<std::string> values;
  friend bool operator==(const LabelRule&, const LabelRule&) = default;
};

/// A PodDisruptionBudget (policy/v1): which pods it covers, and how many of them may be evicted now.
struct Budget {
  std::string namespace_name;
  std::string name;
  bool selects = false;  // it has a selector; an empty one selects every pod of the namespace
  std::map<std::string, std::string> labels;
  std::vector<LabelRule> rules;
  std::int64_t allowed = 0;  // status.disruptionsAllowed
};

/// Tolerant. A budget without a status allows no eviction, as in the Eviction API.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<Budget> parse_budget(std::string_view text);

/// True when an eviction of that pod counts against the budget. A requirement with an unknown operator covers the pod,
/// which is safer.
[[nodiscard]] bool covers(const Budget& budget, const PodAsk& pod);

}  // namespace carve::codec
