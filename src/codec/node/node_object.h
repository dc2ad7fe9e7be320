#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// A condition of the Node. True means trouble.
struct NodeCondition {
  std::string type;
  bool on = false;
  std::string reason;   // CamelCase
  std::string message;  // cause and fix
  friend bool operator==(const NodeCondition&, const NodeCondition&) = default;
};

/// The condition by which an agent reports that it is about to end in order. While it is True, no scheduler should
/// place pods on the node. The next agent resets it.
inline constexpr std::string_view kAgentLeaving = "GPUAgentLeaving";

/// The Node of this agent in the API server: Carve's own parts, and the kubelet's report of the runtime.
struct NodeObject {
  std::string name;
  std::string uid;
  std::string runtime;                              // "containerd://2.3.7"
  std::map<std::string, std::string> labels;        // below elasticgpu.io/, and those of other systems that Carve reads
  std::map<std::string, std::string> annotations;   // below elasticgpu.io/
  std::map<std::string, std::string> capacity;      // extended resources of any writer: totals use foreign names
  std::map<std::string, NodeCondition> conditions;  // all, by type
  std::map<std::string, std::string> since;         // lastTransitionTime, by type
};

inline constexpr std::string_view kOwnPrefix = "elasticgpu.io/";
/// The label by which qGPU's users set the policy of a node.
inline constexpr std::string_view kQgpuPolicy = "tke.cloud.tencent.com/qgpu-schedule-policy";

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<NodeObject> parse_node_object(std::string_view text);

/// A merge patch of metadata: the values to set; nullopt removes.
using NodeChanges = std::map<std::string, std::optional<std::string>>;
[[nodiscard]] std::string node_labels_patch(const NodeChanges& labels);
[[nodiscard]] std::string node_annotation_patch(std::string_view key, std::string_view value);
[[nodiscard]] std::string node_annotations_patch(const NodeChanges& annotations);
/// A strategic merge patch of status that removes conditions.
[[nodiscard]] std::string node_conditions_removal(const std::vector<std::string>& types);
/// A merge patch of status: the totals to set; nullopt removes.
[[nodiscard]] std::string node_totals_patch(const NodeChanges& totals);
/// A strategic merge patch of status. An unchanged condition keeps its time.
[[nodiscard]] std::string node_conditions_patch(const std::vector<NodeCondition>& conditions,
                                                const NodeObject& existing,
                                                std::string_view now_rfc3339);

/// spec.extendedResourceName of a DeviceClass; may be empty.
[[nodiscard]] std::string mapped_name(std::string_view device_class);

/// A legal label value from any text: letters, digits, dashes, dots; at most 63 characters.
[[nodiscard]] std::string label_value(std::string_view text);

}  // namespace carve::codec
