#include "app/agent/unexplained.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carve::agent {
namespace {

using std::chrono::milliseconds;

const CardId kCard("GPU-0");

WatchedSlice slice(const std::string& id, Bytes announced) {
  Slice card;
  card.card = kCard;
  card.memory = Bytes::gib(4);
  return {id, false, {card}, {1}, {announced}, {0}, true, {}};
}

TEST(Explained, ASlicesLargerFigureCountsUpToItsLimit) {
  const std::vector<Sighting> listed = {{"a", kCard, {1, Bytes::gib(5), 0}}, {"", kCard, {9, Bytes::gib(1), 0}}};
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(1))}, listed), Bytes::gib(6));
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(3))}, {}), Bytes::gib(3)) << "allocated before it had a context";
  EXPECT_EQ(explained_on(kCard, {slice("a", Bytes::gib(12))}, {}), Bytes::gib(4)) << "at most the own limit";
}

TEST(Explained, MissingFiguresMakeTheAnswerUnknown) {
  EXPECT_FALSE(explained_on(kCard, {}, {{"a", kCard, {1, Bytes::max(), 0}}}));
  WatchedSlice whole = slice("a", Bytes());
  whole.whole = true;
  EXPECT_FALSE(explained_on(kCard, {whole}, {}));
  WatchedSlice unknown = slice("a", Bytes());
  unknown.pages_known = false;
  EXPECT_FALSE(explained_on(kCard, {unknown}, {}));
}

TEST(Unexplained, TheDriversOwnMemoryIsLearntUpToABound) {
  UnexplainedMemory memory;
  Clock::Time now{std::chrono::seconds(10)};
  const auto look = [&](Bytes used) {
    now += milliseconds(500);
    return memory.look({kCard, used, Bytes(), Bytes::gib(8)}, now);
  };
  EXPECT_FALSE(look(Bytes::mib(600)));
  EXPECT_FALSE(look(Bytes::mib(600)));
  EXPECT_FALSE(look(Bytes::mib(850)));
  EXPECT_FALSE(look(Bytes::mib(850))) << "within the tolerance";
  const auto first = look(Bytes::mib(900));
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->grew && !first->lasted && !first->report);
  const auto found = look(Bytes::mib(900));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, Bytes::mib(300));
  EXPECT_TRUE(found->report && found->lasted && !found->grew);
  const auto again = look(Bytes::mib(900));
  ASSERT_TRUE(again) << "the next round may have other suspects";
  EXPECT_FALSE(again->report);
  EXPECT_TRUE(look(Bytes::mib(900))->report) << "once per second";
  UnexplainedMemory late;  // the memory was taken before the agent started
  EXPECT_TRUE(late.look({kCard, Bytes::gib(12), Bytes(), Bytes::gib(8)}, now)->grew);
  EXPECT_TRUE(late.look({kCard, Bytes::gib(12), Bytes(), Bytes::gib(8)}, now + milliseconds(500))->lasted);
}

/// The tolerance comes from memory that is promised to no slice: for any spare memory, the unexplained memory fits on
/// the card next to the promised memory, or it is a finding. The exception is the floor.
TEST(Unexplained, TheToleranceIsTakenFromUnpromisedMemory) {
  const UnexplainedBounds bounds;
  for (std::uint64_t spare = 0; spare <= 400; spare += 8) {
    UnexplainedMemory memory(bounds);
    Clock::Time now{std::chrono::seconds(10)};
    const auto found = [&](std::uint64_t mib) {
      now += milliseconds(500);
      return memory.look({kCard, Bytes::mib(mib), Bytes(), Bytes::mib(spare)}, now).has_value();
    };
    EXPECT_FALSE(found(0));
    const std::uint64_t tolerated = std::clamp<std::uint64_t>(spare, 64, 256);
    EXPECT_FALSE(found(tolerated)) << spare;
    EXPECT_TRUE(found(tolerated + 1)) << spare;
  }
}

TEST(Unexplained, BriefMemoryIsAttributedToAnEndingProcess) {
  UnexplainedMemory memory;
  Clock::Time now{std::chrono::seconds(10)};
  for (int i = 0; i < 20; ++i) {
    now += milliseconds(250);
    const auto found = memory.look({kCard, i % 2 == 0 ? Bytes() : Bytes::gib(3), Bytes(), Bytes::gib(8)}, now);
    EXPECT_FALSE(found && found->lasted) << i;
  }
}

/// Only the parties that held the file when the memory appeared can hold it. Growth in small steps counts too.
TEST(Unexplained, EachGrowthAddsItsHoldersToTheSuspects) {
  UnexplainedMemory memory;
  Clock::Time now{std::chrono::seconds(10)};
  const auto look = [&](Bytes used, const std::string& slice) {
    now += milliseconds(250);
    const auto found = memory.look({kCard, used, Bytes(), Bytes::gib(8)}, now);
    if (!found) return std::string("explained");
    CardHolder holder;
    holder.pid = 2;
    holder.slice = slice;
    const Suspicion suspicion = memory.suspected(kCard, *found, {holder}, now);
    return memory.judge(kCard, *found, suspicion, now).slice;
  };
  EXPECT_EQ(look(Bytes(), "a"), "explained");
  EXPECT_EQ(look(Bytes::gib(1), "a"), "a");
  EXPECT_EQ(look(Bytes(), ""), "explained") << "the next memory has its own holders";
  EXPECT_EQ(look(Bytes::gib(2), "a"), "a");
  EXPECT_EQ(look(Bytes::gib(2), "b"), "") << "it was there before it opened the file";
  UnexplainedMemory slow;
  now += milliseconds(250);
  EXPECT_FALSE(slow.look({kCard, Bytes(), Bytes(), Bytes::gib(8)}, now));
  int grown = 0;
  for (int mib = 300; mib < 1000; mib += 20) {
    now += milliseconds(250);
    grown += slow.look({kCard, Bytes::mib(static_cast<std::uint64_t>(mib)), Bytes(), Bytes::gib(8)}, now)->grew ? 1 : 0;
  }
  EXPECT_EQ(grown, 9) << "at 300 MiB and then at each 80 MiB";
}

}  // namespace
}  // namespace carve::agent
