#include "app/cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

HistoryLine line(const std::string& name, double promised, double delivered, int hours) {
  HistoryLine one;
  one.key.name = name;
  one.key.card = "GPU-1";
  for (int at = 0; at < hours; ++at) {
    HistorySample sample;
    sample.seconds = 3600;
    sample.granted = Bytes::gib(4);
    sample.used = Bytes::gib(1);
    sample.cores_granted = promised;
    sample.cores_delivered = delivered;
    one.values.emplace_back(sample);
  }
  return one;
}

ReportFacts facts() {
  HistoryAnswer answer;
  answer.step_seconds = 3600;
  answer.intervals = 2;
  answer.first_unix_seconds = 1'800'000'000;
  answer.lines = {line("small", 50, 25, 1), line("<b>big</b>", 100, 80, 2)};
  ReportFacts made;
  made.scope = "this machine";
  made.since = std::chrono::hours(2);
  made.unix_seconds = 1'800'007'200;
  made.namespaces = {{"n1", answer}, {"n2", answer}};
  made.cards = made.namespaces;
  return made;
}

TEST(Report, SumsHoursOverNodesAndSortsByWaste) {
  const auto rows = report_rows(facts().namespaces);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].name, "<b>big</b>");
  EXPECT_DOUBLE_EQ(rows[0].hours.card_hours_promised, 4);  // a whole card for two hours on two nodes
  EXPECT_DOUBLE_EQ(rows[0].hours.card_hours_delivered, 3.2);
  EXPECT_DOUBLE_EQ(rows[0].hours.gib_hours_held, 16);
  EXPECT_DOUBLE_EQ(rows[0].hours.gib_hours_used, 4);
  EXPECT_DOUBLE_EQ(rows[1].hours.card_hours_promised, 1);
}

TEST(Report, IsOneFileWithoutReferencesAndWithoutForeignMarkup) {
  auto made = facts();
  made.unhealthy = {"n1 GPU-1: <script>"};
  const auto html = report_html(made);
  EXPECT_THAT(html, HasSubstr("&lt;b&gt;big&lt;/b&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, HasSubstr("2027-01-15 08:00 UTC to 2027-01-15 10:00 UTC"));
  made.models = "4 × NVIDIA A100 (SIMULATED)";
  EXPECT_THAT(report_html(made), HasSubstr("4 × NVIDIA A100 (SIMULATED)"));
}

TEST(Report, NamesNodesWithoutAnswer) {
  auto made = facts();
  made.cards.push_back({"n3", fail(Code::kUnavailable, "pod x does not answer")});
  EXPECT_THAT(report_html(made), HasSubstr("<li>n3: pod x does not answer</li>"));
}

TEST(Report, WritesRowsForPrograms) {
  EXPECT_THAT(report_csv(facts()), HasSubstr("\nsmall,1.0000,0.5000,8.000,2.000\n"));
}

}  // namespace
}  // namespace carve::cli
