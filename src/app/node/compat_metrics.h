#pragma once

#include <span>
#include <string>
#include <string_view>

#include "port/agent_api.h"

namespace carve::node {

/// The agent's figures under the metric names of another system, for dashboards and alerts that already use them. The
/// values are Carve's: memory is what the driver reports, compute is the GPU time that was delivered. Figures that
/// Carve does not have are absent, not zero.
///   source  the systems' exporters (spec: systems.md R8 and R10, field-2026-11.md section C, competitor-hami.md)
struct CompatMetrics {
  std::string_view path;  // where the agent serves them
  std::string_view system;
  /// The text in Prometheus' format.
  ///   cost  as node_metrics()
  std::string (*text)(const AgentView& view, std::string_view node);
};

[[nodiscard]] std::span<const CompatMetrics> compat_metrics();

}  // namespace carve::node
