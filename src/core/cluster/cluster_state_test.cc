#include "core/cluster/cluster_state.h"

#include <gtest/gtest.h>

#include <random>

#include "core/cluster/cluster.h"

namespace carve {
namespace {

using Nodes = ClusterState::Nodes;

ClusterState::Node node() { return std::make_shared<const NodeState>(); }

void expect_same(const ClusterState& state, const Nodes& right) {
  ASSERT_EQ(state.size(), right.size());
  auto at = right.begin();
  for (const auto& [name, one] : state) {
    EXPECT_EQ(name, at->first);
    EXPECT_EQ(one, at->second);
    EXPECT_EQ(state.find(name)->second, at->second);
    EXPECT_EQ(state.name(*state.number_of(name)), name);
    ++at;
  }
  EXPECT_FALSE(state.contains("nobody"));
  EXPECT_TRUE(state.find("nobody") == state.end());
}

TEST(ClusterState, EqualsAMapAfterAnyAdditionChangeAndRemoval) {
  std::mt19937 random(7);
  ClusterState state;
  Nodes right;
  std::vector<std::pair<ClusterState, Nodes>> earlier;
  for (int step = 0; step < 300; ++step) {
    Nodes changes;
    for (auto count = random() % 4; count > 0; --count) {
      const auto name = "n" + std::to_string(random() % 200);
      changes[name] = random() % 5 == 0 ? nullptr : node();
    }
    if (step % 10 == 0) earlier.emplace_back(state, right);
    state.change(changes);
    for (const auto& [name, one] : changes) {
      if (one) {
        right[name] = one;
      } else {
        right.erase(name);
      }
    }
    expect_same(state, right);
  }
  for (const auto& [was, rightly] : earlier) expect_same(was, rightly);
  expect_same(ClusterState(right), right);
}

TEST(ClusterState, ACopySharesAllPiecesThatDidNotChange) {
  Nodes nodes;
  for (int i = 0; i < 1000; ++i) nodes["n" + std::to_string(10'000 + i)] = node();
  const ClusterState before(nodes);
  ClusterState after = before;
  after.put("n10100", node());
  EXPECT_TRUE(after.same_names(before));
  std::size_t shared = 0;
  for (ClusterState::Number number = 0; number < before.size(); ++number)
    shared += after.same_piece(before, number) ? 1 : 0;
  EXPECT_EQ(shared, 1000 - ClusterState::kPiece);
  EXPECT_EQ(before.at("n10100"), nodes["n10100"]);
  EXPECT_NE(after.at("n10100"), nodes["n10100"]);
  after.erase("nobody");
  EXPECT_TRUE(after.same_names(before));
  after.erase("n10100");
  EXPECT_FALSE(after.same_names(before));
  EXPECT_EQ(after.size(), 999U);
}

TEST(ClusterState, NamesOfEveryLengthAreFoundAndSimilarNamesAreNot) {
  Nodes nodes;
  for (std::size_t length = 1; length <= 40; ++length) {
    for (std::size_t at = 0; at < length; ++at) {  // each name differs in one character
      std::string name(length, 'n');
      name[at] = 'a';
      nodes[name] = node();
    }
  }
  const ClusterState state(nodes);
  expect_same(state, nodes);
  for (const auto& [name, one] : nodes) {
    EXPECT_EQ(state.at(name), one);
    for (std::size_t at = 0; at < name.size(); ++at) {
      std::string other = name;
      other[at] = 'b';
      ASSERT_FALSE(state.contains(other)) << other;
    }
  }
  EXPECT_FALSE(state.contains(""));
}

}  // namespace
}  // namespace carve
