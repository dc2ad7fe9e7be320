#include "codec/metrics/metrics_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace carve::codec {
namespace {

using Kind = MetricsText::Kind;

TEST(MetricsText, WritesFamiliesAndSamples) {
  MetricsText text;
  text.family("a_total", Kind::kCounter, "How many.");
  text.sample(std::uint64_t{3}, {{"verb", "filter"}, {"code", "200"}});
  text.sample(std::uint64_t{18446744073709551615U});
  text.family("b_seconds", Kind::kHistogram, "How long.");
  text.sample(std::uint64_t{1}, {{"le", "0.005"}}, "_bucket");
  text.sample(0.25, {}, "_sum");
  EXPECT_EQ(text.text(),
            "# HELP a_total How many.\n# TYPE a_total counter\na_total{verb=\"filter\",code=\"200\"} 3\n"
            "a_total 18446744073709551615\n"
            "# HELP b_seconds How long.\n# TYPE b_seconds histogram\nb_seconds_bucket{le=\"0.005\"} 1\n"
            "b_seconds_sum 0.25\n");
}

TEST(MetricsText, AHistogramAddsItsCountsUp) {
  MetricsText text;
  text.family("b_seconds", Kind::kHistogram, "How long.");
  const std::uint64_t counts[] = {2, 0, 3};
  const double bounds[] = {0.005, 1};
  const MetricsText::Label labels[] = {{"verb", "bind"}};
  text.histogram(counts, bounds, 7.5, labels);
  EXPECT_EQ(text.text(),
            "# HELP b_seconds How long.\n# TYPE b_seconds histogram\n"
            "b_seconds_bucket{verb=\"bind\",le=\"0.005\"} 2\nb_seconds_bucket{verb=\"bind\",le=\"1\"} 2\n"
            "b_seconds_bucket{verb=\"bind\",le=\"+Inf\"} 5\nb_seconds_sum{verb=\"bind\"} 7.5\n"
            "b_seconds_count{verb=\"bind\"} 5\n");
}

TEST(MetricsText, CharactersThatEndAValueAreEscaped) {
  MetricsText text;
  text.family("a", Kind::kGauge, "A \\ and\nan \"end\".");
  text.sample(1.0, {{"x", "q\" b\\ n\n} 5"}});
  EXPECT_EQ(text.text(), "# HELP a A \\\\ and\\nan \"end\".\n# TYPE a gauge\na{x=\"q\\\" b\\\\ n\\n} 5\"} 1\n");
}

TEST(MetricsText, BytesThatAreNotUtf8DoNotBreakTheScrape) {
  const auto value = [](std::string_view x) {
    MetricsText text;
    text.sample(1.0, {{"x", x}});
    return text.text().substr(4, text.text().size() - 9);
  };
  EXPECT_EQ(value("größe 🚀"), "größe 🚀");
  EXPECT_EQ(value("\xff"), "?");
  EXPECT_EQ(value("a\xc3"), "a?");              // truncated
  EXPECT_EQ(value("\xc0\xaf"), "??");           // overlong
  EXPECT_EQ(value("\xe0\x80\xaf"), "???");      // overlong
  EXPECT_EQ(value("\xed\xa0\x80"), "???");      // a surrogate
  EXPECT_EQ(value("\xf4\x90\x80\x80"), "????");  // beyond U+10FFFF
  EXPECT_EQ(value("\xf5\x80\x80\x80"), "????");
  EXPECT_EQ(value("\xe2\x82x"), "??x");
}

TEST(MetricsText, TheFirstAndTheLastCharacterOfEachLength) {
  const auto value = [](std::string_view x) {
    MetricsText text;
    text.sample(1.0, {{"x", x}});
    return text.text().substr(4, text.text().size() - 9);
  };
  for (const std::string_view good :
       {"\x01", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xec\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(value(good), good);
    EXPECT_EQ(value(std::string(good) + "a"), std::string(good) + "a");
  }
  for (const std::string_view bad :
       {"\x80", "\xbf", "\xc1\xbf", "\xc2", "\xc2\xc0", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80", "\xe1\x80\xc0",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf1\x80\x80", "\xf1\x80\x80\xc0"}) {
    EXPECT_EQ(value(bad), std::string(bad.size(), '?'));
  }
}

TEST(MetricsText, WritesNumbers) {
  EXPECT_EQ(metrics_number(0.1), "0.1");
  EXPECT_EQ(metrics_number(1e21), "1e+21");
  EXPECT_EQ(metrics_number(-2), "-2");
  EXPECT_EQ(metrics_number(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(metrics_number(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_EQ(metrics_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
}

}  // namespace
}  // namespace carve::codec
