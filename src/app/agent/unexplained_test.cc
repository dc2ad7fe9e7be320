#include "app/agent/unexplained.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

using std::chrono::milliseconds;

const CardId kCard("GPU-0");

WatchedSlice slice(const std::string& id, Bytes announced) {
  Slice card;
  card.card = kCard;
  card.memory = Bytes::gib(4);
  return {id, false, {card}, {1}, {announced}, {0}, true, {}};
}

TEST(Explained, OfASliceTheLargerOfListAndAnnouncedButNoMoreThanItsLimit) {
  const std::vector<Sighting> listed = {{"a", kCard, {1, Bytes::gib(5), 0}}, {"", kCard, {9, Bytes::gib(1), 0}}};
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(1))}, listed), Bytes::gib(6));
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(3))}, {}), Bytes::gib(3)) << "taken before it had a context";
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(12))}, {}), Bytes::gib(4)) << "a lie explains its own part";
}

TEST(Explained, NobodyIsSuspectedWhereFiguresAreMissing) {
  EXPECT_FALSE(explained_on(kCard, {}, {{"a", kCard, {1, Bytes::max(), 0}}}));
  WatchedSlice whole = slice("a", Bytes());
  whole.whole = true;
  EXPECT_FALSE(explained_on(kCard, {whole}, {}));
  WatchedSlice unknown = slice("a", Bytes());
  unknown.pages_known = false;
  EXPECT_FALSE(explained_on(kCard, {unknown}, {}));
}

TEST(Unexplained, WhatTheDriverAlwaysKeepsIsLearntUpToABound) {
  UnexplainedMemory memory;
  Clock::Time now{std::chrono::seconds(10)};
  const auto look = [&](Bytes used) {
    now += milliseconds(500);
    return memory.look({kCard, used, Bytes()}, now);
  };
  EXPECT_FALSE(look(Bytes::mib(600)));
  EXPECT_FALSE(look(Bytes::mib(600)));
  EXPECT_FALSE(look(Bytes::mib(850)));
  EXPECT_FALSE(look(Bytes::mib(850))) << "within the tolerance";
  EXPECT_FALSE(look(Bytes::mib(900)));
  const auto found = look(Bytes::mib(900));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, Bytes::mib(300));
  EXPECT_TRUE(found->report);
  const auto again = look(Bytes::mib(900));
  ASSERT_TRUE(again) << "its suspects may be others in the next round";
  EXPECT_FALSE(again->report);
  EXPECT_TRUE(look(Bytes::mib(900))->report) << "once per second";
  UnexplainedMemory late;  // the memory was taken before the agent started
  EXPECT_FALSE(late.look({kCard, Bytes::gib(12), Bytes()}, now));
  EXPECT_TRUE(late.look({kCard, Bytes::gib(12), Bytes()}, now + milliseconds(500)));
}

TEST(Unexplained, WhatIsSeenForAMomentIsAnEndingProcess) {
  UnexplainedMemory memory;
  Clock::Time now{std::chrono::seconds(10)};
  for (int i = 0; i < 20; ++i) {
    now += milliseconds(250);
    EXPECT_FALSE(memory.look({kCard, i % 2 == 0 ? Bytes() : Bytes::gib(3), Bytes()}, now)) << i;
  }
}

TEST(Suspects, AreHoldersThatNoListExplainsStrangersFirst) {
  const std::vector<CardHolder> honest = {{1, "a", true, true}};
  EXPECT_TRUE(suspects_among(honest).empty());
  const auto both = suspects_among({{1, "a", true, true}, {2, "a", false, true}, {3, "b", false, true}});
  EXPECT_EQ(both.size(), 2U);
  const auto one = suspects_among({{2, "a", false, true}, {3, "b", false, false}, {4, "", false, false}});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].pid, 3);
}

}  // namespace
}  // namespace carve
