#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

// What kube-scheduler's HTTP extender calls say and want to hear
// (k8s.io/kube-scheduler/extender/v1). Its keys are Go's names; readers take any case, since older
// schedulers send other ones.
namespace carve::codec {

/// Of a filter or prioritize call.
struct ExtenderArgs {
  PodAsk pod;
  std::int32_t priority = 0;                              // of the pod
  std::string nominated;                                  // its status.nominatedNodeName
  std::vector<std::string_view> names;                    // the candidates, in the call's order; into it or `spelled`
  std::shared_ptr<const std::list<std::string>> spelled;  // names that do not stand in the call letter by letter
  bool cache_capable = true;                              // names came, not whole Node objects
  std::map<std::string, std::string, std::less<>> nodes;  // else the objects, as they came
};

/// Streaming is not needed: names of 5,000 nodes are 230 KB. `text` outlives the names.
///   errors  kInvalidArgument: no JSON, no Pod with a UID, neither NodeNames nor Nodes
///   cost    a document of the Pod; of the names, where they need no spelling, none
[[nodiscard]] Result<ExtenderArgs> parse_extender_args(std::string_view text);

/// Names and reasons are somebody else's texts.
struct FilterAnswer {
  using Refused = std::pair<std::string_view, std::string_view>;  // a node, and why
  std::vector<std::string_view> names;                            // they serve the pod
  std::vector<Refused> failed;                                    // others may, once slices go
  std::vector<Refused> hopeless;                                  // eviction would not help
  std::string error;                                              // of the whole call; empty: none
};
/// In the form that the call asked for: names, or the objects themselves.
///   cost    with names a copy of the texts
[[nodiscard]] std::string to_json(const FilterAnswer& answer, const ExtenderArgs& args);

struct HostScore {
  std::string_view node;
  std::int64_t score = 0;  // 0 to 10
};
[[nodiscard]] std::string to_json(const std::vector<HostScore>& scores);

/// Of a preempt call: who would have to go on each node, as kube-scheduler counts.
struct PreemptionArgs {
  struct Victims {
    std::vector<std::string> uids;
    std::int64_t violations = 0;  // of PodDisruptionBudgets
  };
  PodAsk pod;
  std::int32_t priority = 0;
  std::map<std::string, Victims> nodes;
};
/// Both forms: victims as whole Pods, or by their UIDs.
///   errors  kInvalidArgument: no JSON, no Pod with a UID, no map of victims, or a victim without a UID
[[nodiscard]] Result<PreemptionArgs> parse_preemption_args(std::string_view text);
/// ExtenderPreemptionResult: the nodes that remain, with their victims by UID, whatever form was asked in.
[[nodiscard]] std::string preemption_result(const std::map<std::string, PreemptionArgs::Victims>& nodes);

/// What one replica tells another: a pod that no node serves, and the nodes on which only cards are missing.
struct UnschedulablePodsNote {
  std::string uid;
  std::vector<std::string> nodes;
};
[[nodiscard]] std::string encode_turned_away(const UnschedulablePodsNote& note);
///   errors  kInvalidArgument: no JSON, or without a UID
[[nodiscard]] Result<UnschedulablePodsNote> parse_turned_away(std::string_view text);

struct BindingArgs {
  std::string space;
  std::string pod;
  std::string uid;
  std::string node;
  std::string wish;  // ours, of one replica to another: a record of what the pod was sent there for; may be empty
  std::string why;   // the same: why, for a person
};
///   errors  kInvalidArgument: no JSON, or one of the first four is missing: it names which
[[nodiscard]] Result<BindingArgs> parse_binding_args(std::string_view text);
/// The same call with that wish.
[[nodiscard]] std::string with_wish(std::string_view call, const std::string& wish, const std::string& why = {});
/// Empty: bound.
[[nodiscard]] std::string binding_result(const std::string& error);

}  // namespace carve::codec
