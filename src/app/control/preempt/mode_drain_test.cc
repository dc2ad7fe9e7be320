#include "app/control/preempt/mode_drain.h"

#include <gmock/gmock.h>

#include "app/control/testing/leading.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

class ModeDrainTest : public ::testing::Test, protected Leading {
 protected:
  ModeDrainTest() : Leading({gpu("n1", "GPU-1"), gpu("n2", "GPU-2")}) { sync(model, api); }
  void holds(const std::string& uid, const std::string& node, bool whole) {
    Slice held = slice(uid, node == "n1" ? "GPU-1" : "GPU-2", whole ? 16 : 4);
    held.whole = held.exclusive = whole;
    if (whole) held.compute = CoreShare::whole();
    add({.uid = uid, .node = node, .record = record_text({held}), .phase = "Running"});
  }
  void node(const std::string& name, const std::string& labels, const std::string& annotations) {
    model.nodes().change(
        {KubeChange::Kind::kPut, fmt::format(R"({{"metadata":{{"name":"{}","labels":{{{}}},"annotations":{{{}}}}}}})",
                                             name, labels, annotations)});
  }
  Strings evicted() {
    Strings names;
    for (const auto& write : api.writes()) {
      if (write.path.ends_with("/eviction") && write.done)
        names.push_back(write.path.substr(pod_path("").size(), write.path.size() - pod_path("").size() - 9));
    }
    return names;
  }
  void step() {
    leader.step();
    drain.step();
  }
  ModeDrain drain{{model, leader, api, clock, log, [this](codec::EventNote one) { record_event(std::move(one)); }}};
};

constexpr auto kExclusive = R"("elasticgpu.io/card-mode":"exclusive")";
constexpr auto kShared = R"("elasticgpu.io/card-mode":"shared")";
constexpr auto kDrain = R"("elasticgpu.io/card-mode-drain":"true")";

TEST_F(ModeDrainTest, EvictsOnlyWhatTheModeDoesNotPermitAndOnlyWhenTold) {
  holds("fraction", "n1", false);
  holds("all", "n2", true);
  node("n1", kExclusive, "");
  node("n2", kExclusive, kDrain);
  step();
  EXPECT_THAT(evicted(), IsEmpty()) << "n1 does not drain, and the pod on n2 is permitted";
  node("n1", kExclusive, kDrain);
  step();
  EXPECT_THAT(evicted(), ElementsAre("fraction"));
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].reason, "CardModeDrained");
  EXPECT_THAT(events[0].message,
              HasSubstr("card GPU-1 of node n1 is in mode exclusive, and the pod holds a fraction of it"));
  node("n2", kShared, kDrain);
  step();
  EXPECT_THAT(evicted(), ElementsAre("fraction", "all"));
}

TEST_F(ModeDrainTest, APodThatABudgetProtectsIsTriedAgain) {
  holds("fraction", "n1", false);
  api.fail_next({.verb = "create", .path = "/eviction", .code = Code::kFailedPrecondition});
  node("n1", kExclusive, kDrain);
  step();
  EXPECT_THAT(evicted(), IsEmpty());
  clock.advance(ModeDrain::kAgain - 1s);
  step();
  EXPECT_THAT(evicted(), IsEmpty());
  clock.advance(1s);
  step();
  EXPECT_THAT(evicted(), ElementsAre("fraction"));
}

TEST_F(ModeDrainTest, ADrainThatIsTakenBackEvictsNothing) {
  holds("fraction", "n1", false);
  api.fail_next({.verb = "create", .path = "/eviction", .code = Code::kFailedPrecondition});
  node("n1", kExclusive, kDrain);
  step();
  node("n1", kExclusive, R"("elasticgpu.io/card-mode-drain":"false")");
  clock.advance(ModeDrain::kAgain);
  step();
  EXPECT_THAT(evicted(), IsEmpty());
}

TEST_F(ModeDrainTest, OnlyTheLeaderEvicts) {
  holds("fraction", "n1", false);
  node("n1", kExclusive, kDrain);
  clock.advance(60s);  // the lease is over
  drain.step();
  EXPECT_THAT(evicted(), IsEmpty());
}

}  // namespace
}  // namespace carve::control
