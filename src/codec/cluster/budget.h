#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

namespace carve::codec {

/// One line of a label selector: In, NotIn, Exists, DoesNotExist.
struct LabelRule {
  std::string key;
  std::string word;
  std::vector<std::string> values;
  friend bool operator==(const LabelRule&, const LabelRule&) = default;
};

/// A PodDisruptionBudget (policy/v1): which pods, and how many of them may be evicted now.
struct Budget {
  std::string space;
  std::string name;
  bool selects = false;  // there is a selector; an empty one takes every pod of the namespace
  std::map<std::string, std::string> labels;
  std::vector<LabelRule> rules;
  std::int64_t allowed = 0;  // status.disruptionsAllowed
};

/// Tolerant; a budget whose status nobody has written yet allows nothing, as the Eviction API has it.
///   errors  kInvalidArgument: no JSON, or without a name
[[nodiscard]] Result<Budget> parse_budget(std::string_view text);

/// Whether an eviction of that pod counts against it. A rule with a word that is not known covers: it is safer.
[[nodiscard]] bool covers(const Budget& budget, const PodAsk& pod);

}  // namespace carve::codec
