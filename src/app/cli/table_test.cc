#include "app/cli/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cli {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

std::string numbers(int count) {
  std::string text;
  for (int at = 1; at <= count; ++at) text += "line " + std::to_string(at) + "\n";
  return text;
}

TEST(PageOf, ATextThatFitsIsShownWhole) {
  std::size_t first = 7;
  EXPECT_EQ(page_of(numbers(3), 24, 80, &first), numbers(3));
  EXPECT_EQ(first, 0U);
}

TEST(PageOf, ALongTextIsShownInPartsThatFitTheTerminal) {
  std::size_t first = 0;
  auto page = page_of(numbers(100), 24, 80, &first);
  EXPECT_THAT(page, StartsWith("line 1\n"));
  EXPECT_THAT(page, EndsWith("lines 1 to 23 of 100; arrows and page keys scroll, q ends"));
  EXPECT_EQ(std::count(page.begin(), page.end(), '\n'), 23);
  first = 23;
  EXPECT_THAT(page_of(numbers(100), 24, 80, &first), StartsWith("line 24\n"));
  first = 1000;
  page = page_of(numbers(100), 24, 80, &first);
  EXPECT_THAT(page, StartsWith("line 78\n"));
  EXPECT_THAT(page, EndsWith("lines 78 to 100 of 100; arrows and page keys scroll, q ends"));
  EXPECT_EQ(first, 77U);
}

TEST(PageOf, LongLinesAreCutBetweenCharacters) {
  std::size_t first = 0;
  EXPECT_EQ(page_of("▁▂▃▄▅\n", 24, 3, &first), "▁▂▃\n");
  EXPECT_EQ(page_of("abcdef\n", 24, 6, &first), "abcdef\n");
  EXPECT_EQ(page_of("", 24, 80, &first), "");
}

}  // namespace
}  // namespace carve::cli
