#include "app/cli/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

HistorySample sample(double delivered) {
  HistorySample one;
  one.seconds = 60;
  one.granted = Bytes::gib(4);
  one.used = Bytes::gib(2);
  one.cores_granted = 30;
  one.cores_delivered = delivered;
  return one;
}

std::vector<NodeHistory> history() {
  HistoryAnswer answer;
  answer.first_unix_seconds = 1000;
  answer.step_seconds = 60;
  answer.intervals = 4;
  answer.lines.push_back({{"GPU-1", "pod-1", "team/job/main"}, {sample(0), std::nullopt, sample(50), sample(100)}});
  return {{"n1", answer}, {"n2", fail(Code::kUnavailable, "pod x does not answer")}};
}

TEST(Timeline, DrawsOneCharacterPerIntervalAndAGapWhereNothingIsKnown) {
  const auto text = render_timeline(history(), 80);
  EXPECT_THAT(text, HasSubstr("n1  GPU-1  team/job/main  the last 4m, 1m per column\n"));
  EXPECT_THAT(text, HasSubstr("  compute  ▁ ▅█\n"));
  EXPECT_THAT(text, HasSubstr("delivered 50.0 % on average, 0.0 to 100.0; promised 30 at most"));
  EXPECT_THAT(text, HasSubstr("  memory   ▅ ▅▅\n"));
  EXPECT_THAT(text, HasSubstr("used 2 GiB on average, 2 GiB at most; promised 4 GiB at most"));
  EXPECT_THAT(text, HasSubstr("n2  pod x does not answer"));
}

TEST(Timeline, AveragesToTheWidth) {
  auto nodes = history();
  nodes[0].answer->lines[0].values = std::vector<std::optional<HistorySample>>(1000, sample(100));
  nodes[0].answer->intervals = 1000;
  for (const std::size_t width : {10U, 40U, 80U, 400U}) {
    const auto text = render_timeline(nodes, width);
    std::size_t full = 0;
    for (std::size_t at = text.find("█"); at != std::string::npos; at = text.find("█", at + 1)) ++full;
    EXPECT_LE(full, std::max<std::size_t>(8, width)) << width;
    EXPECT_GE(full, 8U) << width;
  }
}

TEST(Timeline, SaysThatNothingWasRecorded) {
  HistoryAnswer nothing;
  EXPECT_EQ(render_timeline({{"n1", nothing}}, 80), "nothing was recorded in this time\n");
}

TEST(Timeline, WritesRowsForPrograms) {
  const auto text = timeline_csv(history());
  EXPECT_THAT(text, HasSubstr("\nn1,GPU-1,pod-1,team/job/main,1000,60,4294967296,2147483648,30.0,0.0,,\n"));
  EXPECT_THAT(text, HasSubstr("\nn1,GPU-1,pod-1,team/job/main,1120,60,"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(timeline_json(history()), HasSubstr(R"({"node":"n2","error":"pod x does not answer"})"));
}

// A spreadsheet executes a cell that begins like a formula; a tenant chooses the names.
TEST(Csv, NoFieldIsAFormulaOrBreaksARow) {
  EXPECT_EQ(csv_field("=1+1"), "'=1+1");
  EXPECT_EQ(csv_field("@x"), "'@x");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("a\"b\nc"), "\"a\"\"b\nc\"");
  EXPECT_EQ(csv_field("team/pod"), "team/pod");
}

TEST(Timeline, UnderstandsWhatAPersonNames) {
  const auto since = std::chrono::seconds(60);
  ASSERT_THAT(queries_about("", since), SizeIs(1));
  EXPECT_EQ(queries_about("", since)[0].by, HistoryQuery::By::kCards);
  const auto card = queries_about("GPU-1cef", since);
  ASSERT_THAT(card, SizeIs(2));
  EXPECT_EQ(card[0].card, "GPU-1cef");
  EXPECT_EQ(card[1].by, HistoryQuery::By::kSlices);
  EXPECT_EQ(queries_about("ml/train", since)[0].name, "ml/train");
  EXPECT_EQ(queries_about("run-1", since)[0].slice, "run-1");
}

}  // namespace
}  // namespace carve::cli
