// The answers of the history on record, see base/testing/decisions.h. The other tests of this folder check rules.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "base/testing/decisions.h"
#include "core/history/history.h"

namespace carve {
namespace {

using By = HistoryQuery::By;

HistorySample sample_of(HistoryKey key, Numbers& numbers) {
  HistorySample sample;
  sample.key = std::move(key);
  sample.seconds = static_cast<std::uint32_t>(numbers.one_of(4) ? numbers.below(11) : 10);
  sample.granted = Bytes::mib(numbers.below(20'000));
  sample.cores_granted = static_cast<double>(numbers.below(101));
  if (!numbers.one_of(4)) sample.used = Bytes::mib(numbers.below(20'000));
  if (!numbers.one_of(4)) sample.cores_delivered = static_cast<double>(numbers.below(1'001)) / 10;
  if (sample.key.of_card() && !numbers.one_of(3)) sample.temperature = static_cast<std::uint32_t>(numbers.below(100));
  if (sample.key.of_card() && !numbers.one_of(3)) sample.power = static_cast<std::uint32_t>(numbers.below(700));
  return sample;
}

HistoryFrame frame_at(std::int64_t seconds, Numbers& numbers) {
  constexpr std::array kNames = {"training/job-1/main", "training/job-10/main", "web/api/main", "python3", ""};
  HistoryFrame frame;
  frame.unix_seconds = seconds;
  for (const char* card : {"GPU-0", "GPU-01", "GPU-2"}) {
    if (!numbers.one_of(8)) frame.samples.push_back(sample_of({card, "", ""}, numbers));
    for (std::size_t slice = 0; slice < kNames.size(); ++slice) {
      if (numbers.one_of(2)) continue;
      frame.samples.push_back(sample_of({card, "s" + std::to_string(slice), kNames[slice]}, numbers));
    }
  }
  return frame;
}

HistoryQuery query_of(Numbers& numbers) {
  constexpr std::array kBys = {By::kCards, By::kSlices, By::kNamespaces};
  constexpr std::array kNames = {"training", "training/job-1", "web/api/main", "python3", "web/ap"};
  HistoryQuery query;
  query.by = kBys[numbers.below(kBys.size())];
  if (numbers.one_of(4)) query.card = "GPU-0";
  if (numbers.one_of(5)) query.slice = "s1";
  if (numbers.one_of(4)) query.name = kNames[numbers.below(kNames.size())];
  query.since = std::chrono::seconds(numbers.one_of(3) ? numbers.below(26 * 3600) : numbers.below(900));
  query.points = static_cast<std::uint32_t>(numbers.one_of(3) ? numbers.below(20) : 600);
  return query;
}

std::uint64_t thousandths(double value) { return static_cast<std::uint64_t>(std::llround(value * 1'000)); }

void record(const HistoryAnswer& answer, Decisions& decisions) {
  decisions.add({static_cast<std::uint64_t>(answer.first_unix_seconds), answer.step_seconds, answer.intervals});
  for (const HistoryLine& line : answer.lines) {
    decisions.add(line.key.card + " " + line.key.slice + " " + line.key.name);
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      if (!line.values[i]) continue;
      const HistorySample& value = *line.values[i];
      decisions.add({i, value.seconds, value.granted.count(), value.used ? value.used->count() + 1 : 0,
                     thousandths(value.cores_granted), thousandths(value.cores_delivered.value_or(-1) + 1),
                     value.temperature.value_or(1'000), value.power.value_or(1'000)});
    }
    const UsageHours hours = hours_of(line);
    decisions.add({thousandths(hours.card_hours_promised), thousandths(hours.card_hours_delivered),
                   thousandths(hours.gib_hours_held), thousandths(hours.gib_hours_used)});
  }
}

TEST(HistoryDecisions, AreThoseOnRecord) {
  Decisions decisions("history");
  Numbers numbers(1);
  for (int scene = 0; scene < 60; ++scene) {
    const std::int64_t now = 1'800'000'000 + static_cast<std::int64_t>(numbers.below(100'000));
    const HistoryQuery query = query_of(numbers);
    HistoryReader reader(query, now);
    const std::int64_t tier = (wants_fine(query) ? kHistoryFine : kHistoryCoarse).count();
    const auto frames = static_cast<std::int64_t>(numbers.below(60));
    for (std::int64_t i = frames; i >= 0; --i) reader.add(frame_at((now / tier - i) * tier, numbers));
    record(reader.take(), decisions);
  }
  EXPECT_EQ(decisions.sum(), 0xc9a27e1778d4b1c9ULL) << "other decisions; see base/testing/decisions.h";
}

}  // namespace
}  // namespace carve
