#include "app/control/leader/leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "port/testing/fake_kube_api.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using carve::testing::FakeKubeApi;

constexpr auto kLease = "/apis/coordination.k8s.io/v1/namespaces/carve-system/leases/carve-control";

class LeaderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Leader> replica(const std::string& identity) {
    return std::make_unique<Leader>(
        Leader::World{api, clock, log, [this] { return known; }, [this](std::uint64_t) { return caught_up; }},
        Leader::Names{.identity = identity});
  }
  bool leads(const Leader& one) const { return one.leads_until(clock.now()); }
  /// Both replicas step until nothing is left to do at this moment.
  static void settle(Leader& a, Leader& b) {
    for (int i = 0; i < 4; ++i) {
      a.step();
      b.step();
    }
  }
  FakeKubeApi api;
  ManualClock clock;
  std::string logged;
  Log log{[this](std::string_view line) { logged += line; }};
  std::uint64_t known = 0;
  Result<bool> caught_up = true;
  std::unique_ptr<Leader> a = replica("a");
  std::unique_ptr<Leader> b = replica("b");
};

TEST_F(LeaderTest, SecondReplicaWaitsForTheLeaseToExpire) {
  settle(*a, *b);
  EXPECT_TRUE(leads(*a));
  EXPECT_FALSE(leads(*b));
  EXPECT_EQ(a->epoch(), 1U);
  EXPECT_EQ(b->epoch(), 0U);
  EXPECT_EQ(b->holder(), "a");
  for (int i = 0; i < 30; ++i) {  // a is stopped; b reads each second
    clock.advance(1s);
    b->step();
    b->step();
    ASSERT_FALSE(leads(*a) && leads(*b));
  }
  EXPECT_TRUE(leads(*b));
  EXPECT_EQ(b->epoch(), 2U);
  EXPECT_FALSE(leads(*a)) << "it detects this before its next write, without a request";
  a->step();
  a->step();
  EXPECT_EQ(a->epoch(), 0U);
  EXPECT_EQ(a->holder(), "b");
}

TEST_F(LeaderTest, PublishesOnceWhenItBeginsToLead) {
  ChangeQueue queue({&a->changes()});
  caught_up = false;
  a->step();
  a->step();
  EXPECT_TRUE(queue.take().empty()) << "it holds the Lease, and does not lead yet";
  caught_up = true;
  a->step();
  EXPECT_TRUE(leads(*a));
  EXPECT_TRUE(queue.take().all);
  for (int i = 0; i < 10; ++i) {
    clock.advance(1s);
    a->step();
  }
  EXPECT_TRUE(leads(*a));
  EXPECT_TRUE(queue.take().empty());
}

TEST_F(LeaderTest, ConfirmsNoDeadlineBeyondTheLease) {
  settle(*a, *b);
  EXPECT_TRUE(a->leads_until(clock.now() + 9s));
  EXPECT_FALSE(a->leads_until(clock.now() + 10s)) << "one second is kept as margin";
  clock.advance(5s);
  EXPECT_FALSE(a->leads_until(clock.now() + 5s));
  a->step();
  EXPECT_TRUE(a->leads_until(clock.now() + 5s)) << "renewed";
}

TEST_F(LeaderTest, CountsARenewalWithALostAnswerOnlyOnceItIsRead) {
  settle(*a, *b);
  clock.advance(5s);
  api.fail_next({.verb = "replace", .path = "leases", .code = Code::kDeadlineExceeded, .done = true});
  api.fail_next({.verb = "get", .path = "leases", .code = Code::kDeadlineExceeded});
  a->step();
  EXPECT_TRUE(a->leads_until(clock.now() + 4s));
  EXPECT_FALSE(a->leads_until(clock.now() + 5s)) << "the old time counts";
  clock.advance(1s);
  api.fail_next({.verb = "replace", .path = "leases", .code = Code::kFailedPrecondition});
  a->step();  // this write is refused, and the read after it shows the one before
  EXPECT_TRUE(a->leads_until(clock.now() + 4s)) << "the older one was sent a second ago";
  EXPECT_FALSE(a->leads_until(clock.now() + 9s));
  a->step();
  EXPECT_TRUE(a->leads_until(clock.now() + 5s));
  EXPECT_EQ(a->epoch(), 1U) << "it is still the same term";
}

TEST_F(LeaderTest, LeadsAfterTakingTheLeaseWithALostAnswerOnceItIsRead) {
  a->step();  // reads that there is no Lease
  api.fail_next({.verb = "create", .path = "leases", .code = Code::kDeadlineExceeded, .done = true});
  api.fail_next({.verb = "get", .path = "leases", .code = Code::kDeadlineExceeded});
  a->step();
  EXPECT_FALSE(leads(*a)) << "the outcome of its write is unknown";
  clock.advance(3s);
  a->step();
  EXPECT_TRUE(a->leads_until(clock.now() + 6s));
  EXPECT_FALSE(a->leads_until(clock.now() + 7s)) << "it holds the Lease since before the write";
  EXPECT_EQ(a->epoch(), 1U);
  EXPECT_EQ(a->terms(), 1U);
}

TEST_F(LeaderTest, KeepsLeadingWhileTheServerAnswersNoWriteInTime) {
  settle(*a, *b);
  for (int i = 0; i < 30; ++i) {  // every write takes effect and has no answer
    api.fail_next({.verb = "replace", .path = "leases", .code = Code::kDeadlineExceeded, .done = true});
    clock.advance(2s);
    a->step();
    b->step();
    ASSERT_TRUE(a->leads_until(clock.now() + 4s)) << "after " << 2 * i << " s";
    ASSERT_FALSE(leads(*b));
  }
  EXPECT_EQ(a->epoch(), 1U);
}

TEST_F(LeaderTest, ARepeatedWallTimeDoesNotProlongALease) {
  LeaderElection election("a", {});
  codec::Lease lease;
  lease.holder = "a";
  lease.version = "1";
  lease.renewed = "2026-01-01T00:00:00.000000Z";
  lease.transitions = 1;
  const auto begin = clock.now();
  election.sending(lease, begin);
  election.sending(lease, begin + 8s);  // the wall clock was set back by eight seconds
  election.seen(lease, begin + 8s);
  EXPECT_TRUE(election.holds_until(begin + 9s, begin + 8s));
  EXPECT_FALSE(election.holds_until(begin + 10s, begin + 8s)) << "the first write may be the one that was read";
}

TEST_F(LeaderTest, LeadsOnlyAfterCatchingUp) {
  caught_up = false;
  settle(*a, *b);
  EXPECT_EQ(a->holder(), "a");
  EXPECT_FALSE(leads(*a));
  EXPECT_EQ(a->epoch(), 0U);
  caught_up = fail(Code::kPermissionDenied, "pods is forbidden");
  a->step();
  a->step();
  EXPECT_FALSE(leads(*a));
  EXPECT_THAT(logged, HasSubstr("pods is forbidden"));
  EXPECT_EQ(logged.find("pods is forbidden"), logged.rfind("pods is forbidden")) << "logged once";
  caught_up = true;
  a->step();
  EXPECT_TRUE(leads(*a));
}

TEST_F(LeaderTest, ReleasesTheLeaseAfterTheLastConfirmedDeadline) {
  settle(*a, *b);
  ASSERT_TRUE(a->leads_until(clock.now() + 3s));
  std::jthread stopping([&] { a->give_back(); });
  clock.wait_for_sleepers(1);
  EXPECT_FALSE(leads(*a)) << "no new write begins";
  settle(*b, *b);
  EXPECT_FALSE(leads(*b)) << "a write before the confirmed deadline may still be in progress";
  clock.advance(3s);
  stopping.join();
  settle(*b, *b);
  EXPECT_TRUE(leads(*b));
  EXPECT_EQ(b->epoch(), 2U);
}

TEST_F(LeaderTest, ContinuesTheEpochsAfterADeletedLease) {
  known = 41;
  settle(*a, *b);
  EXPECT_EQ(a->epoch(), 42U);
  api.erase(kLease);
  settle(*b, *b);
  EXPECT_FALSE(leads(*b)) << "the holder does not know yet";
  for (int i = 0; i < 25; ++i) {
    clock.advance(500ms);
    settle(*a, *b);
    ASSERT_FALSE(leads(*a) && leads(*b));
  }
  EXPECT_TRUE(leads(*a) || leads(*b));
  EXPECT_EQ(std::max(a->epoch(), b->epoch()), 43U);
  ASSERT_TRUE(api.object(kLease));
}

TEST_F(LeaderTest, StopsLeadingInTimeWithoutTheServer) {
  settle(*a, *b);
  api.set_away(true);
  for (int i = 0; i < 20; ++i) {
    clock.advance(500ms);
    settle(*a, *b);
  }
  EXPECT_FALSE(leads(*a));
  api.set_away(false);
  settle(*a, *b);
  EXPECT_NE(leads(*a), leads(*b)) << "exactly one leads";
}

/// Regardless of lost answers, stopped replicas and delays: never two leaders, and no epoch twice.
TEST_F(LeaderTest, NeverHasTwoLeadersOrARepeatedEpoch) {
  std::size_t terms = 0;
  const unsigned seeds = std::getenv("CARVE_SOAK") != nullptr ? 200 : 80;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    FakeKubeApi server;
    ManualClock time;
    std::mt19937 random(seed);
    const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    std::vector<std::unique_ptr<Leader>> all;
    for (const char* name : {"a", "b", "c"})
      all.push_back(
          std::make_unique<Leader>(Leader::World{server, time, log, {}, {}}, Leader::Names{.identity = name}));
    std::map<std::uint64_t, std::size_t> leader_of_epoch;
    std::vector<int> stopped(all.size(), 0);
    // A deadline that a replica was given before it was stopped stays valid meanwhile.
    std::vector<Clock::Time> promised(all.size());
    for (int step = 0; step < 400; ++step) {
      if (pick(12) == 0) stopped[pick(3)] = static_cast<int>(pick(60));
      if (pick(8) == 0)
        server.fail_next({.verb = pick(2) == 0 ? "replace" : "get",
                          .path = "leases",
                          .code = pick(2) == 0 ? Code::kDeadlineExceeded : Code::kUnavailable,
                          .done = pick(2) == 0,
                          .times = 1 + static_cast<int>(pick(3))});
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (stopped[i] > 0) {
          --stopped[i];
          continue;
        }
        all[i]->step();
        const auto until = time.now() + std::chrono::milliseconds(pick(4000));
        if (!all[i]->leads_until(until)) continue;
        promised[i] = std::max(promised[i], until);
        const auto [at, fresh] = leader_of_epoch.emplace(all[i]->epoch(), i);
        ASSERT_EQ(at->second, i) << "seed " << seed << ": epoch " << all[i]->epoch() << " twice";
        for (std::size_t other = 0; other < all.size(); ++other)
          ASSERT_TRUE(other == i || promised[other] < time.now()) << "seed " << seed << ": two lead";
      }
      time.advance(std::chrono::milliseconds(100 + pick(900)));
    }
    terms += leader_of_epoch.size();
  }
  EXPECT_GT(terms, 240U) << "the test covered too few terms";
}

}  // namespace
}  // namespace carve::control
