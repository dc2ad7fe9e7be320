#include <set>

#include "app/agent/testing/machine.h"
#include "tests/integration/arbiter/death_points.h"
#include "tests/integration/arbiter/fixture.h"

// The arbiter dies at each step that creates or removes a slice's files, with and without its agent. When both are
// back, a slice in the journal has all of its files, and nothing is left of any other slice.
namespace carve::arbiter_test {
namespace {

const Owner kClaim{OwnerKind::kClaim, "claim-1"};

PrepareRequest on_both_cards() {
  std::vector<Slice> slices;
  for (const char* card : {"GPU-0", "GPU-1"}) {
    Slice slice;
    slice.owner = kClaim;
    slice.part = "gpu";
    slice.card = CardId(card);
    slice.memory = Bytes::gib(4);
    slice.compute = CoreShare(30);
    slices.push_back(slice);
  }
  return {*record_of(0, slices), "gpu", "", "default/pod/gpu"};
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

/// The real agent and its real client of the real arbiter. The rest of the machine is in memory and survives both.
class RemainsTest : public ArbiterTest {
 protected:
  void TearDown() override {
    agent_over_ = nullptr;
    ArbiterTest::TearDown();
  }
  void start_agent() {
    agent_.emplace(runtime_ + "/arbiter/control");
    agent::AgentConfig config;
    config.slices_folder = runtime_ + "/slices";
    config.arbiter_settles = config.last_process = std::chrono::seconds(0);
    config.gives_cards = false;
    agent_over_ = std::make_unique<agent::Agent>(
        config, agent::AgentWorld{machine_.gpu, *agent_, &machine_.cgroups, "", machine_.journal, machine_.devices,
                           machine_.processes, machine_.clock, machine_.log, {}, &machine_.containers});
    ASSERT_TRUE(agent_over_->restore());
  }
  /// Starts an arbiter again, and another agent if the previous one died too.
  void go_on(bool agent_died) {
    arbiter_->kill();
    arbiter_->start();
    if (agent_died) start_agent();
    machine_.clock.advance(std::chrono::seconds(2));
    ASSERT_TRUE(eventually([&] {
      agent_over_->watch();
      return agent_over_->troubles().arbiter.empty();
    }));
    agent_over_->watch();
  }
  /// The arbiter dies before the n-th step of `what`; 0: it survives. Returns the number of steps.
  int dying_at(int n, const std::function<void()>& what) {
    death_points::arm(arbiter_->pid(), n);
    what();
    const int passed = death_points::disarm();
    where_ = "killed before step " + std::to_string(n) + ", " + death_points::last();
    return passed;
  }
  void expect_nothing(const std::string& when) {
    EXPECT_EQ(names_in(runtime_ + "/slices"), std::set<std::string>{}) << when;
    EXPECT_EQ(names_in(runtime_ + "/arbiter/pages"), std::set<std::string>{}) << when;
    EXPECT_EQ(names_in(runtime_ + "/arbiter/lifelines"), std::set<std::string>{}) << when;
    const auto listed = agent_->list();
    EXPECT_TRUE(listed && listed->empty()) << when;
  }
  void expect_all(const Prepared& prepared, const std::string& when) {
    const std::string id = prepared.device.substr(prepared.device.find('=') + 1);
    EXPECT_EQ(names_in(runtime_ + "/slices"), std::set<std::string>{id}) << when;
    EXPECT_EQ(names_in(runtime_ + "/arbiter/pages"), (std::set<std::string>{id + "-0", id + "-1"})) << when;
    const auto slice = listed(id);
    EXPECT_TRUE(slice && !slice->remains) << when;
    EXPECT_EQ(connect(id, abi::LibraryKind::kNvml).welcome.status, abi::WelcomeStatus::kOk) << when;
  }

  agent::fakes::Machine machine_;
  std::unique_ptr<agent::Agent> agent_over_;
  std::string where_;  // the last death
};

TEST_F(RemainsTest, NothingIsLeftOfASliceWhoseCreationWasInterrupted) {
  start_agent();
  const int steps = dying_at(0, [&] { ASSERT_TRUE(agent_over_->prepare(on_both_cards())); });
  EXPECT_GE(steps, 10) << "two cards' pages, folder, socket, answer";
  ASSERT_TRUE(agent_over_->unprepare(kClaim));
  expect_nothing("before");
  for (int point = 1; point <= steps; ++point) {
    for (const bool agent_died : {false, true}) {
      Result<Prepared> prepared;
      EXPECT_EQ(dying_at(point, [&] { prepared = agent_over_->prepare(on_both_cards()); }), point);
      EXPECT_FALSE(prepared) << where_;
      go_on(agent_died);
      expect_nothing(where_ + (agent_died ? ", with its agent" : ""));
      // The same again, without a death.
      const auto again = agent_over_->prepare(on_both_cards());
      ASSERT_TRUE(again) << where_ << ": " << again.error().what;
      expect_all(*again, where_);
      ASSERT_TRUE(agent_over_->unprepare(kClaim)) << where_;
      expect_nothing(where_ + ", at the end");
      if (HasFailure()) return;
    }
  }
}

TEST_F(RemainsTest, NothingIsLeftOfASliceWhoseRemovalWasInterrupted) {
  start_agent();
  ASSERT_TRUE(agent_over_->prepare(on_both_cards()));
  const int steps = dying_at(0, [&] { ASSERT_TRUE(agent_over_->unprepare(kClaim)); });
  EXPECT_GE(steps, 5) << "socket, folder, two pages, answer";
  expect_nothing("before");
  for (int point = 1; point <= steps; ++point) {
    for (const bool agent_died : {false, true}) {
      ASSERT_TRUE(agent_over_->prepare(on_both_cards()));
      EXPECT_EQ(dying_at(point, [&] { EXPECT_TRUE(agent_over_->unprepare(kClaim)); }), point);
      go_on(agent_died);
      expect_nothing(where_ + (agent_died ? ", with its agent" : ""));
      if (HasFailure()) return;
    }
  }
}

TEST_F(RemainsTest, NothingIsLeftOfASliceThatEndedWithoutAnArbiter) {
  for (const bool agent_died : {false, true}) {
    start_agent();
    ASSERT_TRUE(agent_over_->prepare(on_both_cards()));
    arbiter_->kill();
    ASSERT_TRUE(agent_over_->unprepare(kClaim));
    go_on(agent_died);
    expect_nothing(agent_died ? "both died" : "the arbiter died");
  }
}

TEST_F(RemainsTest, ARunningSliceIsRestoredFromItsRemains) {
  start_agent();
  const auto prepared = agent_over_->prepare(on_both_cards());
  ASSERT_TRUE(prepared);
  arbiter_->kill();
  agent_.reset();  // and with it the descriptors that it kept for the next arbiter
  go_on(true);
  expect_all(*prepared, "both died, and the slice had no process");
  ASSERT_TRUE(agent_over_->unprepare(kClaim));
  expect_nothing("at the end");
}

TEST_F(RemainsTest, AProcessThatMapsARemovedPageIsRevokedAtEveryDeathPoint) {
  put(order("a", 50, ShareClass::kBurst, 2));
  const int steps = dying_at(0, [&] { ASSERT_TRUE(agent_->drop("a")); });
  ASSERT_GE(steps, 3) << "two pages, answer";
  for (int point = 1; point <= steps; ++point) {
    const std::string id = "b" + std::to_string(point);
    put(order(id, 50, ShareClass::kBurst, 2));
    const RawClient tenant = connect(id);
    EXPECT_EQ(dying_at(point, [&] { EXPECT_FALSE(agent_->drop(id)); }), point);
    arbiter_->kill();
    arbiter_->start();
    ASSERT_TRUE(eventually([&] { return agent_->list().has_value(); })) << where_;
    ASSERT_TRUE(agent_->drop(id)) << where_;
    expect_nothing(where_);
    ASSERT_EQ(tenant.cards.size(), 2U) << where_;
    for (const auto& card : tenant.cards) EXPECT_EQ(card.grant->revoked.load_relaxed(), 1U) << where_;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace carve::arbiter_test
