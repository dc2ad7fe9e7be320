#include "base/log.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace carve {
namespace {

TEST(Log, EveryLineIsJsonRegardlessOfItsContents) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  log.info(
      "slice put",
      {{"slice", "s\"1\n"}, {"bytes", 4294967296ULL}, {"delta", -3}, {"ok", true}, {"share", 0.3}});
  ASSERT_EQ(lines.size(), 1u);
  const auto json = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(json["level"], "info");
  EXPECT_EQ(json["msg"], "slice put");
  EXPECT_EQ(json["slice"], "s\"1\n");
  EXPECT_EQ(json["bytes"], 4294967296ULL);
  EXPECT_EQ(json["delta"], -3);
  EXPECT_EQ(json["ok"], true);
  EXPECT_DOUBLE_EQ(json["share"].get<double>(), 0.3);
  EXPECT_EQ(json["ts"].get<std::string>().size(), std::string("2026-01-01T00:00:00.000Z").size());
}

TEST(Log, BytesThatAreNotUtf8AreReplaced) {
  std::string line;
  Log log([&](std::string_view l) { line = l; });
  log.info("process seen", {{"command", "caf\xc3\xa9 \xff \xc0\xaf \xed\xa0\x80 \xe2\x82"}});
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["command"], "caf\xc3\xa9 ? ?? ??? ??");
}

TEST(Log, TheLevelCanBeChangedAtAnyTime) {
  int lines = 0;
  Log log([&](std::string_view) { ++lines; });
  log.debug("not seen");
  EXPECT_EQ(lines, 0);
  log.set_level(LogLevel::kDebug);
  log.debug("seen");
  EXPECT_EQ(lines, 1);
  log.set_level(LogLevel::kError);
  log.warn("not seen");
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(log.level(), LogLevel::kError);
}

TEST(Log, LevelsAreParsedByName) {
  EXPECT_EQ(log_level_from("warn"), LogLevel::kWarn);
  EXPECT_FALSE(log_level_from("loud"));
}

}  // namespace
}  // namespace carve
