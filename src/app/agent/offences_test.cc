#include "app/agent/offences.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

using std::chrono::seconds;

TEST(Offences, EachCaughtSliceCountsAgainstTheUsersNextSlice) {
  Offences offences;
  Clock::Time now{seconds(100)};
  EXPECT_EQ(offences.prior("user 1", now, {}), 0);
  for (int i = 1; i <= 3; ++i, now += seconds(8)) {
    offences.note("user 1", now, {});
    EXPECT_NEAR(offences.prior("user 1", now, {}), 0.5 * i, 1e-9);
  }
  EXPECT_EQ(offences.prior("user 2", now, {}), 0);
}

TEST(Offences, AreForgottenTwoMinutesAfterTheLastOne) {
  Offences offences;
  Clock::Time now{seconds(100)};
  offences.note("user 1", now, {});
  offences.note("user 1", now += seconds(119), {});
  offences.renew("user 1", now += seconds(60));
  EXPECT_EQ(offences.count("user 1", now + seconds(119), {}), 2);
  EXPECT_EQ(offences.count("user 1", now + seconds(120), {}), 0);
  offences.note("user 1", now += seconds(120), {});
  EXPECT_EQ(offences.count("user 1", now, {}), 1) << "the count restarts";
}

TEST(Offences, ASliceOfAnUnknownUserIsNotRecorded) {
  Offences offences;
  offences.note("", Clock::Time(seconds(1)), {});
  EXPECT_EQ(offences.count("", Clock::Time(seconds(1)), {}), 0);
}

}  // namespace
}  // namespace carve
