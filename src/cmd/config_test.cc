#include "cmd/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cmd {
namespace {

using agent::BreachAction;
using ::testing::HasSubstr;

Result<HostOptions> parsed(const std::string& text) {
  HostOptions options;
  CARVE_TRY_VOID(parse_config(text, "carve.conf", {}, &options));
  return options;
}

TEST(Config, EveryActionOnABreachHasItsWord) {
  const std::pair<const char*, BreachAction> compute[] = {{"escalate", BreachAction::kEscalate},
                                                          {"throttle", BreachAction::kThrottle},
                                                          {"kill", BreachAction::kKill},
                                                          {"report", BreachAction::kReport}};
  for (const auto& [word, action] : compute) {
    const auto options = parsed(std::string("on-compute-breach = ") + word + "\n");
    ASSERT_TRUE(options) << options.error().what;
    EXPECT_EQ(options->on_compute, action) << word;
    EXPECT_EQ(options->on_memory, HostOptions().on_memory) << word << " is set for one of the two only";
  }
  for (const auto& [word, action] : {std::pair{"kill", BreachAction::kKill}, {"report", BreachAction::kReport}}) {
    const auto options = parsed(std::string("on-memory-breach = ") + word + "\n");
    ASSERT_TRUE(options) << options.error().what;
    EXPECT_EQ(options->on_memory, action) << word;
    EXPECT_EQ(options->on_compute, HostOptions().on_compute) << word;
  }
}

TEST(Config, WithoutALineAComputeBreachEscalatesAndAMemoryBreachEnds) {
  const auto options = parsed("# nothing\n");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->on_compute, BreachAction::kEscalate);
  EXPECT_EQ(options->on_memory, BreachAction::kKill);
}

TEST(Config, AnIllegalActionIsRefusedWithTheLegalOnes) {
  for (const char* word : {"Escalate", "escalated", "revoke", "kill report", "", "freeze"}) {
    const auto options = parsed(std::string("slices-for-root = 1\non-compute-breach = ") + word + "\n");
    ASSERT_FALSE(options) << word;
    EXPECT_EQ(options.error().code, Code::kInvalidArgument) << word;
    EXPECT_THAT(options.error().what, HasSubstr("carve.conf:2")) << word;
    EXPECT_THAT(options.error().what, HasSubstr("on-compute-breach")) << word;
  }
  EXPECT_THAT(parsed("on-compute-breach = revoke\n").error().what,
              HasSubstr("\"revoke\" is not an action; legal are kill, throttle, escalate, report"));
}

/// Memory cannot be taken back by degrees.
TEST(Config, TheActionsOfComputeAreIllegalForMemory) {
  for (const char* word : {"escalate", "throttle"}) {
    const auto options = parsed(std::string("on-memory-breach = ") + word + "\n");
    ASSERT_FALSE(options) << word;
    EXPECT_THAT(options.error().what, HasSubstr("is not an action; legal are kill, report")) << word;
  }
}

}  // namespace
}  // namespace carve::cmd
