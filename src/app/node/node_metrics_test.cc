#include "app/node/node_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::node {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AgentView a_node() {
  AgentView view;
  view.version = "0.1.0";
  view.gpu_state = "ok";
  view.arbiter_state = "away";
  CardView card;
  card.card.id = CardId("GPU-0");
  card.card.model = "NVIDIA T4";
  card.card.memory = Bytes(16ULL << 30U);
  card.set_aside = Bytes(4ULL << 30U);
  card.used = Bytes(1ULL << 30U);
  card.utilization_percent = 25;
  card.power_mw = 70'500;
  view.cards.push_back(card);
  SliceView slice;
  slice.id = "s-1";
  slice.kind = "pod";
  slice.name = "ml/train-0/main";
  slice.cards.push_back({"GPU-0", Bytes(4ULL << 30U), Bytes(512ULL << 20U), {}, CoreShare(30), 29.5, 7});
  view.slices.push_back(slice);
  return view;
}

TEST(NodeMetrics, ReportASliceWithItsPodAndInBaseUnits) {
  const auto text = node_metrics(a_node(), "n1");
  const std::string labels =
      R"({node="n1",card="GPU-0",slice="s-1",namespace="ml",pod="train-0",container="main",resourceclaim_name="",)"
      R"(share="burst",priority="standard"} )";
  EXPECT_THAT(text, HasSubstr("carve_slice_memory_limit_bytes" + labels + "4294967296\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_memory_used_bytes" + labels + "536870912\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_compute_guaranteed_ratio" + labels + "0.3\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_compute_delivered_ratio" + labels + "0.295\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE carve_slice_rescues_total counter\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_rescues_total" + labels + "7\n"));
}

TEST(NodeMetrics, ReportWaitsAsAHistogramAndWhatTheLimitRefused) {
  auto view = a_node();
  EXPECT_THAT(node_metrics(view, "n1"), Not(HasSubstr("carve_slice_lease_wait_seconds_bucket")))
      << "an arbiter of an earlier release does not report them";
  view.slices[0].cards[0].counters = SliceCounters{{5, 0, 4, 0, 0, 0, 1}, 2'500'000'000, 500'000'000, 9, 3, 4096};
  const auto text = node_metrics(view, "n1");
  const std::string labels =
      R"({node="n1",card="GPU-0",slice="s-1",namespace="ml",pod="train-0",container="main",resourceclaim_name="",)"
      R"(share="burst",priority="standard")";
  EXPECT_THAT(text, HasSubstr("# TYPE carve_slice_lease_wait_seconds histogram\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_bucket" + labels + ",le=\"0.0001\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_bucket" + labels + ",le=\"0.01\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_bucket" + labels + ",le=\"10\"} 9\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_bucket" + labels + ",le=\"+Inf\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_sum" + labels + "} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_lease_wait_seconds_count" + labels + "} 10\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_throttled_seconds_total" + labels + "} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_gated_launches_total" + labels + "} 9\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_denied_allocations_total" + labels + "} 3\n"));
  EXPECT_THAT(text, HasSubstr("carve_slice_denied_bytes_total" + labels + "} 4096\n"));
}

TEST(NodeMetrics, CountXidsByCode) {
  auto view = a_node();
  view.cards[0].xids = {{31, 2}};
  EXPECT_THAT(node_metrics(view, "n1"),
              HasSubstr("carve_card_xid_errors_total{node=\"n1\",card=\"GPU-0\",model=\"NVIDIA T4\",xid=\"31\"} 2\n"));
}

TEST(NodeMetrics, NameTheClaimAndItsPod) {
  auto view = a_node();
  view.slices[0].kind = "claim";
  view.slices[0].owner = "uid-1";
  view.slices[0].name = "ml/shared/gpu";
  codec::GpuObject card;
  codec::GpuHolder holder;
  holder.slice.owner = {OwnerKind::kClaim, "uid-1"};
  holder.namespace_name = "ml";
  holder.name = "shared";
  holder.pods = {"ml/train-0"};
  card.holders = {holder};
  ClaimHolders claims;
  claims.set({card});
  const std::string limit = "carve_slice_memory_limit_bytes{node=\"n1\",card=\"GPU-0\",slice=\"s-1\",namespace=\"ml\",";
  EXPECT_THAT(node_metrics(view, "n1", claims.all()),
              HasSubstr(limit + R"(pod="train-0",container="gpu",resourceclaim_name="shared",)"));
  card.holders[0].pods = {"ml/train-0", "ml/train-1"};
  claims.set({card});
  EXPECT_THAT(node_metrics(view, "n1", claims.all()),
              HasSubstr(limit + R"(pod="",container="gpu",resourceclaim_name="shared",)"))
      << "the claim's name is not a pod";
}

TEST(NodeMetrics, ReportACardFromTheDriverAndFromTheLedger) {
  const auto text = node_metrics(a_node(), "n1");
  const std::string labels = R"({node="n1",card="GPU-0",model="NVIDIA T4"} )";
  EXPECT_THAT(text, HasSubstr("carve_card_memory_used_bytes" + labels + "1073741824\n"));
  EXPECT_THAT(text, HasSubstr("carve_card_memory_granted_bytes" + labels + "4294967296\n"));
  EXPECT_THAT(text, HasSubstr("carve_card_utilization_ratio" + labels + "0.25\n"));
  EXPECT_THAT(text, HasSubstr("carve_card_power_watts" + labels + "70.5\n"));
  EXPECT_THAT(text, HasSubstr("carve_agent_arbiter_up{node=\"n1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("carve_agent_driver_up{node=\"n1\"} 1\n"));
}

TEST(NodeMetrics, ReportUnknownValuesAsNaNAndALocalSliceWithoutAPod) {
  auto view = a_node();
  view.cards[0].used = Bytes::max();
  view.slices[0].name = "python train.py";
  view.slices[0].whole = true;
  const auto text = node_metrics(view, "n1");
  EXPECT_THAT(text, HasSubstr("carve_card_memory_used_bytes{node=\"n1\",card=\"GPU-0\",model=\"NVIDIA T4\"} NaN\n"));
  EXPECT_THAT(text, HasSubstr(R"(namespace="",pod="",container="",resourceclaim_name="",share="whole")"));
  EXPECT_THAT(text, Not(HasSubstr("train.py")));
}

}  // namespace
}  // namespace carve::node
