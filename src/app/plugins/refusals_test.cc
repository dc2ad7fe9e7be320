#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plugins/remedy.h"
#include "app/plugins/testing/slot_node.h"

// The texts of a refused start: on the pod, and on the Node until the pod starts or ends.
namespace carve::plugins {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSeeControl[] =
    "the kubelet retries; if it still fails, check that `carve control` runs and re-create the pod";

class Refusals : public SlotNode {
 protected:
  /// A pod without a record, with a container that waits for its slices.
  void start(const std::string& name, const std::string& slot) {
    hear(name, "Pending");
    allocate(name, slot);
    plugin.before_start({slot}, [this](const Result<void>& said) { answer = said; });
    plugin.step();
  }
  void outwait() {
    clock.advance(seconds(21));
    plugin.step();
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

TEST_F(Refusals, AreReportedOnThePodAndOnTheNodeWithCauseAndFixUntilThePodEnds) {
  start("a", "slot-0001");
  EXPECT_EQ(notices.refusals(), "");
  outwait();
  ASSERT_TRUE(answer && !*answer);
  EXPECT_THAT(event(), AllOf(HasSubstr("SliceRefused"), HasSubstr("container main: pod s/a has no record"),
                             HasSubstr(kSeeControl)));
  EXPECT_THAT(notices.refusals(), AllOf(StartsWith("pod s/a, container main: pod s/a has no record"),
                                        EndsWith(kSeeControl)));
  hear("a", "Failed");
  plugin.step();
  EXPECT_EQ(notices.refusals(), "");
}

TEST_F(Refusals, OfUnknownPodsAreReportedOnTheNode) {
  plugin.before_start({"slot-0009"}, [](const Result<void>&) {});
  outwait();
  EXPECT_EQ(event(), "");
  EXPECT_THAT(notices.refusals(), AllOf(StartsWith("slots slot-0009: this agent did not allocate these slots"),
                                        EndsWith(". re-create the pod")));
}

TEST_F(Refusals, EndWhenTheSameContainerStarts) {
  start("a", "slot-0001");
  outwait();
  EXPECT_NE(notices.refusals(), "");
  const auto device = kubelet.entries.front().cdi.front();
  // Decided meanwhile.
  ASSERT_TRUE(slices.prepare({*record_of(0, slices_of_pod("a")), "main", device, "s/a/main", {"a"}}));
  plugin.before_start({"slot-0001"}, [this](const Result<void>& said) { answer = said; });
  plugin.step();
  ASSERT_TRUE(answer && *answer);
  EXPECT_EQ(notices.refusals(), "");
}

TEST_F(Refusals, AreCountedOncePerKeyAndTheOldestIsNamed) {
  notices.refused("x", "x: no room. wait");
  clock.advance(seconds(1));
  for (int i = 0; i < 5; ++i) notices.refused("y", "y: no driver. wait");
  EXPECT_EQ(notices.refusals(), "2 starts are refused; the oldest: x: no room. wait");
  notices.refused("x", "x: still no room. wait");
  EXPECT_THAT(notices.refusals(), EndsWith("the oldest: x: still no room. wait"));
  notices.settled("x");
  EXPECT_EQ(notices.refusals(), "y: no driver. wait");
  clock.advance(minutes(5));
  EXPECT_NE(notices.refusals(), "");  // the kubelet may still retry
  clock.advance(minutes(2));
  EXPECT_EQ(notices.refusals(), "");
  for (int i = 0; i < 3000; ++i) notices.refused(std::to_string(i), "no room");
  EXPECT_THAT(notices.refusals(), StartsWith("1024 starts"));
}

// The fix for each code and interface, literally, because users read it.
TEST_F(Refusals, HaveAFixForEveryCode) {
  struct Row {
    Code code;
    const char* claim;
    const char* slots;
  };
  constexpr char kHeld[] = "another owner holds it: run `carve inspect`";
  constexpr char kAway[] = "the kubelet retries; run `carve doctor`";
  constexpr char kLog[] = "the kubelet retries; the agent's log";
  const Row rows[] = {
      {Code::kCancelled, kLog, kLog},
      {Code::kUnknown, kLog, kLog},
      {Code::kInvalidArgument, "change the claim", "change the pod's request"},
      {Code::kDeadlineExceeded, kAway, kAway},
      {Code::kNotFound, "the kubelet retries; if it still fails, re-create the claim", kSeeControl},
      {Code::kAlreadyExists, "re-create the pod", "re-create the pod"},
      {Code::kPermissionDenied, kLog, kLog},
      {Code::kResourceExhausted, "the pod waits here until there is room", kHeld},
      {Code::kFailedPrecondition, "the kubelet retries; the Node's", "re-create the pod; the Node's"},
      {Code::kAborted, "re-create the pod", "re-create the pod"},
      {Code::kOutOfRange, kLog, kLog},
      {Code::kUnimplemented, "change the claim", "change the pod's request"},
      {Code::kInternal, kLog, kLog},
      {Code::kUnavailable, kAway, kAway},
      {Code::kDataLoss, kLog, kLog},
      {Code::kUnauthenticated, kLog, kLog},
  };
  int code = 0;
  for (const auto& row : rows) {
    EXPECT_EQ(static_cast<int>(row.code), ++code) << "the table has a row for each code";
    EXPECT_THAT(remedy(row.code, Plugin::kClaim), StartsWith(row.claim)) << code;
    EXPECT_THAT(remedy(row.code, Plugin::kSlots), StartsWith(row.slots)) << code;
    for (const auto one : {Plugin::kClaim, Plugin::kSlots}) {
      EXPECT_FALSE(remedy(row.code, one).ends_with('.')) << "the fix is part of a sentence: " << code;
    }
  }
  EXPECT_EQ(code, 16);
}

}  // namespace
}  // namespace carve::plugins
