#include "app/agent/suspects.h"

#include <gtest/gtest.h>

namespace carve::agent {
namespace {

using std::chrono::milliseconds;

CardHolder in_slice(std::int32_t pid, const std::string& slice) {
  CardHolder holder;
  holder.pid = pid;
  holder.slice = slice;
  return holder;
}

CardHolder outside(std::int32_t pid, std::uint32_t uid, bool computes) {
  CardHolder holder;
  holder.pid = pid;
  holder.uid = uid;
  holder.computes = computes;
  holder.program = "/usr/bin/p" + std::to_string(pid);
  return holder;
}

Suspicion of(const std::vector<CardHolder>& holders, bool strict = false) {
  return suspicion_of(holders, parties_at_growth(holders), strict);
}

TEST(Suspects, AreTheHoldersThatNoListExplains) {
  CardHolder listed = in_slice(1, "a");
  listed.listed = true;
  EXPECT_TRUE(of({listed}).suspects.empty());
  EXPECT_EQ(of({listed, in_slice(2, "b")}).slice, "b");
  const Suspicion both = of({listed, in_slice(2, "a"), in_slice(3, "b")});
  EXPECT_EQ(both.suspects.size(), 2U);
  EXPECT_EQ(both.slice, "") << "either can hold it";
}

TEST(Suspects, ADaemonWithoutCudaIsNotOneUnlessTheRuleIsStrict) {
  const CardHolder root = outside(9, 0, false);
  const CardHolder account = outside(10, 120, false);  // nvidia-persistenced drops to an account of its own
  EXPECT_EQ(of({in_slice(2, "a"), root, account}).slice, "a");
  EXPECT_EQ(of({in_slice(2, "a"), root, account}).others.size(), 2U);
  EXPECT_EQ(of({in_slice(2, "a"), root}, true).slice, "");
  EXPECT_EQ(of({in_slice(2, "a"), outside(9, 0, true)}).slice, "") << "a CUDA program of root can hold it";
  EXPECT_EQ(of({in_slice(2, "a"), outside(9, 1000, false)}).slice, "") << "a person can take memory without CUDA";
}

TEST(Suspects, TheOperatorsListExceptsADaemonThatUsesCuda) {
  CardHolder listed = outside(9, 0, true);
  listed.trusted = true;
  EXPECT_EQ(of({in_slice(2, "a"), listed}).slice, "a");
}

/// The memory was there before these processes opened the file.
TEST(Suspects, HoldersThatArrivedAfterTheMemoryAreExcluded) {
  const auto at_growth = parties_at_growth({in_slice(2, "a")});
  EXPECT_EQ(suspicion_of({in_slice(2, "a"), in_slice(3, "b"), outside(9, 1000, true)}, at_growth, false).slice, "a");
  EXPECT_EQ(suspicion_of({in_slice(3, "b")}, at_growth, false).slice, "")
      << "the holder is gone, and the memory is not";
  // A process to which another process of its slice passed the file.
  EXPECT_EQ(suspicion_of({in_slice(4, "a"), in_slice(3, "b")}, at_growth, false).slice, "a");
}

/// A data loader is a fork of a training process, and holds the files that it inherited.
TEST(Suspects, AForkWithoutFilesOfItsOwnNeverAccusesItsSlice) {
  CardHolder loader = in_slice(5, "a");
  loader.inherited = true;
  EXPECT_EQ(of({loader, in_slice(2, "b")}).slice, "b");
  const Suspicion alone = of({loader});
  EXPECT_EQ(alone.suspects.size(), 1U) << "named";
  EXPECT_EQ(alone.slice, "");
  EXPECT_EQ(of({loader, in_slice(2, "b")}, true).slice, "");
  EXPECT_EQ(of({loader, outside(9, 1000, true)}).slice, "");
}

TEST(Suspects, AUserCannotShieldItsSliceFromOutside) {
  CardHolder taker = in_slice(2, "a");
  taker.slice_uid = 1000;
  EXPECT_EQ(of({taker, outside(9, 1000, true)}).slice, "a");
  EXPECT_EQ(of({taker, outside(9, 1001, true)}).slice, "") << "another user may have taken it";
  CardHolder roots = in_slice(2, "a");
  EXPECT_EQ(of({roots, outside(9, 0, true)}).slice, "") << "root is not one person";
}

class AccusationsTest : public ::testing::Test {
 protected:
  Accusations::Verdict round(const Suspicion& suspicion, Bytes bytes) {
    now_ += milliseconds(250);
    return accusations_.judge(suspicion, bytes, now_);
  }
  Accusations accusations_;
  Clock::Time now_{std::chrono::seconds(10)};
};

TEST_F(AccusationsTest, ASliceThatTakesItAgainIsEndedAsAWhole) {
  EXPECT_FALSE(round(of({in_slice(2, "a")}), Bytes::gib(8)).whole);
  EXPECT_FALSE(round(of({in_slice(2, "a")}), Bytes::gib(8)).whole) << "the same process, which is ending";
  const auto again = round(of({in_slice(3, "a")}), Bytes::gib(8));
  EXPECT_EQ(again.slice, "a");
  EXPECT_TRUE(again.whole);
}

/// A driver frees memory some time after the process has ended. Meanwhile no other slice is accused.
TEST_F(AccusationsTest, AVerdictWithoutEffectEndsNoSecondSlice) {
  EXPECT_EQ(round(of({in_slice(2, "a")}), Bytes::gib(8)).slice, "a");
  for (int i = 0; i < 19; ++i) EXPECT_EQ(round(of({in_slice(3, "b")}), Bytes::gib(8)).slice, "");
  EXPECT_EQ(round(of({in_slice(3, "b")}), Bytes::gib(8)).cleared, "a");
  for (int i = 0; i < 100; ++i) {
    const auto later = round(of({in_slice(3, "b")}), Bytes::gib(8));
    EXPECT_EQ(later.slice + later.cleared, "");
  }
  EXPECT_TRUE(accusations_.strict(now_));
  accusations_.over();
  EXPECT_TRUE(accusations_.strict(now_)) << "for the next unexplained memory";
  EXPECT_EQ(round(of({in_slice(3, "b")}), Bytes::gib(8)).slice, "b");
}

TEST_F(AccusationsTest, TheNextHolderIsAccusedWhenAPartBecameFree) {
  EXPECT_EQ(round(of({in_slice(2, "a")}), Bytes::gib(8)).slice, "a");
  for (int i = 0; i < 19; ++i) EXPECT_EQ(round(of({in_slice(3, "b")}), Bytes::gib(4)).slice, "");
  EXPECT_EQ(round(of({in_slice(3, "b")}), Bytes::gib(4)).slice, "b");
}

}  // namespace
}  // namespace carve::agent
