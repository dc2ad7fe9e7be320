#include "core/topology/links.h"

#include <gtest/gtest.h>

#include <set>

namespace carve {
namespace {

TEST(LinkMatrix, ALinkIsTheSameFromBothEnds) {
  const CardId a("GPU-a"), b("GPU-b"), c("GPU-c"), stranger("GPU-x");
  LinkMatrix links({c, a, b, a});
  links.set(a, c, {LinkLevel::kNvLink, 4});
  links.set(a, a, {LinkLevel::kNvLink, 9});
  links.set(a, stranger, {LinkLevel::kNvLink, 9});
  links.set(stranger, a, {LinkLevel::kNvLink, 9});
  EXPECT_EQ(links.between(a, c), (Link{LinkLevel::kNvLink, 4}));
  EXPECT_EQ(links.between(c, a), (Link{LinkLevel::kNvLink, 4}));
  for (const CardId& one : {a, b, c, stranger}) {
    EXPECT_EQ(links.between(one, b), Link{});
    EXPECT_EQ(links.between(b, one), Link{});
    EXPECT_EQ(links.between(one, one), Link{}) << "a card has no link to itself";
    EXPECT_EQ(links.between(one, stranger), Link{});
    EXPECT_EQ(links.between(stranger, one), Link{});
  }
}

TEST(LinkLevel, EachLevelHasItsOwnWord) {
  std::set<std::string_view> words;
  for (int level = 0; level <= static_cast<int>(LinkLevel::kNvLink); ++level)
    words.insert(to_string(static_cast<LinkLevel>(level)));
  EXPECT_EQ(words, (std::set<std::string_view>{"?", "SYS", "NODE", "PHB", "PXB", "PIX", "NVLINK"}));
  EXPECT_EQ(to_string(static_cast<LinkLevel>(7)), "?");
  EXPECT_EQ(to_string(LinkLevel::kNvLink), "NVLINK");
}

}  // namespace
}  // namespace carve
