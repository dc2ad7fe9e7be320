#include <gtest/gtest.h>

#include <algorithm>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

// Tests the path of a card's health through the agent, from the driver's report to the readers.
namespace carve::agent {
namespace {

using fakes::ask;
using fakes::Machine;
using std::chrono::seconds;

class Memory final : public KnownCardsStore {
 public:
  Result<KnownCards> load() override {
    if (!stored) return fail(Code::kNotFound, "nothing yet");
    return *stored;
  }
  Result<void> save(const KnownCards& cards) override {
    if (full) return fail(Code::kResourceExhausted, "disk full");
    stored = cards;
    ++saves;
    return {};
  }
  std::optional<KnownCards> stored;
  bool full = false;
  int saves = 0;
};

class AgentHealth : public testing::Test {
 protected:
  void start(const std::string& boot = "boot-1") {
    AgentConfig config;
    config.slices_folder = "/run/carve/slices";
    config.arbiter_settles = seconds(0);
    config.last_process = seconds(0);
    config.boot_id = boot;
    agent = std::make_unique<Agent>(
        config, AgentWorld{machine.gpu, machine.pages, &machine.cgroups, "", machine.journal, machine.devices,
                           machine.processes, machine.clock, machine.log, {}, nullptr, &memory});
    ASSERT_TRUE(agent->restore());
  }
  /// Runs both loops for this number of seconds.
  void pass(int count) {
    for (int i = 0; i < count; ++i) {
      machine.clock.advance(seconds(1));
      agent->watch();
      agent->judge_cards(machine.gpu.wait_events({}));
    }
  }
  void xid(int card, std::uint32_t code) {
    agent->judge_cards({{CardId("GPU-" + std::to_string(card)), code}});
  }
  Health health(std::size_t card) { return agent->cards().cards.at(card).health; }
  Result<Prepared> prepare(int card, const std::string& uid) {
    Slice slice;
    slice.owner = {OwnerKind::kClaim, uid};
    slice.part = "gpu";
    slice.card = CardId("GPU-" + std::to_string(card));
    slice.memory = Bytes::gib(4);
    slice.compute = CoreShare(30);
    return agent->prepare({*record_of(0, {slice}), slice.part, "", "default/pod/main"});
  }
  bool noted(const std::string& kind) {
    const auto view = agent->view({});
    return std::any_of(view->events.begin(), view->events.end(), [&](const auto& e) { return e.kind == kind; });
  }

  Machine machine;
  Memory memory;
  std::unique_ptr<Agent> agent;
};

TEST_F(AgentHealth, AnXidRefusesNewSlicesAndKeepsRunningOnes) {
  start();
  ASSERT_TRUE(prepare(0, "running"));
  xid(0, 48);
  EXPECT_EQ(health(0).reason, "XID 48: double-bit ECC error; it needs a reset");
  EXPECT_TRUE(health(1).ok);
  const auto refused = prepare(0, "new");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  EXPECT_NE(refused.error().what.find("XID 48: double-bit ECC error"), std::string::npos) << refused.error().what;
  EXPECT_TRUE(prepare(0, "running")) << "repeated, as after a restart of the kubelet";
  EXPECT_TRUE(prepare(1, "new"));
  EXPECT_EQ(agent->held().size(), 2U);
  const auto view = agent->view({});
  EXPECT_TRUE(std::any_of(view->slices.begin(), view->slices.end(),
                          [](const auto& s) { return s.state.find("card unhealthy") != std::string::npos; }));
  EXPECT_NE(view->cards[0].remark.find("48 (1)"), std::string::npos);
  EXPECT_TRUE(noted("card-unhealthy"));
}

TEST_F(AgentHealth, AProgramsOwnErrorIsForwardedOnceAMinute) {
  start();
  xid(1, 31);
  xid(1, 31);
  xid(0, 48);  // the card's own error
  const auto taken = agent->take_program_errors();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].card, CardId("GPU-1"));
  EXPECT_EQ(taken[0].text.find("XID 31"), 0U) << taken[0].text;
  EXPECT_TRUE(agent->take_program_errors().empty());
  pass(61);
  xid(1, 31);
  EXPECT_EQ(agent->take_program_errors().size(), 1U);
  for (std::uint32_t code : {8U, 11U, 13U, 25U}) {
    for (int i = 0; i < 40; ++i) {
      pass(61);
      xid(1, code);
    }
  }
  EXPECT_EQ(agent->take_program_errors().size(), NodeSlices::kMostProgramErrors);
}

TEST_F(AgentHealth, AllocateRefusesWithTheSameTextAndTheCardHeals) {
  start();
  xid(0, 58);
  const auto grant = agent->allocate(fakes::root(), ask(4, 30), {});
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->cards.at(0).card.str(), "GPU-1");
  const auto both = agent->allocate(fakes::root(), ask(4, 30, 2), {});
  ASSERT_FALSE(both);
  EXPECT_NE(both.error().what.find("unhealthy: XID 58"), std::string::npos) << both.error().what;
  pass(61);
  EXPECT_TRUE(health(0).ok);
  EXPECT_TRUE(noted("card-healthy"));
  EXPECT_TRUE(agent->allocate(fakes::root(), ask(4, 30, 2), {}));
}

TEST_F(AgentHealth, AProgramsErrorIsOnlyReportedOnceAMinute) {
  start();
  for (int i = 0; i < 100; ++i) xid(0, 31);
  EXPECT_TRUE(health(0).ok);
  const auto view = agent->view({});
  EXPECT_EQ(std::count_if(view->events.begin(), view->events.end(), [](const auto& e) { return e.kind == "xid"; }), 1);
  EXPECT_NE(view->cards[0].remark.find("31 (100)"), std::string::npos);
}

TEST_F(AgentHealth, ALostCardKeepsItsPlaceInTheListAndReturns) {
  start();
  const auto before = agent->cards();
  machine.gpu.lost.insert("GPU-0");
  pass(1);
  EXPECT_EQ(health(0).reason, "lost: the driver reports it as lost");
  // A reopened library does not list it at all.
  const auto all = machine.gpu.listed;
  machine.gpu.listed.cards.erase(machine.gpu.listed.cards.begin());
  machine.gpu.listed.pci_bus_ids.erase(machine.gpu.listed.pci_bus_ids.begin());
  pass(35);
  EXPECT_GE(machine.gpu.renewed, 1);
  const auto lost = agent->cards();
  ASSERT_EQ(lost.cards.size(), 2U) << "totals are never reduced";
  EXPECT_EQ(lost.cards[0].id, before.cards[0].id);
  EXPECT_EQ(lost.cards[0].memory, before.cards[0].memory);
  EXPECT_EQ(lost.pci_bus_ids, before.pci_bus_ids);
  EXPECT_NE(lost.cards[0].health.reason.find("does not list it"), std::string::npos);
  EXPECT_TRUE(lost.cards[1].health.ok);
  machine.gpu.listed = all;
  machine.gpu.lost.clear();
  pass(4);
  EXPECT_EQ(agent->cards().cards, before.cards);
}

TEST_F(AgentHealth, AnAbsentDriverMakesAllCardsUnhealthyAfterThreeSeconds) {
  start();
  ASSERT_TRUE(prepare(0, "running"));
  machine.gpu.now_state = GpuState::kAbsent;
  pass(2);
  EXPECT_TRUE(health(0).ok) << "a restarted library is not a fault";
  pass(2);
  EXPECT_NE(health(0).reason.find("the driver is absent"), std::string::npos) << health(0).reason;
  EXPECT_FALSE(prepare(1, "new"));
  EXPECT_EQ(agent->held().size(), 1U);
  machine.gpu.now_state = GpuState::kOk;
  pass(1);
  EXPECT_TRUE(health(0).ok);
  EXPECT_TRUE(prepare(1, "new"));
}

/// Without a healthy slot the kubelet permanently rejects a pod. One late answer and the start of another worker must
/// not cause that, on a node of eight cards with a busy processor.
TEST_F(AgentHealth, AHangingDriverMakesAllCardsUnhealthyAfterTwentySeconds) {
  start();
  machine.gpu.now_state = GpuState::kHanging;
  pass(19);
  EXPECT_TRUE(health(0).ok) << health(0).reason;
  EXPECT_TRUE(agent->troubles().gpu_passing) << "no condition of the Node either";
  pass(2);
  EXPECT_FALSE(agent->troubles().gpu_passing);
  EXPECT_NE(health(0).reason.find("the driver is hanging"), std::string::npos) << health(0).reason;
  machine.gpu.now_state = GpuState::kOk;
  pass(1);
  EXPECT_TRUE(health(0).ok);
}

TEST_F(AgentHealth, WithoutADriverAtTheStartTheCardsAreRemembered) {
  start();
  agent->judge_cards({});
  const auto before = agent->cards();
  agent.reset();
  machine.gpu.now_state = GpuState::kAbsent;
  start();
  auto now = agent->cards();
  ASSERT_EQ(now.cards.size(), 2U);
  EXPECT_EQ(now.driver_version, before.driver_version);
  EXPECT_EQ(now.pci_bus_ids, before.pci_bus_ids);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(now.cards[i].id, before.cards[i].id);
    EXPECT_EQ(now.cards[i].memory, before.cards[i].memory);
    EXPECT_FALSE(now.cards[i].health.ok);
  }
  EXPECT_FALSE(prepare(0, "new"));
  machine.gpu.now_state = GpuState::kOk;
  pass(1);
  EXPECT_EQ(agent->cards().cards, before.cards);
}

TEST_F(AgentHealth, ANeededResetSurvivesARestartOfTheAgentButNotAReboot) {
  start();
  xid(0, 64);
  ASSERT_TRUE(memory.stored->cards[0].held);
  agent.reset();
  start();
  EXPECT_NE(health(0).reason.find("XID 64"), std::string::npos) << "the driver never recommends anything";
  pass(100);
  EXPECT_FALSE(health(0).ok);
  agent.reset();
  start("boot-2");
  EXPECT_TRUE(health(0).ok);
  agent->judge_cards({});
  EXPECT_FALSE(memory.stored->cards[0].held);
}

TEST_F(AgentHealth, AResetReportedByTheDriverHeals) {
  machine.gpu.recovery["GPU-0"] = 0;
  start();
  xid(0, 48);
  machine.gpu.recovery["GPU-0"] = 1;
  pass(100);
  EXPECT_FALSE(health(0).ok);
  machine.gpu.recovery["GPU-0"] = 0;
  pass(9);
  EXPECT_TRUE(health(0).ok);
  EXPECT_FALSE(memory.stored->cards[0].held);
}

TEST_F(AgentHealth, CardsOfAnEarlierBootAreRemovedWhenMissingAndUnused) {
  start();
  agent->judge_cards({});
  agent.reset();
  machine.gpu.listed.cards.pop_back();
  machine.gpu.listed.pci_bus_ids.pop_back();
  start("boot-2");
  EXPECT_EQ(agent->cards().cards.size(), 1U) << "removed while the machine was off";
  agent.reset();
  // In the same boot the card would be lost, unless all cards differ: then the disk is from another machine.
  machine.gpu.listed.cards[0].id = CardId("GPU-other");
  start("boot-2");
  ASSERT_EQ(agent->cards().cards.size(), 1U);
  EXPECT_EQ(agent->cards().cards[0].id.str(), "GPU-other");
}

TEST_F(AgentHealth, AFullDiskLosesOnlyTheSavedState) {
  memory.full = true;
  start();
  xid(0, 48);
  EXPECT_FALSE(health(0).ok);
  memory.full = false;
  pass(6);
  EXPECT_TRUE(memory.stored && memory.stored->cards[0].held);
  const int saves = memory.saves;
  pass(20);
  EXPECT_EQ(memory.saves, saves) << "an unchanged state is written once";
}

}  // namespace
}  // namespace carve::agent
