#include "app/dashboard/viewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/dashboard/one_time_links.h"

namespace carve::dashboard {
namespace {

using codec::Board;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

codec::BoardSlice slice(const std::string& namespace_name, const std::string& card, Bytes memory) {
  codec::BoardSlice one;
  one.id = namespace_name + "/" + card;
  one.namespace_name = namespace_name;
  one.node = "node-" + card;
  one.card = card;
  one.pod = namespace_name + "-pod";
  one.name = namespace_name + "/" + one.pod;
  one.memory = memory;
  one.cores = 30;
  one.used = Bytes::gib(1);
  one.delivered_percent = 25;
  return one;
}

codec::BoardCard card(const std::string& uuid) {
  codec::BoardCard one;
  one.uuid = uuid;
  one.node = "node-" + uuid;
  one.model = "H200";
  one.memory = Bytes::gib(141);
  one.granted = Bytes::gib(100);
  one.free = Bytes::gib(41);
  one.cores_granted = 90;
  one.used = Bytes::gib(80);
  one.utilization_percent = 77;
  one.slices = 3;
  return one;
}

/// Two namespaces share GPU-1; only blue is on GPU-2.
Board shared_board() {
  Board board;
  board.scope = "cluster";
  board.nodes = {{"node-GPU-1", true, "red's secret"}, {"node-GPU-2", true, ""}};
  board.cards = {card("GPU-1"), card("GPU-2")};
  board.slices = {slice("blue", "GPU-1", Bytes::gib(60)), slice("blue", "GPU-2", Bytes::gib(60)),
                  slice("red", "GPU-1", Bytes::gib(4))};
  board.waiting = {{"blue", "blue-waits", "", ""}, {"red", "red-waits", "", ""}};
  board.events = {{1, "node-GPU-1", "blue", "breach", "s1", "blue's"},
                  {2, "node-GPU-1", "red", "breach", "s2", "red's"},
                  {3, "node-GPU-1", "", "driver", "", "no namespace"}};
  codec::sum_nodes(&board);
  return board;
}

std::string everything_shown(const Board& board) {
  std::string all = codec::summary_json(board, 1);
  codec::BoardChange change;
  change.complete = true;
  for (const auto& one : board.nodes) change.nodes.push_back(&one);
  for (const auto& one : board.cards) change.cards.push_back(&one);
  for (const auto& one : board.slices) change.slices.push_back(&one);
  return all + codec::change_json(board, change);
}

TEST(SeenBy, ANamespacesViewerSeesNothingOfOthers) {
  Viewer viewer;
  viewer.namespaces = {"red"};
  const auto seen = seen_by(viewer, shared_board());
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("blue")));
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("GPU-2")));
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("no namespace")));
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("red's secret")));  // the agent's error may name others
  ASSERT_THAT(seen.slices, SizeIs(1));
  ASSERT_THAT(seen.cards, SizeIs(1));
  // The sums are those of the own slices: the use of the others cannot be computed from them.
  EXPECT_EQ(seen.cards[0].granted, Bytes::gib(4));
  EXPECT_EQ(seen.cards[0].free, Bytes());
  EXPECT_EQ(seen.cards[0].used, Bytes::gib(1));
  EXPECT_EQ(seen.cards[0].cores_granted, 30U);
  EXPECT_EQ(seen.cards[0].delivered_percent, 25);
  EXPECT_EQ(seen.cards[0].utilization_percent, std::nullopt);
  EXPECT_EQ(seen.cards[0].slices, 1U);
  EXPECT_EQ(seen.nodes[0].granted, Bytes::gib(4));
  EXPECT_THAT(seen.waiting, SizeIs(1));
  EXPECT_THAT(seen.events, SizeIs(1));
}

TEST(SeenBy, AViewerOfCardsSeesSumsWithoutNames) {
  Viewer viewer;
  viewer.cards = true;
  const auto seen = seen_by(viewer, shared_board());
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("blue")));
  EXPECT_THAT(everything_shown(seen), Not(HasSubstr("red-")));
  ASSERT_THAT(seen.cards, SizeIs(2));
  EXPECT_EQ(seen.cards[0], shared_board().cards[0]);
  EXPECT_THAT(seen.slices, SizeIs(0));
}

TEST(SeenBy, AViewerOfNothingSeesNothing) {
  const auto seen = seen_by({}, shared_board());
  EXPECT_TRUE(seen.cards.empty() && seen.slices.empty() && seen.nodes.empty() && seen.waiting.empty() &&
              seen.events.empty());
}

TEST(SeenBy, AnAdministratorSeesEverything) {
  Viewer viewer;
  viewer.everything = true;
  EXPECT_EQ(everything_shown(seen_by(viewer, shared_board())), everything_shown(shared_board()));
}

TEST(NamespacesOn, ListsThoseOfSlicesWaitingPodsAndEvents) {
  EXPECT_THAT(namespaces_on(shared_board()), ElementsAre("blue", "red"));
}

TEST(OneTimeLinks, AKeyWorksOnceAndTheNextIsShown) {
  int count = 0;
  std::vector<std::string> shown;
  OneTimeLinks links([&] { return "secret-" + std::to_string(++count); },
                     [&](const std::string& key) { shown.push_back(key); });
  ASSERT_THAT(shown, SizeIs(1));
  const auto token = links.exchange(shown[0]);
  ASSERT_TRUE(token);
  EXPECT_TRUE(links.admit(*token)->everything);
  EXPECT_EQ(links.exchange(shown[0]).error().code, Code::kUnauthenticated);
  ASSERT_THAT(shown, SizeIs(2));
  EXPECT_TRUE(links.exchange(shown[1]));
}

TEST(OneTimeLinks, NoOtherTextIsAccepted) {
  int count = 0;
  std::string shown;
  OneTimeLinks links([&] { return "secret-" + std::to_string(++count); }, [&](const std::string& key) { shown = key; });
  for (const auto& text : {std::string(), std::string("secret-"), shown + "x"}) {
    EXPECT_FALSE(links.exchange(text)) << text;
    EXPECT_FALSE(links.admit(text)) << text;
  }
  EXPECT_FALSE(links.admit(shown));  // the key itself is no token
}

TEST(OneTimeLinks, TheOldestTokenEndsFirst) {
  int count = 0;
  std::string shown;
  OneTimeLinks links([&] { return "secret-" + std::to_string(++count); }, [&](const std::string& key) { shown = key; });
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at <= OneTimeLinks::kMostTokens; ++at) tokens.push_back(*links.exchange(shown));
  EXPECT_FALSE(links.admit(tokens.front()));
  EXPECT_TRUE(links.admit(tokens[1]));
  EXPECT_TRUE(links.admit(tokens.back()));
}

}  // namespace
}  // namespace carve::dashboard
