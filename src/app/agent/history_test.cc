#include "app/agent/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace carve::agent {
namespace {

using ::testing::Each;
using ::testing::SizeIs;
using ::testing::StartsWith;

class FakeStore final : public HistoryStore {
 public:
  Result<std::vector<std::string>> list() override {
    std::vector<std::string> names;
    for (const auto& [name, text] : files) names.push_back(name);
    return names;
  }
  Result<std::string> read(const std::string& name) override { return files.at(name); }
  Result<void> append(const std::string& name, const std::string& bytes) override {
    if (full) return fail(Code::kResourceExhausted, "no space left on device");
    files[name] += bytes;
    return {};
  }
  Result<void> remove(const std::string& name) override {
    files.erase(name);
    return {};
  }
  [[nodiscard]] std::size_t size() const {
    std::size_t all = 0;
    for (const auto& [name, text] : files) all += text.size();
    return all;
  }
  std::map<std::string, std::string> files;
  bool full = false;
};

class HistoryTest : public ::testing::Test {
 protected:
  HistoryTest() {
    CardView card;
    card.card.id = CardId("GPU-1");
    card.set_aside = Bytes::gib(4);
    card.guaranteed = CoreShare(30);
    card.used = Bytes::gib(3);
    card.temperature_c = 60;
    view_.cards.push_back(card);
    SliceView slice;
    slice.id = "pod-1";
    slice.kind = "pod";
    slice.name = "team/job/main";
    slice.cards.push_back({"GPU-1", Bytes::gib(4), Bytes::gib(2), {}, CoreShare(30), 99});
    view_.slices.push_back(slice);
  }
  Clock::WallTime at(std::int64_t seconds) { return Clock::WallTime(std::chrono::seconds(kStart + seconds)); }
  /// Records every 10 s until `seconds`; the slice gets `percent` of the card.
  void record_until(std::int64_t seconds, double percent) {
    for (; now_ < seconds; now_ += 10) {
      auto& held = view_.slices[0].cards[0];
      held.busy_ns += static_cast<std::uint64_t>(percent * 1e8);
      held.busy_at_ns += 10'000'000'000;
      history_.record(at(now_ + 10));
    }
  }
  HistoryAnswer ask(HistoryQuery::By by, std::chrono::seconds since, std::uint32_t points = 600) {
    HistoryQuery query;
    query.by = by;
    query.since = since;
    query.points = points;
    return *history_.ask(query, at(now_));
  }

  static constexpr std::int64_t kStart = 1'800'000'000;
  AgentView view_;
  FakeStore store_;
  Log log_{[this](std::string_view line) { logged_.emplace_back(line); }};
  std::vector<std::string> logged_;
  History history_{store_, [this] { return view_; }, log_};
  std::int64_t now_ = 0;
};

TEST_F(HistoryTest, RecordsCardsAndSlices) {
  record_until(60, 25);
  const auto cards = ask(HistoryQuery::By::kCards, std::chrono::seconds(60));
  ASSERT_THAT(cards.lines, SizeIs(1));
  EXPECT_EQ(cards.lines[0].values.back()->granted, Bytes::gib(4));
  EXPECT_EQ(cards.lines[0].values.back()->used, Bytes::gib(3));
  EXPECT_EQ(cards.lines[0].values.back()->temperature, 60U);
  const auto slices = ask(HistoryQuery::By::kSlices, std::chrono::seconds(60));
  ASSERT_THAT(slices.lines, SizeIs(1));
  EXPECT_EQ(slices.lines[0].key.name, "team/job/main");
  // The average of the whole interval from the counter, not the last second's figure (99).
  EXPECT_DOUBLE_EQ(*slices.lines[0].values.back()->cores_delivered, 25);
}

TEST_F(HistoryTest, TheCounterMayBeginAgain) {
  record_until(60, 25);
  view_.slices[0].cards[0].busy_ns = 5;
  view_.slices[0].cards[0].busy_at_ns += 10'000'000'000;
  history_.record(at(now_ += 10));
  const auto slices = ask(HistoryQuery::By::kSlices, std::chrono::seconds(60));
  EXPECT_DOUBLE_EQ(*slices.lines[0].values.back()->cores_delivered, 99);
}

TEST_F(HistoryTest, KeepsADayFineAndAMonthCoarse) {
  record_until(33 * 86400, 25);
  const auto day = ask(HistoryQuery::By::kCards, std::chrono::hours(24), 8640);
  EXPECT_EQ(day.step_seconds, 10U);
  std::size_t known = 0;
  for (const auto& value : day.lines[0].values) known += value ? 1 : 0;
  EXPECT_EQ(known, 8640U);
  const auto month = ask(HistoryQuery::By::kCards, std::chrono::hours(30 * 24), 8640);
  EXPECT_EQ(month.step_seconds, 300U);
  known = 0;
  for (const auto& value : month.lines[0].values) known += value ? 1 : 0;
  EXPECT_GE(known, 8639U);  // the current five minutes are not complete
  EXPECT_EQ(month.lines[0].values[100]->seconds, 300U);
  EXPECT_LE(store_.files.size(), 27U + 33U);  // older files are gone
}

TEST_F(HistoryTest, StaysWithinItsBytes) {
  for (int at = 0; at < 600; ++at) {
    auto slice = view_.slices[0];
    slice.id = "pod-" + std::to_string(at + 2);
    view_.slices.push_back(slice);
  }
  record_until(2 * 3600, 25);
  for (const auto& [name, text] : store_.files) EXPECT_LE(text.size(), 2UL << 20) << name;
  EXPECT_THAT(logged_, SizeIs(::testing::Ge(1U)));
  EXPECT_THAT(ask(HistoryQuery::By::kCards, std::chrono::seconds(60)).lines, SizeIs(1));  // cards are never left out
}

TEST_F(HistoryTest, ContinuesAfterARestartAndATornRecord) {
  record_until(600, 25);
  store_.files.begin()->second.append("torn");
  History next(
      store_, [this] { return view_; }, log_);
  next.record(at(now_ += 10));
  HistoryQuery query;
  const auto found = next.ask(query, at(now_));
  std::size_t known = 0;
  for (const auto& value : found->lines[0].values) known += value ? 1 : 0;
  EXPECT_EQ(known, 61U);
}

TEST_F(HistoryTest, AFullDiskStopsTheRecordingOnlyAndIsLoggedOnce) {
  record_until(100, 25);
  store_.full = true;
  record_until(200, 25);
  EXPECT_THAT(logged_, SizeIs(1));
  store_.full = false;
  record_until(300, 25);
  EXPECT_THAT(logged_, SizeIs(2));
  const auto found = ask(HistoryQuery::By::kCards, std::chrono::seconds(300));
  std::size_t known = 0;
  for (const auto& value : found.lines[0].values) known += value ? 1 : 0;
  EXPECT_EQ(known, 20U);
}

TEST_F(HistoryTest, KeepsOnlyTheProgramOfACommandLine) {
  view_.slices[0].kind = "run";
  view_.slices[0].name = "/opt/bin/train --token secret";
  record_until(10, 25);
  for (const auto& [name, text] : store_.files) EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_EQ(ask(HistoryQuery::By::kSlices, std::chrono::seconds(60)).lines[0].key.name, "train");
}

TEST_F(HistoryTest, OnlyItsOwnFilesAreDeleted) {
  store_.files["something"] = "else";
  store_.files["fine-x"] = "not a time";
  record_until(3 * 86400, 25);
  EXPECT_EQ(store_.files.count("something"), 1U);
  EXPECT_EQ(store_.files.count("fine-x"), 1U);
}

}  // namespace
}  // namespace carve::agent
