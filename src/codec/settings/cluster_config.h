#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "codec/dialects/dialect.h"
#include "core/model/share_policy.h"

namespace carve::codec {

/// How a pod that requests `nvidia.com/gpu` gets its whole cards.
enum class NvidiaPlugin : std::uint8_t { kDevicePlugin, kDra, kOff };

/// How admission treats NVIDIA_VISIBLE_DEVICES in the environment of a container that requests no card. With NVIDIA's
/// container runtime as the node's default runtime, the variable would expose every card, past all limits.
enum class VisibleDevices : std::uint8_t {
  kVoid,    // set it to "void", with a warning
  kRefuse,  // refuse the pod
  kLeave,   // leave it: another system assigns cards by it
};

/// The settings that control and all agents of one installation share: the ConfigMap `carve-cluster`, which both mount.
/// It exists where control is installed. An agent without it serves DRA only. `doors` is the earlier name of `plugins`.
struct ClusterConfig {
  std::string plugins = "slots";              // of the agents: dra, slots, dra,slots or dra,slots,shared
  // dialects.nvidia; by default dra with plugins = dra, else slots
  NvidiaPlugin nvidia = NvidiaPlugin::kDevicePlugin;
  Bytes gpushare_unit = Bytes::gib(1);        // dialects.gpushare-unit: of aliyun.com/gpu-mem, GiB or MiB
  bool hami = false;                          // dialects.hami: HAMi's names beside nvidia.com/gpu
  // dialects.cgpu-policy, dialects.qgpu-policy: of nodes that state none
  SharePolicy cgpu_policy{SharePolicy::Kind::kFixed};
  SharePolicy qgpu_policy{SharePolicy::Kind::kEqual};
  std::uint32_t volcano_factor = 1;           // dialects.volcano-factor: MiB per unit of volcano.sh/gpu-memory
  std::uint32_t deepomatic_containers = 0;    // dialects.deepomatic-containers: per card; 0: off
  std::uint32_t rancher_containers = 0;       // dialects.rancher-containers: per card; 0: off
  bool gpushare_http = false;                 // dialects.gpushare-http: gpushare's filter and inspect on the plain port
  std::string policy = "binpack";             // placement.policy: binpack or spread
  std::string scheduler = "carve-scheduler";  // scheduler.name: set on pods of the default scheduler; "": not set
  // admission.visible-devices: NVIDIA_VISIBLE_DEVICES in a container that requests no card; void or refuse
  VisibleDevices visible = VisibleDevices::kVoid;

  [[nodiscard]] DialectSettings dialects() const {
    return {gpushare_unit, nvidia == NvidiaPlugin::kDevicePlugin,
            hami,          Bytes::mib(volcano_factor),
            deepomatic_containers, rancher_containers};
  }
  /// The policies of a node that states none itself.
  [[nodiscard]] SharePolicies share_policies() const {
    return {.dialects = {{"cgpu", cgpu_policy}, {"qgpu", qgpu_policy}}};
  }
  /// The extended resources that the pods of this installation request.
  [[nodiscard]] std::vector<std::string> totals() const;
};

/// Lines of `key = value`.
///   errors  kInvalidArgument: every line that is wrong, with its number and `source` (an unknown key is wrong); if
///           each line is right, lines that contradict each other
[[nodiscard]] Result<ClusterConfig> parse_cluster_config(const std::string& text, const std::string& source);
/// The settings of the valid lines, for the command that undoes an installation with a mistake in its ConfigMap. If the
/// lines on `nvidia.com/gpu` are invalid or contradict each other, the name counts as off: another plugin may serve it.
[[nodiscard]] ClusterConfig legal_lines(const std::string& text);

}  // namespace carve::codec
