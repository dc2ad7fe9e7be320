#include "app/control/state/unhealthy_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/testing/objects.h"
#include "app/control/schedule/requeuer.h"

namespace carve::control {
namespace {

using namespace testing;  // NOLINT: the objects of the tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string config_map(const std::string& name, const std::string& gpus) {
  return fmt::format(R"({{"metadata":{{"name":"{}","namespace":"kube-system","uid":"u-{}"}},)"
                     R"("data":{{"gpus":"{}"}}}})", name, name, gpus);
}

class UnhealthyCardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model.nodes().replace({node_object("n1"), node_object("n2")});
    std::vector<std::string> gpus;
    for (int i = 0; i < 2; ++i) {
      auto made = gpu("n1", "GPU-" + std::to_string(i));
      made.index = i;
      gpus.push_back(gpu_object(made));
    }
    gpus.push_back(gpu_object(gpu("n2", "GPU-9")));
    model.gpus().replace(gpus);
    model.pods().replace({pod_object({.uid = "a", .node = "n1", .record = record_text({slice("a", "GPU-1", 4)})})});
  }
  void put(const std::string& name, const std::string& gpus) {
    cards.sink().change({KubeChange::Kind::kPut, config_map(name, gpus)});
  }
  std::string closed(const std::string& node, const std::string& card) {
    return model.snapshot()->at(node)->ledger.find(CardId(card))->card.closed;
  }
  /// Why a pod of 4 GiB does not fit on that node; empty: it fits.
  std::string why_not(const std::string& node) {
    const auto pod = pod_entry_of(*codec::parse_cluster_pod(pod_object({.uid = "p"})), {});
    const auto found = fit(*model.snapshot(), pod->owner(), pod->parts, {node}, kPolicies[0]);
    return found.refused.empty() ? "" : found.refused.front().why;
  }
  ManualClock clock;
  Log log{[](std::string_view) {}};
  ClusterModel model{{}, clock, log};
  std::vector<codec::EventNote> events;
  UnhealthyCards cards{model, log, [this](codec::EventNote note) { events.push_back(std::move(note)); }};
};

TEST_F(UnhealthyCardsTest, ClosesAMarkedCardAndKeepsItsSlices) {
  EXPECT_FALSE(cards.answered());
  cards.sink().replace({config_map("coredns", "x"), config_map("unhealthy-gpu-n1", "1")});
  EXPECT_TRUE(cards.answered());
  EXPECT_EQ(closed("n1", "GPU-0"), "");
  EXPECT_EQ(closed("n1", "GPU-1"), "closed: ConfigMap kube-system/unhealthy-gpu-n1 names it");
  EXPECT_EQ(closed("n2", "GPU-9"), "");
  EXPECT_EQ(why_not("n1"), "") << "the other card";
  EXPECT_EQ(model.snapshot()->at("n1")->ledger.slices().size(), 1U) << "the existing slice stays";
  put("unhealthy-gpu-n1", "0, 1");
  EXPECT_THAT(why_not("n1"), HasSubstr("ConfigMap kube-system/unhealthy-gpu-n1 names it"));
  EXPECT_THAT(events, IsEmpty());
}

TEST_F(UnhealthyCardsTest, OpensTheCardWhenTheMarkIsRemoved) {
  put("unhealthy-gpu-n1", "0,1");
  const auto before = model.snapshot();
  put("unhealthy-gpu-n1", "1");
  EXPECT_EQ(closed("n1", "GPU-0"), "");
  EXPECT_TRUE(gained_room(*before->at("n1"), *model.snapshot()->at("n1")));
  cards.sink().change({KubeChange::Kind::kDeleted, config_map("unhealthy-gpu-n1", "1")});
  EXPECT_EQ(closed("n1", "GPU-1"), "");
  put("unhealthy-gpu-n1", "1");
  cards.sink().replace({});
  EXPECT_EQ(closed("n1", "GPU-1"), "") << "the ConfigMap was deleted while the watch was down";
}

TEST_F(UnhealthyCardsTest, ReportsAnInvalidTextAndMarksNoCard) {
  put("unhealthy-gpu-n1", "0,one");
  EXPECT_EQ(closed("n1", "GPU-0"), "");
  EXPECT_EQ(closed("n1", "GPU-1"), "");
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, "ConfigMap");
  EXPECT_EQ(events[0].namespace_name + "/" + events[0].name, "kube-system/unhealthy-gpu-n1");
  EXPECT_EQ(events[0].reason, "UnhealthyGpusRefused");
  EXPECT_TRUE(events[0].warning);
  EXPECT_THAT(events[0].message, HasSubstr("no card of node n1 is marked: gpus: \"one\""));
  put("unhealthy-gpu-n1", "0,one");
  EXPECT_THAT(events, SizeIs(1)) << "the watch restarted";
  put("unhealthy-gpu-n1", "0");
  EXPECT_NE(closed("n1", "GPU-0"), "");
  put("unhealthy-gpu-n1", "0,one");
  EXPECT_EQ(closed("n1", "GPU-0"), "") << "the same as after a restart: the current text is invalid";
  EXPECT_THAT(events, SizeIs(2));
}

TEST_F(UnhealthyCardsTest, MarksACardThatIsAddedLater) {
  put("unhealthy-gpu-n3", "0");
  model.nodes().change({KubeChange::Kind::kPut, node_object("n3")});
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(gpu("n3", "GPU-7"))});
  EXPECT_NE(closed("n3", "GPU-7"), "");
}

}  // namespace
}  // namespace carve::control
