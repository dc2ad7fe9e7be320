#include "codec/history/history_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::codec {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

HistorySample sample(const std::string& card, const std::string& slice, Bytes granted) {
  HistorySample one;
  one.key = {card, slice, slice.empty() ? "" : "team/pod/main"};
  one.seconds = 10;
  one.granted = granted;
  one.used = Bytes::mib(3);
  one.cores_granted = 30;
  one.cores_delivered = 29.5;
  if (slice.empty()) one.temperature = 60;
  return one;
}

Result<std::vector<HistoryFrame>> frames_in(std::string_view bytes) {
  std::vector<HistoryFrame> frames;
  const auto read = decode_history(bytes, [&](const HistoryFrame& frame) { frames.push_back(frame); });
  if (!read) return tl::unexpected(read.error());
  return frames;
}

HistoryFrame frame_at(std::int64_t time) {
  return {time, {sample("GPU-1", "", Bytes::gib(4)), sample("GPU-1", "pod-1", Bytes::gib(4))}};
}

TEST(HistorySegment, ReadsWhatWasWritten) {
  HistoryWriter writer;
  std::string text = writer.encode(frame_at(100), 100'000);
  text += writer.encode(frame_at(110), 100'000);
  const auto frames = frames_in(text);
  ASSERT_TRUE(frames);
  EXPECT_EQ(*frames, (std::vector<HistoryFrame>{frame_at(100), frame_at(110)}));
}

TEST(HistorySegment, UnknownFiguresStayUnknown) {
  auto frame = frame_at(100);
  frame.samples[0].used = std::nullopt;
  frame.samples[0].cores_delivered = std::nullopt;
  HistoryWriter writer;
  const auto frames = frames_in(writer.encode(frame, 100'000));
  ASSERT_TRUE(frames);
  EXPECT_EQ(frames->front(), frame);
}

TEST(HistorySegment, AKeyIsWrittenOnce) {
  HistoryWriter writer;
  const auto first = writer.encode(frame_at(100), 100'000);
  const auto second = writer.encode(frame_at(110), 100'000);
  EXPECT_LT(second.size(), 64U);  // two samples
  EXPECT_GT(first.size(), second.size());
}

// A killed writer leaves a torn record; a bad disk leaves a changed one. What came before is kept.
TEST(HistorySegment, KeepsTheFramesBeforeATornOrDamagedRecord) {
  HistoryWriter writer;
  const auto first = writer.encode(frame_at(100), 100'000);
  const auto both = first + writer.encode(frame_at(110), 100'000);
  for (std::size_t size = first.size(); size < both.size(); ++size) {
    const auto frames = frames_in(std::string_view(both).substr(0, size));
    ASSERT_TRUE(frames);
    EXPECT_THAT(*frames, SizeIs(1)) << size;
  }
  for (std::size_t at = first.size(); at < both.size(); ++at) {
    std::string damaged = both;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const auto frames = frames_in(damaged);
    ASSERT_TRUE(frames);
    EXPECT_THAT(*frames, SizeIs(1)) << at;
  }
}

TEST(HistorySegment, StaysWithinItsBytesAndCountsWhatIsLeftOut) {
  HistoryFrame frame{100, {}};
  for (int at = 0; at < 1000; ++at)
    frame.samples.push_back(sample("GPU-1", "pod-" + std::to_string(at), Bytes::gib(1)));
  HistoryWriter writer;
  const auto text = writer.encode(frame, 5000);
  EXPECT_LE(text.size(), 5000U);
  const auto frames = frames_in(text);
  ASSERT_TRUE(frames);
  const auto kept = frames->front().samples.size();
  EXPECT_GT(kept, 50U);
  EXPECT_EQ(writer.left_out(), 1000 - kept);
  EXPECT_EQ(frames->front().samples.front(), frame.samples.front());  // the first ones are kept
}

TEST(HistorySegment, RefusesAnotherFile) {
  EXPECT_FALSE(frames_in(""));
  EXPECT_FALSE(frames_in("something else"));
}

TEST(HistoryJson, ReadsWhatItWrote) {
  auto value = sample("GPU-1", "pod-1", Bytes::gib(4));
  value.key = {};
  HistoryAnswer answer;
  answer.first_unix_seconds = 1000;
  answer.step_seconds = 10;
  answer.intervals = 3;
  answer.lines.push_back({{"GPU-1", "pod-1", "team/pod/main"}, {std::nullopt, value, std::nullopt}});
  const auto text = to_json(answer);
  EXPECT_THAT(text, HasSubstr("\"memory_granted\":[null,4294967296,null]"));
  const auto again = parse_history_answer(text);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->step_seconds, 10U);
  EXPECT_EQ(again->first_unix_seconds, 1000);
  EXPECT_EQ(again->lines[0].key, answer.lines[0].key);
  EXPECT_EQ(again->lines[0].values, answer.lines[0].values);
}

TEST(HistoryJson, ASeriesWithoutTimesIsRefused) {
  const auto got = parse_history_answer(R"({"step_seconds":10,"series":[{"card":"GPU-1"}]})");
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().what, HasSubstr("unix_seconds is missing"));
  for (const char* text : {R"({"series":[]})", R"({"step_seconds":10})", "{}"}) {
    const auto without = parse_history_answer(text);
    ASSERT_FALSE(without) << text;
    EXPECT_THAT(without.error().what, HasSubstr("step_seconds or series is missing"));
  }
}

TEST(HistoryQueries, NamesTheLegalValues) {
  for (const char* points : {"0", "100001"}) {
    const auto got = parse_history_query({{"points", points}});
    ASSERT_FALSE(got) << points;
    EXPECT_THAT(got.error().what, HasSubstr("points"));
  }
  EXPECT_EQ(parse_history_query({{"points", "1"}})->points, 1U);
  EXPECT_EQ(parse_history_query({{"by", "owners"}}).error().what,
            "by: \"owners\"; legal are cards, slices and namespaces");
}

TEST(HistoryQueries, ParametersAreReadBackEqual) {
  HistoryQuery query;
  query.card = "GPU-1";
  query.slice = "pod-1";
  query.name = "team/pod";
  query.since = std::chrono::minutes(90);
  query.points = 7;
  for (const auto by : {HistoryQuery::By::kCards, HistoryQuery::By::kSlices, HistoryQuery::By::kNamespaces}) {
    query.by = by;
    WebQuery text;
    for (const auto& [name, value] : history_parameters(query)) text[name] = value;
    const auto again = parse_history_query(text);
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_EQ(std::tuple(again->card, again->slice, again->name, again->by, again->since, again->points),
              std::tuple(query.card, query.slice, query.name, query.by, query.since, query.points));
  }
}

TEST(HistoryJson, ANodeHasItsHistoryOrAnError) {
  HistoryAnswer answer;
  answer.step_seconds = 10;
  std::vector<NamedHistory> nodes(2);
  nodes[0].node = "n1";
  nodes[0].answer = answer;
  nodes[1].node = "n2";
  nodes[1].error = "it does not answer";
  EXPECT_EQ(to_json(nodes),
            R"({"nodes":[{"node":"n1","history":{"step_seconds":10,"series":[]}},)"
            R"({"node":"n2","error":"it does not answer"}]})");
}

TEST(HistorySpan, ReadsMinutesHoursAndDaysAndNamesTheLegalOnes) {
  EXPECT_EQ(parse_history_span("since", "15m")->count(), 900);
  EXPECT_EQ(parse_history_span("since", "24h")->count(), 86400);
  EXPECT_EQ(parse_history_span("since", "31d")->count(), 31 * 86400);
  EXPECT_EQ(parse_history_span("since", "")->count(), 3600);
  for (const char* text : {"0m", "32d", "-1h", "1", "h", "1h30m", "99999999999999999999m", "1w"}) {
    const auto wrong = parse_history_span("since", text);
    ASSERT_FALSE(wrong) << text;
    EXPECT_THAT(wrong.error().what, HasSubstr("since: \"" + std::string(text) + "\" is not a time; legal are"));
  }
}

}  // namespace
}  // namespace carve::codec
