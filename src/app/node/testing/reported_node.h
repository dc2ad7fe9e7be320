#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/node/node_report.h"
#include "port/testing/fake_kube_api.h"

namespace carve::node {

/// A container runtime with the facts that the test sets.
class SetRuntime final : public ContainerRuntime {
 public:
  Result<RuntimeFacts> ask() override { return facts; }
  RuntimeFacts facts{"containerd", "2.3.7", true, {"/var/run/cdi"}};
};

/// The node n1 with everything that a NodeReport needs, and an API server that has its Node object.
struct ReportedNode {
  static constexpr const char* kPath = "/api/v1/nodes/n1";

  ReportedNode() { kube.put(kPath, R"({"metadata":{"name":"n1","uid":"u"},"status":{"conditions":[]}})"); }
  /// Defaults for the report. The caller sets what its test needs.
  [[nodiscard]] NodeReport::World world(NodeSlices& slices) {
    return {.slices = slices,
            .api = kube,
            .pods = pods,
            .notices = notices,
            .runtime = runtime,
            .clock = clock,
            .log = log,
            .cdi_dir = "/var/run/cdi",
            .totals = {},
            .not_published = {},
            .other_plugins = {}};
  }
  [[nodiscard]] std::map<std::string, codec::NodeCondition> said() const {
    return codec::parse_node_object(*kube.object(kPath))->conditions;
  }

  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  std::vector<std::string> logged;
  Log log{[this](std::string_view line) { logged.emplace_back(line); }};
  plugins::NodePods pods{"n1", kube};
  events::EventRecorder notices{kube, "n1", clock, log};
  SetRuntime runtime;
};

}  // namespace carve::node
