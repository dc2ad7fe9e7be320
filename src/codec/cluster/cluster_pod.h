#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

namespace carve::codec {

/// The parts of a Pod that control needs.
struct ClusterPod {
  PodAsk ask;           // includes namespace, name and UID
  std::string version;  // resourceVersion
  std::string node;     // empty: not bound
  std::string record;   // the annotation's text; empty: none
  std::string scheduler;
  std::string nominated;  // status.nominatedNodeName
  std::int32_t priority = 0;
  std::int64_t started_at = 0;  // status.startTime as a growing number: 20260101235959; 0: none
  std::int64_t grace = 30;      // terminationGracePeriodSeconds
  bool ended = false;     // Succeeded or Failed
  bool deleting = false;  // a deletionTimestamp is set
  bool gated = false;     // it has scheduling gates
  bool started = false;   // one of its containers runs or ran
  bool never_preempts = false;    // preemptionPolicy Never: no pod is evicted for it
  bool refused = false;   // a scheduler found no node for it
  bool mirror = false;    // the mirror pod of a static pod: the kubelet owns it, and an eviction does not end it
};

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without name or UID
[[nodiscard]] Result<ClusterPod> parse_cluster_pod(std::string_view text);

/// The body of POST pods/<name>/binding: binds this pod (its UID is a precondition) to `node` and merges `annotations`
/// into its own.
[[nodiscard]] std::string binding_body(const ClusterPod& pod, std::string_view node,
                                       const std::map<std::string, std::string>& annotations);

/// A merge patch that adds annotations to this pod as it was read: its UID and resourceVersion are preconditions.
[[nodiscard]] std::string annotations_patch(const ClusterPod& pod,
                                            const std::map<std::string, std::string>& annotations);

}  // namespace carve::codec
