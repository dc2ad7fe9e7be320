#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/doors/cure.h"
#include "app/doors/testing/slot_node.h"

// What is said of a start that is refused: on the pod, and on the Node until it starts or is over.
namespace carve::doors {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Refusals : public SlotNode {
 protected:
  /// A pod whose container waits for its slices, which nobody decided about.
  void start(const std::string& name, const std::string& slot) {
    hear(name, "Pending");
    allocate(name, slot);
    door.before_start({slot}, [this](const Result<void>& said) { answer = said; });
    door.step();
  }
  void outwait() {
    clock.advance(seconds(21));
    door.step();
  }
  std::string event() {
    notices.flush();
    std::string last;
    for (const auto& [what, body] : kube.writes()) {
      if (what == "create /api/v1/namespaces/s/events") last = body;
    }
    return last;
  }
  std::optional<Result<void>> answer;
};

TEST_F(Refusals, AreSaidOnThePodAndOnTheNodeWithCauseAndFixUntilThePodIsOver) {
  start("a", "slot-0001");
  EXPECT_EQ(notices.refusals(), "");
  outwait();
  ASSERT_TRUE(answer && !*answer);
  EXPECT_THAT(event(), AllOf(HasSubstr("SliceRefused"), HasSubstr("container main: pod s/a has no record"),
                             HasSubstr(cure(Code::kNotFound, Door::kSlots))));
  EXPECT_THAT(notices.refusals(), AllOf(StartsWith("pod s/a, container main: pod s/a has no record"),
                                        EndsWith(cure(Code::kNotFound, Door::kSlots))));
  hear("a", "Failed");
  door.step();
  EXPECT_EQ(notices.refusals(), "");
}

TEST_F(Refusals, OfNobodyWhoIsKnownAreSaidOnTheNode) {
  door.before_start({"slot-0009"}, [](const Result<void>&) {});
  outwait();
  EXPECT_EQ(event(), "");
  EXPECT_THAT(notices.refusals(), AllOf(StartsWith("slots slot-0009: these slots were not given out"),
                                        EndsWith(cure(Code::kAborted, Door::kSlots))));
}

TEST_F(Refusals, HealWhenTheSameContainerStartsAfterAll) {
  start("a", "slot-0001");
  outwait();
  EXPECT_NE(notices.refusals(), "");
  const auto device = kubelet.entries.front().cdi.front();
  ASSERT_TRUE(slices.prepare({slices_of_pod("a"), device, "s/a/main", {"a"}}));  // decided meanwhile
  door.before_start({"slot-0001"}, [this](const Result<void>& said) { answer = said; });
  door.step();
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ(notices.refusals(), "");
}

TEST_F(Refusals, AreCountedByWhomAndTheOldestIsNamed) {
  notices.refused("x", "x: no room. wait");
  clock.advance(seconds(1));
  for (int i = 0; i < 5; ++i) notices.refused("y", "y: no driver. wait");
  EXPECT_EQ(notices.refusals(), "2 starts were refused, the first: x: no room. wait");
  notices.refused("x", "x: still no room. wait");
  EXPECT_THAT(notices.refusals(), EndsWith("the first: x: still no room. wait"));
  notices.settled("x");
  EXPECT_EQ(notices.refusals(), "y: no driver. wait");
  clock.advance(minutes(5));
  EXPECT_NE(notices.refusals(), "");  // the kubelet may still be about to try again
  clock.advance(minutes(2));
  EXPECT_EQ(notices.refusals(), "");
  for (int i = 0; i < 3000; ++i) notices.refused(std::to_string(i), "no room");
  EXPECT_THAT(notices.refusals(), StartsWith("1024 starts"));
}

TEST_F(Refusals, HaveACureWhateverTheCode) {
  for (int code = 1; code <= 16; ++code) {
    for (const auto door_kind : {Door::kClaim, Door::kSlots}) {
      const auto fix = cure(static_cast<Code>(code), door_kind);
      EXPECT_GT(fix.size(), 10U) << code;
      EXPECT_FALSE(fix.ends_with('.')) << fix;
    }
  }
}

}  // namespace
}  // namespace carve::doors
