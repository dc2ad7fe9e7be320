#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

#include "app/node/testing/reported_node.h"
#include "app/plugins/testing/fake_node_slices.h"

// NodeReport: the totals of a Node that states modes for its cards.
namespace carve::node {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class NodeWithModes : public ::testing::Test, protected ReportedNode {
 protected:
  ~NodeWithModes() override { watch.request_stop(); }
  void state(const std::string& labels, const std::string& annotations = "") {
    const auto body = R"({"metadata":{"labels":{)" + labels + R"(},"annotations":{)" + annotations + "}}}";
    ASSERT_TRUE(kube.patch(kPath, KubePatch::kMerge, body));
    if (!watch.joinable()) watch = std::jthread([this](const std::stop_token& stop) { report.run_node_watch(stop); });
    ASSERT_TRUE(kube.wait_watches(1, 5s));
  }
  /// The GiB of fractions that the Node shows.
  std::string total(int steps = 60) {
    for (int i = 0; i < steps; ++i) {
      clock.advance(200ms);
      report.step();
      EXPECT_TRUE(kube.wait_watches(1, 5s));
    }
    return codec::parse_node_object(*kube.object(kPath))->capacity["aliyun.com/gpu-mem"];
  }

  GpuInventory cards = plugins::some_cards(2);
  plugins::FakeNodeSlices slices{cards};
  NodeReport report{"n1", [this] {
                      auto one = world(slices);
                      one.totals = {"aliyun.com/gpu-mem"};
                      return one;
                    }()};
  std::jthread watch;
};

TEST_F(NodeWithModes, ACardCountsUntilTheSlicesThatItsModeDoesNotPermitHaveEnded) {
  Slice held;
  held.owner = {OwnerKind::kPod, "uid"};
  held.part = "main";
  held.card = cards.cards[0].id;
  held.memory = Bytes::gib(2);
  held.compute = CoreShare(5);
  ASSERT_TRUE(slices.prepare({*record_of(0, {held}), held.part}));
  state(R"("elasticgpu.io/card-mode":"exclusive")");
  EXPECT_EQ(total(), "80") << "the kubelet compares the running pod with the total too";
  ASSERT_TRUE(slices.unprepare(held.owner));
  EXPECT_EQ(total(), "0");
}

TEST_F(NodeWithModes, TheStatedModesApplyToClaimsAtOnce) {
  EXPECT_TRUE(report.modes().empty()) << "the Node is not known yet";
  state(R"("elasticgpu.io/card-mode":"shared")", R"("elasticgpu.io/card-modes":"1=exclusive")");
  total(2);
  EXPECT_THAT(report.modes(), ::testing::ElementsAre(::testing::Pair(cards.cards[0].id, CardMode::kShared),
                                                     ::testing::Pair(cards.cards[1].id, CardMode::kExclusive)));
}

TEST_F(NodeWithModes, ANewModeCountsWhenTheKubeletHasAdmittedWhatWasBoundBefore) {
  state("");
  EXPECT_EQ(total(), "160");
  state(R"("elasticgpu.io/card-mode":"exclusive")");
  EXPECT_EQ(total(10), "160");
  EXPECT_EQ(total(300), "0");
}

TEST_F(NodeWithModes, SingleCardsAndIllegalWords) {
  state("", R"("elasticgpu.io/card-modes":"1=exclusive,0=whole")");
  EXPECT_EQ(total(), "80");
  notices.flush();
  const auto events = kube.list("/api/v1/namespaces/default/events");
  ASSERT_TRUE(events);
  EXPECT_THAT(*events, ::testing::Contains(::testing::AllOf(HasSubstr("CardModeRefused"), HasSubstr("card 0"))));
}

}  // namespace
}  // namespace carve::node
