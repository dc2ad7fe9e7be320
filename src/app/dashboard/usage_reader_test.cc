#include "app/dashboard/usage_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace carve::dashboard {
namespace {

using ::testing::ElementsAre;

constexpr char kQuota[] = R"({"metadata": {"name": "cards", "namespace": "web"},
                              "status": {"hard": {"requests.nvidia.com/gpu": "2"}, "used": {}}})";

/// A node on which `name` held a whole card of 10 GiB for one hour, and used half of it.
HistoryAnswer an_hour_of(const std::string& name) {
  HistorySample sample;
  sample.seconds = 3600;
  sample.granted = Bytes::gib(10);
  sample.used = Bytes::gib(5);
  sample.cores_granted = 100;
  sample.cores_delivered = 50;
  HistoryAnswer answer;
  answer.intervals = 1;
  answer.lines.push_back({{"", "", name}, {sample}});
  return answer;
}

class UsageReaderTest : public ::testing::Test {
 protected:
  ManualClock clock_;
  int asked_ = 0;
  Result<std::vector<std::string>> quotas_ = std::vector<std::string>{kQuota};
  Error trouble_;
  UsageReader reader_{[this](const HistoryQuery& query, const auto& agents, const auto& take, const auto&) {
                        ++asked_;
                        EXPECT_EQ(query.by, HistoryQuery::By::kNamespaces);
                        agents(4);
                        for (const char* name : {"ml", "ml", ""}) take(an_hour_of(name));
                        take(fail(Code::kUnavailable, "no answer"));
                        return trouble_.what.empty() ? Result<void>() : Result<void>(tl::unexpected(trouble_));
                      },
                      [this] { return quotas_; }, clock_};
};

TEST_F(UsageReaderTest, AddsUpTheNodesAndCountsThoseThatAreSilent) {
  const auto usage = reader_.of(std::chrono::hours(24));
  ASSERT_TRUE(usage) << usage.error().what;
  EXPECT_EQ((*usage)->nodes, 4U);
  EXPECT_EQ((*usage)->silent, 1U);
  EXPECT_DOUBLE_EQ((*usage)->hours.at("ml").card_hours_promised, 2);
  EXPECT_DOUBLE_EQ((*usage)->hours.at("ml").card_hours_delivered, 1);
  EXPECT_DOUBLE_EQ((*usage)->hours.at("ml").gib_hours_held, 20);
  EXPECT_DOUBLE_EQ((*usage)->hours.at("ml").gib_hours_used, 10);
  ASSERT_EQ((*usage)->quotas.size(), 1U);
  EXPECT_EQ((*usage)->quotas[0].hard, "2");
  EXPECT_THAT(namespaces_in(**usage), ElementsAre("ml", "web"));
}

TEST_F(UsageReaderTest, HasTheQuotasOfCarvePlacementBesideTheResourceQuotas) {
  const codec::CardQuota own{"web", "carve-placement", "A100 cards", "2.5", "4"};
  UsageReader reader([](const auto&...) { return Result<void>(); }, [this] { return quotas_; }, clock_,
                     [&] { return std::vector{own}; });
  const auto usage = reader.of(std::chrono::hours(24));
  ASSERT_TRUE(usage) << usage.error().what;
  ASSERT_EQ((*usage)->quotas.size(), 2U);
  EXPECT_EQ((*usage)->quotas[1], own);
}

TEST_F(UsageReaderTest, AsksTheAgentsOnceAMinute) {
  ASSERT_TRUE(reader_.of(std::chrono::hours(24)));
  ASSERT_TRUE(reader_.of(std::chrono::hours(24)));
  EXPECT_EQ(asked_, 1);
  ASSERT_TRUE(reader_.of(std::chrono::hours(1)));
  EXPECT_EQ(asked_, 2) << "another time is another question";
  clock_.advance(UsageReader::kKept);
  ASSERT_TRUE(reader_.of(std::chrono::hours(24)));
  EXPECT_EQ(asked_, 3);
}

TEST_F(UsageReaderTest, AnErrorIsNotKept) {
  trouble_ = {Code::kNotFound, "no agent runs"};
  EXPECT_EQ(reader_.of(std::chrono::hours(24)).error().what, "no agent runs");
  trouble_ = {};
  EXPECT_TRUE(reader_.of(std::chrono::hours(24)));
  EXPECT_EQ(asked_, 2);
}

// Thousands of agents answer in minutes. A caller learns how far the read is and gets the sums later, without a second
// read.
TEST(SlowUsageReader, SaysHowManyHaveAnsweredAndAnswersWhenAllHave) {
  ManualClock clock;
  std::atomic<int> asked = 0;
  std::promise<void> go_on;
  auto waits = go_on.get_future().share();
  UsageReader reader(
      [&](const HistoryQuery&, const auto& agents, const auto& take, const auto&) -> Result<void> {
        ++asked;
        agents(3);
        take(an_hour_of("ml"));
        waits.wait();
        clock.advance(std::chrono::minutes(2));
        take(an_hour_of("ml"));
        take(an_hour_of("ml"));
        return {};
      },
      {}, clock);
  reader.set_patience(std::chrono::milliseconds(0));
  EXPECT_EQ(reader.of(std::chrono::hours(24)).error().code, Code::kUnavailable);
  reader.set_patience(std::chrono::milliseconds(20));
  std::string said;
  while (said.find("1 of 3") == std::string::npos) said = reader.of(std::chrono::hours(24)).error().what;
  EXPECT_EQ(said, "1 of 3 agents have answered so far; ask again");
  EXPECT_EQ(reader.of(std::chrono::hours(1)).error().what,
            "1 of 3 agents have answered so far, to another caller's question; ask again");
  go_on.set_value();
  reader.set_patience(std::chrono::seconds(20));
  const auto usage = reader.of(std::chrono::hours(24));
  ASSERT_TRUE(usage) << usage.error().what;
  EXPECT_EQ((*usage)->nodes, 3U);
  EXPECT_DOUBLE_EQ((*usage)->hours.at("ml").card_hours_promised, 3);
  clock.advance(std::chrono::minutes(19));  // ten times as long as the read took are 20
  ASSERT_TRUE(reader.of(std::chrono::hours(24)));
  EXPECT_EQ(asked, 1);
  clock.advance(std::chrono::minutes(1));
  ASSERT_TRUE(reader.of(std::chrono::hours(24)));
  EXPECT_EQ(asked, 2);
}

TEST(SlowUsageReader, EndsAReadThatIsInProgress) {
  ManualClock clock;
  std::atomic<bool> stopped = false;
  {
    UsageReader reader(
        [&](const HistoryQuery&, const auto& agents, const auto&, const std::stop_token& stop) -> Result<void> {
          agents(12'500);
          while (!stop.stop_requested()) std::this_thread::yield();
          stopped = true;
          return {};
        },
        {}, clock);
    reader.set_patience(std::chrono::milliseconds(0));
    EXPECT_FALSE(reader.of(std::chrono::hours(24)));
  }
  EXPECT_TRUE(stopped);
}

TEST_F(UsageReaderTest, SaysWhyThereAreNoQuotas) {
  quotas_ = fail(Code::kPermissionDenied, "resourcequotas is forbidden");
  const auto usage = reader_.of(std::chrono::hours(24));
  ASSERT_TRUE(usage);
  EXPECT_EQ((*usage)->quotas_error, "resourcequotas is forbidden");
  EXPECT_EQ((*usage)->hours.count("ml"), 1U);
}

TEST_F(UsageReaderTest, AViewerSeesOnlyItsNamespaces) {
  const auto usage = reader_.of(std::chrono::hours(24));
  ASSERT_TRUE(usage);
  Viewer viewer;
  viewer.namespaces = {"web"};
  const auto seen = seen_by(viewer, **usage);
  EXPECT_TRUE(seen.hours.empty()) << "neither of ml nor of slices outside Kubernetes";
  EXPECT_EQ(seen.quotas.size(), 1U);
  viewer.namespaces = {"ml"};
  EXPECT_EQ(seen_by(viewer, **usage).hours.size(), 1U);
  EXPECT_TRUE(seen_by(viewer, **usage).quotas.empty());
}

}  // namespace
}  // namespace carve::dashboard
