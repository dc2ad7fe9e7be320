#include "app/agent/agent.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "app/agent/testing/machine.h"

namespace carve::agent {
namespace {

using fakes::ask;
using fakes::Machine;
using fakes::root;

AgentView view_of(Agent& agent) { return agent.view({}).value_or(AgentView{}); }

std::set<std::string> ids_in(Agent& agent) {
  std::set<std::string> ids;
  const AgentView view = view_of(agent);
  for (const auto& slice : view.slices) ids.insert(slice.id);
  return ids;
}

TEST(Agent, GivesJoinsAndEndsASlice) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent);
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(grant) << grant.error().what;
  EXPECT_EQ(grant->cards.size(), 1U);
  EXPECT_EQ(grant->hidden_minors.size(), 1U);
  EXPECT_EQ(grant->slice_folder, "/run/carve/slices/" + grant->slice);
  EXPECT_EQ(machine.pages.orders.count(grant->slice), 1U);
  agent->reap();
  EXPECT_EQ(ids_in(*agent).size(), 1U);  // no process has joined yet
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  agent->reap();
  EXPECT_EQ(agent->view({})->slices[0].state, "running");
  machine.cgroups.groups[grant->slice].clear();
  agent->reap();
  EXPECT_TRUE(ids_in(*agent).empty());
  EXPECT_TRUE(machine.pages.orders.empty());
  EXPECT_TRUE(machine.cgroups.groups.empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_TRUE(machine.journal.state().notes.empty());
}

/// A child that kept the connection of an ended process sends a join; the PID belongs to a daemon now.
TEST(Agent, AJoinOfAnEndedCallerMovesNoProcess) {
  Machine machine;
  auto agent = machine.start();
  const auto id = agent->allocate(root(), ask(4, 30), {})->slice;
  Caller ended = root(77);
  ended.gone = [] { return true; };
  EXPECT_EQ(agent->join(ended, id).error().code, Code::kNotFound);
  EXPECT_TRUE(machine.cgroups.groups[id].empty());
  ended.gone = [asked = 0]() mutable { return ++asked > 1; };  // it ends during the move
  EXPECT_EQ(agent->join(ended, id).error().code, Code::kNotFound);
  EXPECT_TRUE(machine.cgroups.groups[id].empty());
  agent->reap();
  EXPECT_EQ(agent->view({})->slices.at(0).state, "starting");
}

/// Every process that reaches the socket of a slice without a cgroup belongs to the slice.
TEST(Agent, AnEnginesSliceIsGatedForItsUser) {
  Machine machine;
  auto agent = machine.start();
  AllocateRequest device = ask(4, 30);
  device.keep = true;
  const auto grant = agent->allocate(root(), device, {});
  ASSERT_TRUE(grant) << grant.error().what;
  const std::string outer = "/run/carve/slices/" + grant->slice;
  EXPECT_EQ(grant->slice_folder, outer + "/" + grant->slice);
  EXPECT_TRUE(machine.pages.orders[grant->slice].in_private_folder);
  EXPECT_EQ(machine.devices.last.private_folder, outer);
  EXPECT_EQ(machine.devices.last.slice_folder, grant->slice_folder);
  EXPECT_EQ(machine.devices.last.user, agent->view({})->slices.at(0).uid);
  const auto run = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(run) << run.error().what;
  EXPECT_FALSE(machine.pages.orders[run->slice].in_private_folder);
}

/// Its container has mounted the folder, and its arbiter holds the socket in it.
TEST(Agent, AnEnginesSliceFromBeforeGatesKeepsItsFolder) {
  Machine machine;
  auto agent = machine.start();
  AllocateRequest device = ask(4, 30);
  device.keep = true;
  const auto id = agent->allocate(root(), device, {})->slice;
  SliceNote old;
  old.keep = true;
  old.name = "old";
  ASSERT_TRUE(machine.journal.append({PutNote{id, old}}));
  agent.reset();
  agent = machine.start();
  EXPECT_EQ(machine.devices.last.private_folder, "");
  EXPECT_EQ(machine.devices.last.slice_folder, "/run/carve/slices/" + id);
}

TEST(Agent, ASliceThatNoProcessJoinsEnds) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->allocate(root(), ask(4, 30), {}));
  machine.clock.advance(std::chrono::seconds(31));
  agent->reap();
  EXPECT_TRUE(ids_in(*agent).empty());
}

/// `carve run` was killed between the grant and its join.
TEST(Agent, ASliceEndsImmediatelyWhenItsCallerIsGone) {
  Machine machine;
  auto agent = machine.start();
  bool killed = false;
  Caller asker = root(77);
  asker.gone = [&] { return killed; };
  const auto abandoned = agent->allocate(asker, ask(4, 30), {})->slice;
  const auto running = agent->allocate(asker, ask(4, 30), {})->slice;
  AllocateRequest device = ask(4, 30);
  device.keep = true;
  const auto kept = agent->allocate(asker, device, {})->slice;
  ASSERT_TRUE(agent->join(asker, running));
  agent->reap();
  EXPECT_EQ(ids_in(*agent), (std::set<std::string>{abandoned, running, kept})) << "it may still join";
  killed = true;  // its children continue in the slice that it joined
  agent->reap();
  EXPECT_EQ(ids_in(*agent), (std::set<std::string>{running, kept}));
  EXPECT_EQ(machine.cgroups.groups.count(abandoned), 0U);
  EXPECT_EQ(machine.journal.state().records.size(), 2U);
}

/// A command line may contain a password.
TEST(Agent, OtherUsersSeeTheProgramsNameAndNotItsCommandLine) {
  Machine machine;
  AccessRule all;
  all.uid = 1000;
  auto agent = machine.start({all});
  AllocateRequest request = ask(4, 30);
  request.name = "/opt/bin/train --token secret";
  const Caller user = {77, 1000, {1000}};
  ASSERT_TRUE(agent->allocate(user, request, {}));
  AllocateRequest device = ask(4, 30);
  device.keep = true;
  device.name = "device";
  ASSERT_TRUE(agent->allocate(root(), device, {}));
  const auto names = [&](const Caller& who) {
    std::set<std::string> seen;
    const auto view = agent->view(who);
    for (const auto& slice : view->slices) seen.insert(slice.name);
    return seen;
  };
  const std::set<std::string> whole = {"/opt/bin/train --token secret", "device"};
  EXPECT_EQ(names(user), whole);
  EXPECT_EQ(names(root()), whole);
  EXPECT_EQ(names({78, 1001, {1000}}), (std::set<std::string>{"train", "device"}));
}

TEST(Agent, AfterARestartAProcessStillHasTimeToJoin) {
  Machine machine;
  auto agent = machine.start();
  const auto waits = agent->allocate(root(), ask(4, 30), {})->slice;
  const auto ended = agent->allocate(root(), ask(4, 30), {})->slice;
  ASSERT_TRUE(agent->join(root(77), ended));
  machine.cgroups.groups[ended].clear();
  agent.reset();
  agent = machine.start();
  agent->reap();
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{waits});
  EXPECT_TRUE(agent->join(root(78), waits));
  const auto unjoined = agent->allocate(root(), ask(4, 30), {})->slice;
  agent.reset();
  agent = machine.start();
  machine.clock.advance(std::chrono::seconds(6));
  agent->reap();
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{waits}) << "no process joined " << unjoined;
}

/// No descriptor or no memory is left: the processes continue and keep what they hold.
TEST(Agent, AnUnreadableCgroupIsNotTreatedAsEmpty) {
  Machine machine;
  auto agent = machine.start();
  const auto id = agent->allocate(root(), ask(4, 30), {})->slice;
  ASSERT_TRUE(agent->join(root(77), id));
  machine.cgroups.unreadable = Error{Code::kResourceExhausted, "too many open files"};
  machine.clock.advance(std::chrono::seconds(31));
  agent->reap();
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{id});
  EXPECT_EQ(machine.pages.orders.count(id), 1U);
  const auto released = agent->release(root(), id, true);
  ASSERT_FALSE(released);
  EXPECT_NE(released.error().what.find("too many open files"), std::string::npos);
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{id});
  machine.cgroups.unreadable = Error{Code::kNotFound, "no cgroup"};
  agent->reap();
  EXPECT_TRUE(ids_in(*agent).empty());
}

TEST(Agent, RefusesWithTheNumbersAndChangesNothing) {
  Machine machine;
  auto agent = machine.start();
  const int before = machine.fate.step;
  const auto refused = agent->allocate(root(), ask(200, 30), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_NE(refused.error().what.find("140 GiB"), std::string::npos) << refused.error().what;
  EXPECT_EQ(machine.fate.step, before);
}

TEST(Agent, OrdinaryUsersNeedARow) {
  Machine machine;
  AccessRule rule;
  rule.gid = 500;
  rule.max_memory = Bytes::gib(8);
  rule.max_slices = 1;
  rule.text = "group:carve";
  auto agent = machine.start({rule});
  const Caller stranger{10, 1000, {1000}};
  const Caller member{10, 1001, {1001, 500}};
  EXPECT_EQ(agent->allocate(stranger, ask(4, 30), {}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(agent->allocate(member, ask(9, 30), {}).error().code, Code::kPermissionDenied);
  const auto grant = agent->allocate(member, ask(4, 30), {});
  ASSERT_TRUE(grant) << grant.error().what;
  EXPECT_EQ(agent->allocate(member, ask(4, 30), {}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(agent->join(stranger, grant->slice).error().code, Code::kPermissionDenied);
  EXPECT_EQ(agent->release(stranger, grant->slice, true).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(agent->join(member, grant->slice));
}

TEST(Agent, WaitsUntilItFits) {
  Machine machine;
  auto agent = machine.start();
  auto first = agent->allocate(root(), ask(140, 100, 2), {});
  ASSERT_TRUE(first) << first.error().what;
  auto request = ask(4, 30);
  EXPECT_EQ(agent->allocate(root(), request, {}).error().code, Code::kResourceExhausted);
  request.wait = std::chrono::hours(1);
  Result<Grant> second;
  std::thread waiter([&] { second = agent->allocate(root(), request, {}); });
  while (agent->view({})->waiting == 0) std::this_thread::yield();
  ASSERT_TRUE(agent->release(root(), first->slice, false));
  waiter.join();
  EXPECT_TRUE(second) << second.error().what;
  request.wait = std::chrono::hours(1);
  auto all = ask(140, 100, 2);
  all.wait = std::chrono::hours(1);
  EXPECT_EQ(agent->allocate(root(), all, [] { return true; }).error().code, Code::kCancelled);
  all.wait = std::chrono::milliseconds(0);
  EXPECT_EQ(agent->allocate(root(), all, {}).error().code, Code::kDeadlineExceeded);
}

TEST(Agent, FailedLinksAreRetried) {
  Machine machine;
  bool full = true;
  int made = 0;
  int tried = 0;
  machine.prepare_links = [&](const std::string& version) -> Result<void> {
    ++tried;
    EXPECT_EQ(version, machine.gpu.listed.driver_version);
    if (full) return fail(Code::kResourceExhausted, "no space left");
    ++made;
    return {};
  };
  auto agent = machine.start();
  EXPECT_EQ(agent->allocate(root(), ask(4, 30), {}).error().code, Code::kFailedPrecondition);
  agent->watch();
  EXPECT_EQ(view_of(*agent).library_error, "no space left");
  EXPECT_EQ(agent->troubles().library, "no space left");
  full = false;
  EXPECT_EQ(tried, 1);
  machine.clock.advance(std::chrono::seconds(29));
  agent->watch();
  EXPECT_EQ(tried, 1) << "each attempt fills the disk briefly";
  machine.clock.advance(std::chrono::seconds(1));
  agent->watch();
  EXPECT_EQ(view_of(*agent).library_error, "");
  EXPECT_TRUE(agent->allocate(root(), ask(4, 30), {}));
  agent->watch();
  EXPECT_EQ(made, 1) << "a successful attempt is not repeated";
}

TEST(Agent, LinksForAnotherDriverAreTriedImmediately) {
  Machine machine;
  machine.prepare_links = [](const std::string& version) -> Result<void> {
    if (version == "580.1") return fail(Code::kResourceExhausted, "no space left");
    return {};
  };
  auto agent = machine.start();
  agent->watch();
  machine.gpu.now_state = GpuState::kStarting;
  agent->watch();
  machine.gpu.listed.driver_version = "590.1";
  machine.gpu.now_state = GpuState::kOk;
  agent->watch();
  EXPECT_EQ(agent->troubles().library, "");
}

TEST(Agent, AFullDiskRefusesNewSlicesAndFreesOldOnes) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  machine.journal.full = true;
  const auto refused = agent->allocate(root(), ask(4, 30), {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("disk full"), std::string::npos);
  EXPECT_EQ(ids_in(*agent).size(), 1U);
  machine.cgroups.groups[grant->slice].clear();
  agent->reap();
  EXPECT_TRUE(ids_in(*agent).empty());
  EXPECT_EQ(agent->view({})->journal_error, "disk full");
  machine.journal.full = false;
  agent->reap();
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_TRUE(agent->view({})->journal_error.empty());
}

TEST(Agent, AnAbsentArbiterIsReportedAndNothingRemains) {
  Machine machine;
  auto agent = machine.start();
  machine.pages.away = true;
  EXPECT_EQ(agent->allocate(root(), ask(4, 30), {}).error().code, Code::kUnavailable);
  agent->reap();
  EXPECT_TRUE(machine.cgroups.groups.empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
  agent->watch();
  EXPECT_EQ(agent->view({})->arbiter_state, "away");
}

TEST(Agent, PagesAreRecreatedForAnArbiterThatLostThem) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  machine.pages.orders.clear();
  agent->watch();
  EXPECT_EQ(machine.pages.orders.count(grant->slice), 1U);
  machine.pages.orders["nobodys"] = {};
  agent->watch();
  EXPECT_EQ(machine.pages.orders.count("nobodys"), 0U);
}

TEST(Agent, ADeviceLivesUntilItIsReleased) {
  Machine machine;
  auto request = ask(4, 30);
  request.keep = true;
  std::string id;
  {
    auto agent = machine.start();
    const auto grant = agent->allocate(root(), request, {});
    ASSERT_TRUE(grant);
    id = grant->slice;
    EXPECT_EQ(grant->device, "carve.elasticgpu.io/slice=" + id);
    EXPECT_EQ(machine.devices.published.count(id), 1U);
  }
  machine.devices.published.clear();  // a reboot: /var/run is empty
  machine.pages.orders.clear();
  auto agent = machine.start();
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{id});
  EXPECT_EQ(machine.devices.published.count(id), 1U);
  machine.clock.advance(std::chrono::hours(1));
  agent->reap();
  agent->watch();
  EXPECT_EQ(machine.pages.orders.count(id), 1U);
  ASSERT_TRUE(agent->release(root(), id, false));
  EXPECT_TRUE(ids_in(*agent).empty());
  EXPECT_TRUE(machine.devices.published.empty());
}

/// The life of one slice; throws at the step that Fate chose.
void live(Machine& machine, Agent& agent) {
  const auto first = agent.allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent.join(root(77), first->slice));
  const auto second = agent.allocate(root(), ask(8, 50, 2), {});
  ASSERT_TRUE(agent.join(root(78), second->slice));
  machine.cgroups.groups[first->slice].clear();
  agent.reap();
}

TEST(Agent, AfterAKillAtAnyStepTheLedgerMatchesWhatRuns) {
  fakes::killed_at_any_step(live, [](Machine& machine, Agent& next) {
    machine.clock.advance(std::chrono::seconds(6));  // a process could still join within 5 s
    next.reap();
    EXPECT_EQ(ids_in(next), machine.running());
    std::set<std::string> pages;
    for (const auto& [id, order] : machine.pages.orders) pages.insert(id);
    EXPECT_EQ(pages, machine.running());
    const AgentView view = view_of(next);
    Bytes held;
    for (const auto& card : view.cards) held += card.set_aside;
    Bytes granted;
    for (const auto& slice : view.slices) {
      for (const auto& card : slice.cards) granted += card.limit;
    }
    EXPECT_EQ(held, granted);
  });
}

TEST(Agent, WithoutADriverSlicesStayAndRecover) {
  Machine machine;
  std::string id;
  {
    auto agent = machine.start();
    const auto grant = agent->allocate(root(), ask(4, 30), {});
    ASSERT_TRUE(agent->join(root(77), grant->slice));
    id = grant->slice;
  }
  machine.gpu.now_state = GpuState::kHanging;
  auto agent = machine.start();
  ASSERT_TRUE(agent);
  EXPECT_EQ(ids_in(*agent), std::set<std::string>{id});
  EXPECT_FALSE(agent->allocate(root(), ask(4, 30), {}));
  machine.gpu.now_state = GpuState::kOk;
  agent->watch();
  EXPECT_EQ(view_of(*agent).cards.size(), 2U);
  EXPECT_TRUE(agent->allocate(root(), ask(4, 30), {}));
}

TEST(Agent, TheSecondLineKillsAProcessThatBypassesTheLibrary) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  ASSERT_TRUE(agent->join(root(78), grant->slice));
  const std::string card = grant->cards[0].card.str();
  machine.pages.hellos[grant->slice] = {77};
  machine.gpu.processes[card] = {{77, Bytes::gib(1), 20}, {78, Bytes::gib(1), 20}, {999, Bytes::gib(2), 5}};
  for (int i = 0; i < 4; ++i) {
    agent->watch();
    machine.clock.advance(std::chrono::milliseconds(250));
  }
  EXPECT_EQ(machine.processes.killed, std::set<std::int32_t>{78});
  const AgentView view = view_of(*agent);
  EXPECT_NE(view.slices[0].state.find("breach-unregistered"), std::string::npos);
  EXPECT_FALSE(view.events.empty());
  std::size_t foreign = 0;
  for (const auto& c : view.cards) foreign += c.foreign.size();
  EXPECT_EQ(foreign, 1U);
  EXPECT_EQ(machine.pages.overheads[grant->slice + "/0"], Bytes::gib(2));
}

TEST(Agent, AFailedKillIsReported) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent->join(root(78), grant->slice));
  machine.gpu.processes[grant->cards[0].card.str()] = {{78, Bytes::gib(1), 20}};
  machine.processes.unkillable = Error{Code::kResourceExhausted, "too many open files"};
  for (int i = 0; i < 4; ++i) {
    agent->watch();
    machine.clock.advance(std::chrono::milliseconds(250));
  }
  const auto state = view_of(*agent).slices.at(0).state;
  EXPECT_NE(state.find("could not be killed: too many open files"), std::string::npos) << state;
}

TEST(Agent, WhileTheArbiterIsAwayMemoryAndCardsAreJudged) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  for (const std::int32_t pid : {77, 78, 79}) ASSERT_TRUE(agent->join(root(pid), grant->slice));
  const std::string card = grant->cards[0].card.str();
  const std::string other = card == "GPU-0" ? "GPU-1" : "GPU-0";
  machine.pages.hellos[grant->slice] = {77, 500};  // 500: in no cgroup that shows its slice
  agent->watch();
  machine.pages.away = true;
  const auto look = [&] {
    for (int i = 0; i < 4; ++i) {
      machine.clock.advance(std::chrono::milliseconds(250));
      agent->watch();
    }
  };
  // 78 may have sent a hello to an arbiter that did not answer; PID 500 may belong to another process now.
  machine.gpu.processes[card] = {{77, Bytes::gib(1), 20}, {78, Bytes::gib(1), 20}};
  machine.gpu.processes[other] = {{500, Bytes::gib(9), 20}};
  look();
  EXPECT_EQ(machine.processes.killed, std::set<std::int32_t>());
  machine.gpu.processes[other].push_back({79, Bytes::mib(1), 0});
  look();
  EXPECT_EQ(machine.processes.killed, std::set<std::int32_t>{79});
  machine.gpu.processes[card][0].memory = Bytes::gib(5);
  look();
  EXPECT_EQ(machine.processes.killed, (std::set<std::int32_t>{77, 78, 79})) << "the slice is over its limit";
}

/// The process ends between the verdict and the signal, and a daemon gets its PID.
TEST(Agent, AReusedPidIsNotKilled) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  ASSERT_TRUE(agent->join(root(78), grant->slice));
  machine.gpu.processes[grant->cards[0].card.str()] = {{77, Bytes::gib(1), 20}, {78, Bytes::gib(1), 20}};
  machine.processes.before_kill = [&](std::int32_t pid) {
    if (pid == 78) machine.cgroups.groups[grant->slice].erase(78);
  };
  for (int i = 0; i < 4; ++i) {
    agent->watch();
    machine.clock.advance(std::chrono::milliseconds(250));
  }
  EXPECT_EQ(machine.processes.killed, std::set<std::int32_t>{77});
}

TEST(Agent, NamesOfProcessesAreReadWithoutTheLock) {
  Machine machine;
  auto agent = machine.start();
  const auto grant = agent->allocate(root(), ask(4, 30), {});
  machine.pages.hellos[grant->slice] = {77};
  machine.gpu.processes[grant->cards[0].card.str()] = {{77, Bytes::gib(1), 20}, {999, Bytes::gib(2), 5}};
  agent->watch();
  int named = 0;
  bool free = true;
  std::vector<std::future<void>> asked;
  machine.processes.on_command = [&] {
    ++named;
    asked.push_back(std::async(std::launch::async, [&] { static_cast<void>(agent->holdings()); }));
    free = free && asked.back().wait_for(std::chrono::seconds(2)) == std::future_status::ready;
  };
  const auto view = agent->view({});
  EXPECT_GE(named, 2);
  EXPECT_TRUE(free) << "another call waited for the lock";
  EXPECT_EQ(view->slices.at(0).processes.at(0).command, "job");
}

TEST(Agent, ThrottlingFreezesOnlyForAWhile) {
  Machine machine;
  auto agent = machine.start();
  auto request = ask(4, 30);
  request.request.share = ShareClass::kFixed;
  const auto grant = agent->allocate(root(), request, {});
  ASSERT_TRUE(agent->join(root(77), grant->slice));
  machine.pages.hellos[grant->slice] = {77};
  machine.gpu.processes[grant->cards[0].card.str()] = {{77, Bytes::gib(1), 100}};
  bool frozen = false;
  bool thawed = false;
  for (int i = 0; i < 40; ++i) {
    agent->watch();
    agent->reap();
    const bool now = machine.cgroups.frozen.count(grant->slice) != 0;
    thawed = thawed || (frozen && !now);
    frozen = frozen || now;
    machine.clock.advance(std::chrono::milliseconds(250));
  }
  EXPECT_TRUE(frozen);
  EXPECT_TRUE(thawed);
  EXPECT_TRUE(machine.processes.killed.empty());
}

}  // namespace
}  // namespace carve::agent
