#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace carve {
namespace {

TEST(Log, EveryLineIsJsonRegardlessOfItsContents) {
  std::vector<std::string> lines;
  Log log([&](std::string_view line) { lines.emplace_back(line); });
  const std::time_t before = std::time(nullptr);
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
  // UTC, with milliseconds.
  std::tm seen = {};
  int milliseconds = -1, length = 0;
  const auto stamp = json["ts"].get<std::string>();
  ASSERT_EQ(std::sscanf(stamp.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &seen.tm_year, &seen.tm_mon, &seen.tm_mday,
                        &seen.tm_hour, &seen.tm_min, &seen.tm_sec, &milliseconds, &length),
            7);
  EXPECT_EQ(stamp.size(), 24U);
  EXPECT_EQ(length, 24);
  seen.tm_year -= 1900;
  seen.tm_mon -= 1;
  const std::time_t written = timegm(&seen);
  EXPECT_TRUE(written >= before && written <= std::time(nullptr)) << stamp;
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
