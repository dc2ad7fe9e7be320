// The counters of refusals, from the call to the text that Prometheus reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "app/control/admission/admission.h"
#include "app/control/schedule/extender.h"
#include "app/control/api/metrics.h"

namespace carve::control {
namespace {

std::shared_ptr<NodeState> node(const char* uuid, std::uint64_t used_gib, std::uint32_t used_compute = 1) {
  auto state = std::make_shared<NodeState>();
  Card card;
  card.id = CardId(uuid);
  card.model = "NVIDIA T4";
  card.memory = Bytes::gib(16);
  EXPECT_TRUE(state->ledger.put_card(card));
  if (used_gib > 0) {
    EXPECT_TRUE(state->ledger.add(
        {Slice{{OwnerKind::kPod, "o"}, "c", card.id, Bytes::gib(used_gib), CoreShare(used_compute)}}));
  }
  return state;
}

/// The text of the families under test.
std::string text_of(const ControlMetrics& metrics) {
  codec::MetricsText text;
  metrics.write(&text);
  return text.text().substr(text.text().find("# HELP carve_control_filter_refusals_total"));
}

std::string filter_call(const std::string& limits) {
  return R"({"Pod":{"metadata":{"name":"p","uid":"u"},"spec":{"containers":[{"name":"c","resources":{"limits":{)" +
         limits + R"(,"elasticgpu.io/slot":"1"}}}]}},"NodeNames":["busy","full","idle","left","loaded","other",)"
         R"("sick","small","taken"]})";
}

std::string review(const std::string& spec, const std::string& metadata = "") {
  return R"({"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"r",)"
         R"("resource":{"resource":"pods"},"operation":"CREATE","object":{"metadata":{"name":"p")" +
         metadata + R"(},"spec":)" + spec + "}}}";
}

std::string asking(const std::string& limits, const std::string& more = "") {
  return R"({"containers":[{"name":"c","resources":{"limits":{)" + limits + "}" + more + "}}]}";
}

constexpr char kGolden[] =
    "# HELP carve_control_filter_refusals_total Nodes refused in filter calls, by reason; of several reasons the one "
    "of the card that comes nearest.\n"
    R"(# TYPE carve_control_filter_refusals_total counter
carve_control_filter_refusals_total{reason="memory"} 1
carve_control_filter_refusals_total{reason="compute"} 1
carve_control_filter_refusals_total{reason="slices"} 0
carve_control_filter_refusals_total{reason="held_alone"} 2
carve_control_filter_refusals_total{reason="not_empty"} 3
carve_control_filter_refusals_total{reason="unhealthy"} 2
carve_control_filter_refusals_total{reason="card_closed"} 0
carve_control_filter_refusals_total{reason="card_mode"} 0
carve_control_filter_refusals_total{reason="quota"} 0
carve_control_filter_refusals_total{reason="too_small"} 0
carve_control_filter_refusals_total{reason="too_slow"} 0
carve_control_filter_refusals_total{reason="model"} 0
carve_control_filter_refusals_total{reason="not_named"} 0
carve_control_filter_refusals_total{reason="too_few"} 0
carve_control_filter_refusals_total{reason="no_card"} 2
carve_control_filter_refusals_total{reason="agent_leaving"} 2
carve_control_filter_refusals_total{reason="conflicting_plugin"} 1
)"
    "# HELP carve_control_admission_refusals_total Refused admission reviews of pods, by fault; a review with several "
    "faults counts under each of them.\n"
    R"(# TYPE carve_control_admission_refusals_total counter
carve_control_admission_refusals_total{reason="unreadable"} 1
carve_control_admission_refusals_total{reason="request"} 1
carve_control_admission_refusals_total{reason="resource_name"} 2
carve_control_admission_refusals_total{reason="slots"} 1
carve_control_admission_refusals_total{reason="claim"} 1
carve_control_admission_refusals_total{reason="annotation"} 1
carve_control_admission_refusals_total{reason="placement"} 1
carve_control_admission_refusals_total{reason="visible_devices"} 1
carve_control_admission_refusals_total{reason="not_mutated"} 1
)";

void filter_two_pods(ControlMetrics* metrics) {
  const auto cluster = std::make_shared<ClusterState>();
  cluster->put("busy", node("GPU-0", 1));
  cluster->put("full", node("GPU-1", 14));
  cluster->put("idle", node("GPU-2", 0));
  auto left = node("GPU-3", 0);
  left->closed = "its agent is being replaced";
  cluster->put("left", left);
  cluster->put("loaded", node("GPU-4", 1, 95));
  auto sick = node("GPU-5", 0);
  EXPECT_TRUE(sick->ledger.set_health(CardId("GPU-5"), {false, "XID 79"}));
  cluster->put("sick", sick);
  auto shared = node("GPU-6", 0);
  shared->closed_to = {{"native", "another device plugin serves its names"}};
  cluster->put("small", shared);
  auto taken = node("GPU-7", 0);
  EXPECT_TRUE(taken->ledger.add(slices_for({OwnerKind::kPod, "o"}, "c", whole_cards(1),
                                           {{CardId("GPU-7"), Bytes::gib(16), CoreShare(100)}})));
  cluster->put("taken", taken);
  const auto rules = std::make_shared<PlacementRules>();
  const Extender extender({}, [&] { return rules; }, [&] { return cluster; },
                          [&](const Owner&, const FitView& fit) { metrics->observe_filter(fit); });
  (void)extender.filter_to_place(filter_call(R"("elasticgpu.io/gpu-memory":"4096","elasticgpu.io/gpu-core":"30")"));
  (void)extender.choose(filter_call(R"("nvidia.com/gpu":"1")"));
}

void refuse_pods(ControlMetrics* metrics) {
  const auto count = [metrics](AdmissionFaults faults) { metrics->observe_refusal(faults); };
  const Admission admission({}, {"carve-scheduler", VisibleDevices::kRefuse}, count);
  const std::string gpu = R"("nvidia.com/gpu":"1")";
  const std::string visible =
      R"({"containers":[{"name":"c","env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}]}]})";
  for (const auto& call :
       {std::string("{"), review(asking(R"("aliyun.com/gpu-mem":"10G","nvidia.com/gpumem":"1")")),
        review(asking(R"("elasticgpu.io/gpus":"1","elasticgpu.io/gpu-cores":"1")")),
        review(asking(R"("aliyun.com/gpu-mem":"1","aliyun.com/gpu-core.share":"30")")),
        review(asking(R"("elasticgpu.io/slot":"1")")),
        review(asking(gpu, R"(,"claims":[{"name":"x"}])")),
        review(asking(gpu), R"(,"annotations":{"elasticgpu.io/x-<name>":"y"})"),
        review(asking(gpu), R"(,"annotations":{"elasticgpu.io/placement":"tight"})"), review(visible),
        review(asking(gpu))})
    (void)admission.mutate(call);
  (void)admission.validate(review(asking(gpu)));
}

TEST(RefusalMetrics, CountRefusalsByReason) {
  ControlMetrics metrics;
  filter_two_pods(&metrics);
  refuse_pods(&metrics);
  EXPECT_EQ(text_of(metrics), kGolden);
}

/// Every family and every reason must be in deploy/control/README.md.
TEST(Metrics, AreAllListedInTheOperatorsTable) {
  std::ifstream file(CARVE_DEPLOY "/control/README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  codec::MetricsText text;
  ControlMetrics().write(&text);
  write_cluster_stats({}, &text);
  write_cards({}, &text);
  write_settings(true, &text);
  write_placement({}, &text);
  write_bindings({}, &text);
  write_preemptions({}, &text);
  write_node_nominator({}, &text);
  std::istringstream lines(text.text());
  std::size_t families = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    const auto name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_NE(readme.find("`" + name + "`"), std::string::npos) << name;
    ++families;
  }
  EXPECT_GT(families, 20U);
  for (const auto word : kUnschedulableWords) EXPECT_NE(readme.find("`" + std::string(word) + "`"), std::string::npos);
  for (const auto word : kAdmissionFaultWords) EXPECT_NE(readme.find("`" + std::string(word) + "`"), std::string::npos);
}

}  // namespace
}  // namespace carve::control
