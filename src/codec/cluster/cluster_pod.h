#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"

namespace carve::codec {

/// A Pod, what control needs of it.
struct ClusterPod {
  PodAsk ask;           // namespace, name and UID in it
  std::string version;  // resourceVersion
  std::string node;     // empty: not bound
  std::string record;   // the annotation's text; empty: none
  std::string scheduler;
  std::string nominated;  // status.nominatedNodeName
  std::int32_t priority = 0;
  std::int64_t started_at = 0;  // status.startTime as a number that grows: 20260101235959; 0: none
  std::int64_t grace = 30;      // seconds that it is given to end
  bool ended = false;     // Succeeded or Failed
  bool deleting = false;  // a deletionTimestamp is set
  bool gated = false;     // its author holds it back
  bool started = false;   // a container of it runs or ran
  bool never_preempts = false;    // preemptionPolicy Never: nobody goes for it
  bool refused = false;   // a scheduler tried it and found no node
  bool mirror = false;    // of a static pod: the kubelet's own, no eviction ends it
};

/// Tolerant.
///   errors  kInvalidArgument: no JSON, or without name or UID
[[nodiscard]] Result<ClusterPod> parse_cluster_pod(std::string_view text);

/// The body of POST pods/<name>/binding: this very pod (its UID is a precondition) to `node`, with `annotations`
/// merged into its own.
[[nodiscard]] std::string binding_body(const ClusterPod& pod, std::string_view node,
                                       const std::map<std::string, std::string>& annotations);

/// A merge patch that adds annotations to this very pod as it was read: UID and resourceVersion are preconditions.
[[nodiscard]] std::string annotations_patch(const ClusterPod& pod,
                                            const std::map<std::string, std::string>& annotations);

}  // namespace carve::codec
