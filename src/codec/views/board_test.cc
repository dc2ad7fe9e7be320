#include "codec/views/board.h"

#include <gtest/gtest.h>

namespace carve::codec {
namespace {

BoardCard card(const std::string& model, std::uint64_t memory, std::uint64_t granted, std::uint32_t slices) {
  BoardCard one;
  one.model = model;
  one.memory = Bytes::gib(memory);
  one.granted = Bytes::gib(granted);
  one.free = Bytes::gib(memory - granted);
  one.cores_free = slices == 0 ? 100 : 40;
  one.slices = slices;
  return one;
}

TEST(BoardModels, AddUpTheCardsOfEachModel) {
  Board board;
  board.cards = {card("T4", 16, 4, 1), card("T4", 16, 0, 0), card("H200", 141, 0, 0)};
  board.cards[1].healthy = false;
  const auto models = models_of(board);
  ASSERT_EQ(models.size(), 2U);
  const auto& h200 = models[0];
  const auto& t4 = models[1];
  EXPECT_EQ(h200.model, "H200");
  EXPECT_EQ(t4.model, "T4");
  EXPECT_EQ(t4.cards, 2U);
  EXPECT_EQ(t4.unhealthy, 1U);
  EXPECT_EQ(t4.empty, 0U) << "an unhealthy card is not empty";
  EXPECT_EQ(h200.empty, 1U);
  EXPECT_EQ(t4.memory, Bytes::gib(32));
  EXPECT_EQ(t4.granted, Bytes::gib(4));
  EXPECT_EQ(t4.free, Bytes::gib(28));
  EXPECT_EQ(t4.cores_free, 140U);
}

TEST(BoardEvents, BelongToTheNamespaceOfTheirObject) {
  const auto of_pod = parse_board_event(
      R"({"reason":"R","message":"m","involvedObject":{"kind":"Pod","name":"p","namespace":"team"}})");
  ASSERT_TRUE(of_pod);
  EXPECT_EQ(of_pod->namespace_name, "team");
  EXPECT_EQ(of_pod->slice, "Pod/p");
  // The API server stores events of nodes in the namespace default; not every reader of that namespace may see them.
  const auto of_node = parse_board_event(
      R"({"reason":"R","message":"m","involvedObject":{"kind":"Node","name":"n1","namespace":"default"}})");
  ASSERT_TRUE(of_node);
  EXPECT_EQ(of_node->namespace_name, "");
}

}  // namespace
}  // namespace carve::codec
