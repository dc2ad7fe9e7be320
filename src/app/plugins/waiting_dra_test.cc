#include "app/plugins/waiting_dra.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

namespace carve::plugins {
namespace {

using std::chrono::milliseconds;

/// Answers with one device per claim.
class Driver final : public DraCalls {
 public:
  PerClaim<std::vector<ClaimDevice>> prepare(const std::vector<ClaimRef>& claims) override {
    PerClaim<std::vector<ClaimDevice>> answers;
    for (const auto& claim : claims) answers.emplace(claim.uid, std::vector<ClaimDevice>(1));
    return answers;
  }
  PerClaim<void> unprepare(const std::vector<ClaimRef>& claims) override {
    PerClaim<void> answers;
    for (const auto& claim : claims) answers.emplace(claim.uid, Result<void>());
    return answers;
  }
  [[nodiscard]] std::vector<DeviceHealthView> health() const override { return {}; }
};

const std::vector<ClaimRef> kClaims = {{"default", "a", "uid-a"}, {"default", "b", "uid-b"}};

TEST(WaitingDra, ForwardsACallThatArrivedEarly) {
  WaitingDra waiting(std::chrono::minutes(1));
  Driver driver;
  auto prepared = std::async(std::launch::async, [&] { return waiting.prepare(kClaims); });
  auto ended = std::async(std::launch::async, [&] { return waiting.unprepare(kClaims); });
  EXPECT_EQ(prepared.wait_for(milliseconds(30)), std::future_status::timeout) << "there is no driver yet";
  waiting.lead_to(driver);
  const auto answers = prepared.get();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers.at("uid-a")->size(), 1U);
  EXPECT_TRUE(ended.get().at("uid-b"));
  waiting.give_up();
}

TEST(WaitingDra, FailsEveryClaimWithAReasonWithoutADriver) {
  WaitingDra waiting(milliseconds(1));
  const auto answers = waiting.prepare(kClaims);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers.at("uid-b").error().code, Code::kUnavailable);
}

TEST(WaitingDra, FailsWaitingAndLaterCallsAfterGiveUp) {
  WaitingDra waiting(std::chrono::minutes(1));
  auto prepared = std::async(std::launch::async, [&] { return waiting.prepare(kClaims); });
  waiting.give_up();
  EXPECT_FALSE(prepared.get().at("uid-a"));
  Driver driver;
  waiting.lead_to(driver);
  EXPECT_FALSE(waiting.unprepare(kClaims).at("uid-a"));
}

}  // namespace
}  // namespace carve::plugins
