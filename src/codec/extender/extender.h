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

// The arguments and results of kube-scheduler's HTTP extender calls (k8s.io/kube-scheduler/extender/v1). Its keys are
// Go names. The readers accept any case, because older schedulers use another one.
namespace carve::codec {

/// The arguments of a filter or prioritize call.
struct ExtenderArgs {
  PodAsk pod;
  std::int32_t priority = 0;                              // of the pod
  std::string nominated;                                  // its status.nominatedNodeName
  std::vector<std::string_view> names;                    // the candidates in the call's order; from it or `spelled`
  std::shared_ptr<const std::list<std::string>> spelled;  // names that are written with escapes in the call
  bool cache_capable = true;                              // the call has names, not whole Node objects
  std::map<std::string, std::string, std::less<>> nodes;  // else the objects, as received
};

/// Streaming is not needed: the names of 5,000 nodes are 230 KB. `text` must outlive the names.
///   errors  kInvalidArgument: not JSON, no Pod with a UID, neither NodeNames nor Nodes
///   cost    builds a document of the Pod; none of the names, if they have no escapes
[[nodiscard]] Result<ExtenderArgs> parse_extender_args(std::string_view text);

/// The names and reasons refer to texts of the caller.
struct FilterAnswer {
  using Refused = std::pair<std::string_view, std::string_view>;  // a node, and the reason
  std::vector<std::string_view> names;                            // these nodes fit the pod
  std::vector<Refused> failed;                                    // these nodes may fit after slices end
  std::vector<Refused> hopeless;                                  // eviction would not help
  std::string error;                                              // of the whole call; empty: none
};
/// In the form of the call: names, or the objects.
///   cost    with names, a copy of the texts
[[nodiscard]] std::string to_json(const FilterAnswer& answer, const ExtenderArgs& args);

struct HostScore {
  std::string_view node;
  std::int64_t score = 0;  // 0 to 10
};
[[nodiscard]] std::string to_json(const std::vector<HostScore>& scores);

/// The arguments of a preempt call: the victims on each node, as kube-scheduler computed them.
struct PreemptionArgs {
  struct Victims {
    std::vector<std::string> uids;
    std::int64_t violations = 0;  // of PodDisruptionBudgets
  };
  PodAsk pod;
  std::int32_t priority = 0;
  std::map<std::string, Victims> nodes;
};
/// Accepts both forms: victims as whole Pods, or by their UIDs.
///   errors  kInvalidArgument: not JSON, no Pod with a UID, no map of victims, or a victim without a UID
[[nodiscard]] Result<PreemptionArgs> parse_preemption_args(std::string_view text);
/// ExtenderPreemptionResult: the remaining nodes, with their victims by UID, regardless of the form of the call.
[[nodiscard]] std::string preemption_result(const std::map<std::string, PreemptionArgs::Victims>& nodes);

/// A message from one replica to another: a pod that fits on no node, and the nodes on which only cards are missing.
struct UnschedulablePodsNote {
  std::string uid;
  std::vector<std::string> nodes;
};
[[nodiscard]] std::string encode_turned_away(const UnschedulablePodsNote& note);
///   errors  kInvalidArgument: not JSON, or without a UID
[[nodiscard]] Result<UnschedulablePodsNote> parse_turned_away(std::string_view text);

struct BindingArgs {
  std::string namespace_name;
  std::string pod;
  std::string uid;
  std::string node;
  std::string wish;  // only between Carve's replicas: a record of what the pod was sent to the node for; may be empty
  std::string why;   // likewise: why, as readable text
};
///   errors  kInvalidArgument: not JSON, or one of the first four fields is missing; the text names it
[[nodiscard]] Result<BindingArgs> parse_binding_args(std::string_view text);
/// The same call with that wish added.
[[nodiscard]] std::string with_wish(std::string_view call, const std::string& wish, const std::string& why = {});
/// Empty `error`: bound.
[[nodiscard]] std::string binding_result(const std::string& error);

}  // namespace carve::codec
