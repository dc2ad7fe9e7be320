#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/control/admission.h"
#include "base/result.h"
#include "codec/dialects/dialect.h"

namespace carve::cmd {

/// Which way a pod comes to whole cards by `nvidia.com/gpu`.
enum class NvidiaDoor : std::uint8_t { kSlots, kDra, kOff };

/// What control and every agent of one installation must agree on: the ConfigMap `carve-cluster`, which both mount.
/// It exists where control is installed; an agent without it serves DRA and nothing else.
struct ClusterConfig {
  std::string doors = "slots";                // of the agents: dra, slots, dra,slots or dra,slots,shared
  NvidiaDoor nvidia = NvidiaDoor::kSlots;     // dialects.nvidia; by default dra with doors = dra, else slots
  Bytes gpushare_unit = Bytes::gib(1);        // dialects.gpushare-unit: of aliyun.com/gpu-mem, GiB or MiB
  bool gpushare_http = false;                 // dialects.gpushare-http: its filter and inspect on the plain port
  std::string policy = "binpack";             // placement.policy: binpack or spread
  std::string scheduler = "carve-scheduler";  // scheduler.name: what pods of the default scheduler are given; "": none
  // admission.visible-devices: of NVIDIA_VISIBLE_DEVICES in a container that asks for no card; void or refuse
  control::VisibleDevices visible = control::VisibleDevices::kVoid;

  [[nodiscard]] codec::DialectSettings dialects() const { return {gpushare_unit, nvidia == NvidiaDoor::kSlots}; }
  /// The extended resources that this installation's pods ask in.
  [[nodiscard]] std::vector<std::string> totals() const;
};

/// Lines of `key = value`.
///   errors  kInvalidArgument: every line that is wrong, with its number and `source`; unknown keys are wrong; where
///           each is right, lines that contradict each other
[[nodiscard]] Result<ClusterConfig> parse_cluster_config(const std::string& text, const std::string& source);
/// What the legal lines say, for the command that undoes an installation whose ConfigMap has a mistake. Where the lines
/// on `nvidia.com/gpu` are illegal or contradict each other, it counts as off: it may be another plugin's.
[[nodiscard]] ClusterConfig legal_lines(const std::string& text);
/// parse_cluster_config() of a file. kNotFound: there is none.
[[nodiscard]] Result<ClusterConfig> read_cluster_config(const std::string& path);

}  // namespace carve::cmd
