#include "codec/kube/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace carve::codec {
namespace {

std::vector<std::string> all(Lines& lines) {
  std::vector<std::string> found;
  while (auto line = lines.next()) found.push_back(std::move(*line));
  return found;
}

TEST(Lines, AreTheSameForEverySplitOfTheStream) {
  const std::string stream = "one\ntwo\r\n\n\nthree\nfo";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    Lines lines(100);
    std::vector<std::string> found;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      ASSERT_TRUE(lines.add(stream.substr(at, step)));
      for (auto& line : all(lines)) found.push_back(std::move(line));
    }
    EXPECT_THAT(found, testing::ElementsAre("one", "two", "three")) << step;
    ASSERT_TRUE(lines.add("ur\n"));
    EXPECT_THAT(all(lines), testing::ElementsAre("four"));
  }
}

TEST(Lines, ALineWithoutAnEndIsRefusedAtTheLimit) {
  Lines lines(10);
  EXPECT_TRUE(lines.add("0123456789"));
  EXPECT_TRUE(lines.add("\n012345678\n0123456789"));
  EXPECT_EQ(all(lines).size(), 2U);
  const auto refused = lines.add("x");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

}  // namespace
}  // namespace carve::codec
