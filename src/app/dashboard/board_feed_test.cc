#include "app/dashboard/board_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::dashboard {
namespace {

using codec::Board;
using codec::BoardCard;
using codec::BoardSlice;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

BoardCard card(const std::string& uuid, Bytes granted) {
  BoardCard one;
  one.uuid = uuid;
  one.node = "n1";
  one.granted = granted;
  return one;
}

BoardSlice slice(const std::string& id) {
  BoardSlice one;
  one.id = id;
  one.card = "GPU-1";
  return one;
}

Board board(std::vector<BoardCard> cards, std::vector<BoardSlice> slices) {
  Board one;
  one.cards = std::move(cards);
  one.slices = std::move(slices);
  return one;
}

std::vector<std::string> uuids(const codec::BoardChange& change) {
  std::vector<std::string> all;
  for (const auto* one : change.cards) all.push_back(one->uuid);
  return all;
}

TEST(RevisedBoard, AnEqualBoardHasTheSameRevision) {
  const auto first = revised(nullptr, board({card("GPU-1", Bytes::gib(1))}, {}), 100);
  const auto second = revised(&first, board({card("GPU-1", Bytes::gib(1))}, {}), 0);
  EXPECT_EQ(first.revision, 100U);
  EXPECT_EQ(second.revision, 100U);
  EXPECT_THAT(change_since(second, 100).cards, IsEmpty());
}

TEST(RevisedBoard, AChangeContainsOnlyWhatChanged) {
  const auto first = revised(nullptr, board({card("GPU-1", Bytes()), card("GPU-2", Bytes())}, {slice("a")}), 100);
  const auto second =
      revised(&first, board({card("GPU-1", Bytes::gib(1)), card("GPU-2", Bytes())}, {slice("a"), slice("b")}), 0);
  const auto change = change_since(second, 100);
  EXPECT_EQ(change.revision, 101U);
  EXPECT_FALSE(change.complete);
  EXPECT_THAT(uuids(change), ElementsAre("GPU-1"));
  ASSERT_THAT(change.slices, SizeIs(1));
  EXPECT_EQ(change.slices[0]->id, "b");
}

TEST(RevisedBoard, NamesWhatIsGone) {
  const auto first = revised(nullptr, board({card("GPU-1", Bytes())}, {slice("a"), slice("b")}), 100);
  const auto second = revised(&first, board({card("GPU-1", Bytes())}, {slice("b")}), 0);
  const auto third = revised(&second, board({}, {slice("b")}), 0);
  EXPECT_THAT(change_since(third, 100).gone_slices, ElementsAre("a"));
  EXPECT_THAT(change_since(third, 101).gone_slices, IsEmpty());
  EXPECT_THAT(change_since(third, 101).gone_cards, ElementsAre("GPU-1"));
}

// A reader deletes first and then inserts, so an item that came back must be in the table.
TEST(RevisedBoard, AnItemThatCameBackIsNew) {
  const auto first = revised(nullptr, board({}, {slice("a")}), 100);
  const auto second = revised(&first, board({}, {}), 0);
  const auto third = revised(&second, board({}, {slice("a")}), 0);
  const auto change = change_since(third, 100);
  EXPECT_THAT(change.gone_slices, ElementsAre("a"));
  EXPECT_THAT(change.slices, SizeIs(1));
}

TEST(RevisedBoard, AReaderOfAnotherProcessGetsEverything) {
  const auto now = revised(nullptr, board({card("GPU-1", Bytes())}, {slice("a")}), 100);
  for (const std::uint64_t since : {0U, 5U, 98U, 101U, 5000U}) {
    const auto change = change_since(now, since);
    EXPECT_TRUE(change.complete) << since;
    EXPECT_THAT(change.cards, SizeIs(1)) << since;
    EXPECT_TRUE(change.rest) << since;
  }
  EXPECT_FALSE(change_since(now, 100).complete);
}

TEST(RevisedBoard, WithoutDetailThereAreOnlyNodes) {
  Board one = board({card("GPU-1", Bytes())}, {slice("a")});
  one.nodes.emplace_back().name = "n1";
  const auto change = change_since(revised(nullptr, one, 100), 0, Detail::kNodes);
  EXPECT_THAT(change.cards, IsEmpty());
  EXPECT_THAT(change.slices, IsEmpty());
  EXPECT_THAT(change.nodes, SizeIs(1));
}

TEST(RevisedBoard, ForgetsOldLossesAndThenSendsEverything) {
  std::vector<BoardSlice> many;
  for (int at = 0; at < 30'000; ++at) many.push_back(slice(std::to_string(at)));
  const auto first = revised(nullptr, board({}, many), 100);
  const auto second = revised(&first, board({}, {}), 0);
  EXPECT_LE(second.gone.size(), 20'000U);
  EXPECT_TRUE(change_since(second, 100).complete);
  EXPECT_FALSE(change_since(second, 101).complete);
}

TEST(BoardFeed, ReadsOnlyWhenAskedAndNotTooOften) {
  ManualClock clock;
  int reads = 0;
  BoardFeed feed([&]() -> Result<Board> { return ++reads, Board(); }, clock);
  EXPECT_EQ(reads, 0);
  ASSERT_TRUE(feed.now());
  ASSERT_TRUE(feed.now());
  EXPECT_EQ(reads, 1);
  clock.advance(BoardFeed::kFresh);
  ASSERT_TRUE(feed.now());
  EXPECT_EQ(reads, 2);
}

TEST(BoardFeed, AReadThatTakesLongIsRepeatedLater) {
  ManualClock clock;
  int reads = 0;
  BoardFeed feed(
      [&]() -> Result<Board> {
        ++reads;
        clock.advance(std::chrono::seconds(2));
        return Board();
      },
      clock);
  ASSERT_TRUE(feed.now());
  clock.advance(std::chrono::seconds(5));
  ASSERT_TRUE(feed.now());
  EXPECT_EQ(reads, 1);
  clock.advance(std::chrono::seconds(1));
  ASSERT_TRUE(feed.now());
  EXPECT_EQ(reads, 2);
}

TEST(BoardFeed, AFailureIsToldAndTheBoardContinuesAfterIt) {
  ManualClock clock;
  bool fails = false;
  BoardFeed feed(
      [&]() -> Result<Board> {
        if (fails) return fail(Code::kUnavailable, "the agent is away");
        return board({card("GPU-1", Bytes())}, {});
      },
      clock);
  const auto before = (*feed.now())->revision;
  fails = true;
  clock.advance(BoardFeed::kFresh);
  EXPECT_EQ(feed.now().error().what, "the agent is away");
  fails = false;
  clock.advance(BoardFeed::kFresh);
  EXPECT_EQ((*feed.now())->revision, before);
}

}  // namespace
}  // namespace carve::dashboard
