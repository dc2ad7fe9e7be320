#include "core/history/history.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

HistorySample of_slice(const std::string& slice, const std::string& name, std::uint32_t seconds, double delivered) {
  HistorySample one;
  one.key = {"GPU-1", slice, name};
  one.seconds = seconds;
  one.granted = Bytes::gib(4);
  one.used = Bytes::gib(1);
  one.cores_granted = 30;
  one.cores_delivered = delivered;
  return one;
}

HistoryAnswer answer(const HistoryQuery& query, const std::vector<HistoryFrame>& frames, std::int64_t now) {
  HistoryReader reader(query, now);
  for (const auto& frame : frames) reader.add(frame);
  return reader.take();
}

TEST(HistoryRollup, WeightsByTheObservedTime) {
  HistoryRollup rollup;
  rollup.add({10, {of_slice("a", "x/y/z", 10, 30)}});
  rollup.add({20, {of_slice("a", "x/y/z", 5, 0)}});
  const auto frame = rollup.take(20);
  ASSERT_EQ(frame.samples.size(), 1U);
  EXPECT_EQ(frame.samples[0].seconds, 15U);
  EXPECT_DOUBLE_EQ(*frame.samples[0].cores_delivered, 20);
  EXPECT_DOUBLE_EQ(frame.samples[0].cores_granted, 30);  // what was promised while it lived, not averaged with nothing
  EXPECT_EQ(frame.samples[0].granted, Bytes::gib(4));
  EXPECT_TRUE(rollup.empty());
}

TEST(HistoryRollup, AnUnknownFigureDoesNotCountAsZero) {
  auto unknown = of_slice("a", "", 10, 0);
  unknown.used = std::nullopt;
  unknown.cores_delivered = std::nullopt;
  HistoryRollup rollup;
  rollup.add({10, {unknown}});
  rollup.add({20, {of_slice("a", "", 10, 30)}});
  const auto one = rollup.take(20).samples[0];
  EXPECT_EQ(one.used, Bytes::gib(1));
  EXPECT_DOUBLE_EQ(*one.cores_delivered, 30);
  rollup.add({10, {unknown}});
  EXPECT_EQ(rollup.take(20).samples[0].used, std::nullopt);
}

TEST(HistoryAnswer, HasAValuePerIntervalAndNoneWhereNothingWasRecorded) {
  HistoryQuery query;
  query.by = HistoryQuery::By::kSlices;
  query.since = std::chrono::seconds(60);
  const auto found = answer(query, {{970, {of_slice("a", "", 10, 10)}}, {990, {of_slice("a", "", 10, 20)}}}, 1000);
  EXPECT_EQ(found.step_seconds, 10U);
  EXPECT_EQ(found.intervals, 6U);
  EXPECT_EQ(found.first_unix_seconds, 950);
  ASSERT_EQ(found.lines.size(), 1U);
  const auto& values = found.lines[0].values;
  ASSERT_EQ(values.size(), 6U);
  EXPECT_FALSE(values[0]);
  EXPECT_FALSE(values[1]);
  EXPECT_DOUBLE_EQ(*values[2]->cores_delivered, 10);
  EXPECT_FALSE(values[3]);
  EXPECT_DOUBLE_EQ(*values[4]->cores_delivered, 20);
  EXPECT_FALSE(values[5]);
}

TEST(HistoryAnswer, AveragesToTheWantedNumberOfPoints) {
  std::vector<HistoryFrame> frames;
  for (int at = 1; at <= 360; ++at) frames.push_back({at * 10, {of_slice("a", "", 10, at <= 180 ? 10 : 30)}});
  HistoryQuery query;
  query.by = HistoryQuery::By::kSlices;
  query.points = 2;
  const auto found = answer(query, frames, 3600);
  EXPECT_EQ(found.step_seconds, 1800U);
  ASSERT_EQ(found.intervals, 2U);
  EXPECT_DOUBLE_EQ(*found.lines[0].values[0]->cores_delivered, 10);
  EXPECT_DOUBLE_EQ(*found.lines[0].values[1]->cores_delivered, 30);
  EXPECT_EQ(found.lines[0].values[1]->seconds, 1800U);
}

TEST(HistoryAnswer, SelectsCardsOrSlices) {
  auto card = of_slice("", "", 10, 50);
  const std::vector<HistoryFrame> frames = {{1000, {card, of_slice("a", "", 10, 1), of_slice("b", "", 10, 2)}}};
  HistoryQuery query;
  EXPECT_EQ(answer(query, frames, 1000).lines.size(), 1U);
  query.by = HistoryQuery::By::kSlices;
  EXPECT_EQ(answer(query, frames, 1000).lines.size(), 2U);
  query.slice = "b";
  const auto one = answer(query, frames, 1000);
  ASSERT_EQ(one.lines.size(), 1U);
  EXPECT_EQ(one.lines[0].key.slice, "b");
  query.card = "GPU-2";
  EXPECT_TRUE(answer(query, frames, 1000).lines.empty());
  query.card = "GPU";
  EXPECT_EQ(answer(query, frames, 1000).lines.size(), 1U);
}

TEST(HistoryAnswer, SelectsTheContainersOfAPod) {
  const std::vector<HistoryFrame> frames = {{1000,
                                             {of_slice("", "", 10, 50), of_slice("a", "red/p/c", 10, 1),
                                              of_slice("b", "red/p/d", 10, 2), of_slice("c", "red/pp/c", 10, 3)}}};
  const auto names = [&](const std::string& name) {
    HistoryQuery query;
    query.name = name;
    std::string all;
    for (const auto& line : answer(query, frames, 1000).lines) all += line.key.slice;
    return all;
  };
  EXPECT_EQ(names("red/p"), "ab");
  EXPECT_EQ(names("red/p/d"), "b");
  EXPECT_EQ(names("red"), "abc");
  EXPECT_EQ(names("re"), "");
}

// Two slices at the same time add up; one after the other do not.
TEST(HistoryAnswer, SumsTheSlicesOfANamespace) {
  HistoryQuery query;
  query.by = HistoryQuery::By::kNamespaces;
  query.since = std::chrono::seconds(20);
  const auto found = answer(query,
                            {{990, {of_slice("a", "red/p/c", 10, 10), of_slice("b", "red/q/c", 10, 20)}},
                             {1000, {of_slice("a", "red/p/c", 10, 10), of_slice("c", "blue/p/c", 5, 8)}}},
                            1000);
  ASSERT_EQ(found.lines.size(), 2U);
  EXPECT_EQ(found.lines[0].key.name, "blue");
  EXPECT_FALSE(found.lines[0].values[0]);
  EXPECT_DOUBLE_EQ(found.lines[0].values[1]->cores_granted, 15);  // 30 for half of the interval
  EXPECT_EQ(found.lines[0].values[1]->granted, Bytes::gib(2));
  EXPECT_EQ(found.lines[0].values[1]->used, Bytes::mib(512));
  EXPECT_EQ(found.lines[1].key.name, "red");
  EXPECT_DOUBLE_EQ(found.lines[1].values[0]->cores_granted, 60);
  EXPECT_DOUBLE_EQ(*found.lines[1].values[0]->cores_delivered, 30);
  EXPECT_EQ(found.lines[1].values[0]->granted, Bytes::gib(8));
  EXPECT_EQ(found.lines[1].values[0]->used, Bytes::gib(2));
  EXPECT_DOUBLE_EQ(found.lines[1].values[1]->cores_granted, 30);
  query.name = "red/q";
  const auto of_pod =
      answer(query, {{1000, {of_slice("a", "red/p/c", 10, 10), of_slice("b", "red/q/c", 10, 20)}}}, 1000);
  ASSERT_EQ(of_pod.lines.size(), 1U);
  EXPECT_DOUBLE_EQ(of_pod.lines[0].values.back()->cores_granted, 30) << "only the pod's slice";
}

TEST(HistoryAnswer, ReadsTheCoarseFramesForLongTimes) {
  HistoryQuery query;
  query.since = kHistoryFineKept;
  EXPECT_TRUE(wants_fine(query));
  query.since = kHistoryFineKept + std::chrono::hours(1);
  EXPECT_FALSE(wants_fine(query));
  EXPECT_EQ(answer(query, {}, 1'000'000).step_seconds % kHistoryCoarse.count(), 0U);
}

TEST(HistoryHours, AnUnknownFigureAddsNothing) {
  HistoryLine line;
  auto unknown = of_slice("a", "x/y/z", 3600, 0);
  unknown.cores_delivered = std::nullopt;
  unknown.used = std::nullopt;
  line.values = {std::nullopt, unknown, of_slice("a", "x/y/z", 1800, 20)};
  const auto sum = hours_of(line);
  EXPECT_DOUBLE_EQ(sum.card_hours_promised, 0.45);
  EXPECT_DOUBLE_EQ(sum.card_hours_delivered, 0.1);
  EXPECT_DOUBLE_EQ(sum.gib_hours_held, 6);
  EXPECT_DOUBLE_EQ(sum.gib_hours_used, 0.5);
}

TEST(HistoryNames, OnlyNamesOfContainersHaveANamespace) {
  EXPECT_EQ(namespace_in("team/pod/main"), "team");
  EXPECT_EQ(namespace_in("python"), "");
  EXPECT_EQ(namespace_in("a/b"), "");
}

}  // namespace
}  // namespace carve
