#include <gtest/gtest.h>

#include <future>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

namespace carve::agent {
namespace {

using fakes::Machine;

const Owner kClaim{OwnerKind::kClaim, "c1a1-0001"};
const Owner kPod{OwnerKind::kPod, "pod-1"};

PrepareRequest part(const Owner& owner, const std::string& name,
                    const std::vector<std::string>& pods, bool whole = false) {
  Slice slice;
  slice.owner = owner;
  slice.part = name;
  slice.card = CardId("GPU-0");
  slice.memory = whole ? Bytes::gib(140) : Bytes::gib(4);
  slice.compute = whole ? CoreShare::whole() : CoreShare(30);
  slice.whole = slice.exclusive = whole;
  return {*record_of(0, {slice}), slice.part, "", "default/pod/" + name, pods};
}

std::string id_of(const Prepared& prepared) {
  return prepared.device.substr(prepared.device.find('=') + 1);
}

/// The container of a whole card has no page and sends no hello, and the driver does not list it while it computes
/// nothing.
TEST(Ending, AWholeCardIsFreedOnlyWhenItsPodsProcessesAreGone) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kPod, "main", {"pod-1"}, true)));
  machine.containers.add(77, "pod-1");
  const auto still = agent->unprepare(kPod);
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().code, Code::kFailedPrecondition);
  EXPECT_NE(still.error().what.find("77"), std::string::npos);
  machine.containers.alive.clear();
  EXPECT_TRUE(agent->unprepare(kPod));
  EXPECT_TRUE(agent->held().empty());
}

TEST(Ending, AWholeCardIsNotFreedWhileItsProcessesCannotBeSeen) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kPod, "main", {"pod-1"}, true)));
  machine.containers.add(77, "pod-1");
  machine.containers.unseen = true;  // the arbiter answers, but a whole card has no page
  const auto still = agent->unprepare(kPod);
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().code, Code::kUnavailable);
  EXPECT_EQ(agent->held().size(), 1U);
  machine.containers.unseen = false;
  machine.containers.alive.clear();
  EXPECT_TRUE(agent->unprepare(kPod));
}

TEST(Ending, AWholeCardSharedWithALaterPodIsRecognisedByItsMark) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"}, true)));
  machine.containers.add(
      78, "pod-2");  // the kubelet does not prepare a prepared claim again
  machine.processes.sees[78] = {id};
  EXPECT_FALSE(agent->unprepare(kClaim));
  machine.containers.alive.clear();
  EXPECT_TRUE(agent->unprepare(kClaim));
}

TEST(Ending, AProcessThatHidesItsMountsIsStillInItsPod) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(
      79, "pod-1");  // it ignored SIGTERM, or waits in the kernel: it still exists, and it sees no mount
  EXPECT_FALSE(agent->unprepare(kClaim));
  machine.containers.add(79, "pod-9");
  EXPECT_TRUE(agent->unprepare(kClaim));
}

TEST(Ending, AProcessThatHidesItsMountsCountsAgainstItsPod) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(79, "pod-1");
  machine.gpu.processes["GPU-0"] = {{79, Bytes::gib(2), 10}};
  agent->watch();
  const AgentView view = *agent->view({});
  ASSERT_EQ(view.slices.at(0).processes.size(), 1U);
  EXPECT_EQ(view.slices[0].cards.at(0).used, Bytes::gib(2));
  EXPECT_TRUE(view.cards.at(0).foreign.empty());
}

TEST(Ending, AMountCannotMoveAProcessToAnotherPodsSlice) {
  Machine machine;
  auto agent = machine.start();
  const auto victim = id_of(*agent->prepare(part({OwnerKind::kPod, "pod-2"}, "main", {"pod-2"})));
  const auto own = id_of(*agent->prepare(part(kPod, "main", {"pod-1"})));
  machine.containers.add(79, "pod-1");
  machine.processes.sees[79] = {victim, own};
  machine.gpu.processes["GPU-0"] = {{79, Bytes::gib(2), 10}};
  agent->watch();
  const AgentView view = *agent->view({});
  ASSERT_EQ(view.slices.size(), 2U);
  for (const auto& slice : view.slices)
    EXPECT_EQ(slice.cards.at(0).used, slice.id == own ? Bytes::gib(2) : Bytes()) << slice.id;
  EXPECT_TRUE(agent->unprepare({OwnerKind::kPod, "pod-2"}));  // it does not keep another pod's card
}

/// A process can make the path of its cgroup longer than the kernel shows. It then holds the slices that are mounted
/// for it, but no other pod's cards.
TEST(Ending, AProcessWithAnUnreadableCgroupHoldsItsMountedSlices) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kPod, "main", {"pod-1"})));
  ASSERT_TRUE(agent->prepare(part({OwnerKind::kPod, "pod-2"}, "main", {"pod-2"})));
  machine.containers.add(77, "");
  machine.processes.sees[77] = {id};
  EXPECT_TRUE(agent->unprepare({OwnerKind::kPod, "pod-2"}));
  const auto still = agent->unprepare(kPod);
  ASSERT_FALSE(still);
  EXPECT_NE(still.error().what.find("77"), std::string::npos) << still.error().what;
  machine.containers.alive.clear();
  EXPECT_TRUE(agent->unprepare(kPod));
}

/// The container runtime was seen to forget a process after a restart of the kubelet had cancelled its start. The
/// kubelet kills the rest of a pod's cgroup only after unprepare, so nothing else would end this wait.
TEST(Ending, AProcessLeftInAnEndedClaimsPodIsKilled) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(77, "pod-1");
  machine.containers.add(78, "pod-2");  // of another pod that sees the slice and has not ended
  machine.processes.sees[78] = {id};
  machine.containers.add(80, "");  // its cgroup cannot be read: its mounts show its slice
  machine.processes.sees[80] = {id};
  const auto pass = [&](int seconds) {
    machine.clock.advance(std::chrono::seconds(seconds));
    agent->reap();
  };
  ASSERT_FALSE(agent->unprepare(kClaim));
  pass(2);
  pass(9);
  EXPECT_TRUE(machine.processes.killed.empty()) << "it may be about to end";
  machine.containers.add(79, "pod-1");
  machine.processes.before_kill = [&](std::int32_t pid) {
    if (pid == 79) machine.containers.add(79, "pod-9");  // it has ended, and another pod has its PID
  };
  pass(1);
  EXPECT_EQ(machine.processes.killed, (std::set<std::int32_t>{77, 80}));
  machine.containers.alive.clear();
  pass(1);
  EXPECT_TRUE(agent->held().empty());
}

TEST(Ending, AProcessLeftInAPodWithSlotsIsNotKilled) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kPod, "main", {"pod-1"})));
  machine.containers.add(77, "pod-1");
  ASSERT_FALSE(agent->unprepare(kPod));
  for (int i = 0; i < 30; ++i) {
    machine.clock.advance(std::chrono::seconds(1));
    agent->reap();
  }
  EXPECT_TRUE(machine.processes.killed.empty());
}

TEST(Ending, AnEndedOwnerIsStillEndedAfterARestart) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(77, "pod-1");
  ASSERT_FALSE(agent->unprepare(kClaim));
  ASSERT_TRUE(machine.devices.published.empty());
  machine.devices.published.insert(id);  // as if the agent had died before the file was removed
  agent.reset();
  agent = machine.start();
  EXPECT_TRUE(machine.devices.published.empty());
  EXPECT_EQ(agent->prepare(part(kClaim, "gpu", {"pod-1"})).error().code, Code::kAborted);
  EXPECT_EQ(agent->view({})->slices.at(0).state, "ending");
  agent->watch();
  EXPECT_EQ(machine.pages.orders.count(id), 1U);  // a process that still runs keeps its limits
  // The kubelet does not call again: the slice ends by itself.
  machine.containers.alive.clear();
  machine.clock.advance(std::chrono::seconds(2));
  agent->reap();
  EXPECT_TRUE(agent->held().empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
}

/// A caller reads held() just before the last process ends, and then prepares the part that it read. Without this check
/// the slice of an ended owner would be re-created.
TEST(Ending, AnEndedSliceIsNotRecreated) {
  Machine machine;
  auto agent = machine.start();
  auto request = part(kPod, "main", {"pod-1"});
  request.device = agent->prepare(request)->device;
  request.existing_only = true;
  EXPECT_EQ(agent->prepare(request)->device, request.device);
  ASSERT_TRUE(agent->unprepare(kPod));
  EXPECT_EQ(agent->prepare(request).error().code, Code::kNotFound);
  EXPECT_TRUE(agent->held().empty());
}

TEST(Ending, NeedsNeitherArbiterNorDriver) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(77, "pod-1");
  machine.pages.away = true;
  machine.gpu.now_state = GpuState::kHanging;
  EXPECT_EQ(agent->unprepare(kClaim).error().code, Code::kFailedPrecondition);
  machine.containers.alive.clear();
  const auto ended = agent->unprepare(kClaim);
  ASSERT_TRUE(ended) << ended.error().what;
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_EQ(machine.pages.orders.count(id), 1U);
  machine.pages.away = false;
  agent->watch();
  EXPECT_TRUE(machine.pages.orders.empty());  // pages that could not be dropped before
}

TEST(Ending, OnAFullDiskTheNextCallEndsTheSlice) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.journal.full = true;
  EXPECT_FALSE(agent->unprepare(kClaim));
  EXPECT_TRUE(machine.devices.published.empty());
  EXPECT_EQ(agent->held().size(), 1U);
  machine.journal.full = false;
  EXPECT_TRUE(agent->unprepare(kClaim));
}

TEST(Ending, OtherContainersDoNotBlockAPartsNewName) {
  Machine machine;
  auto agent = machine.start();
  auto request = part(kPod, "main", {"pod-1"});
  request.device = *agent->promise_device();
  const auto first = id_of(*agent->prepare(request));
  machine.containers.add(70, "pod-1");  // the sandbox, a sidecar
  machine.containers.add(71, "pod-1");
  machine.processes.sees[71] = {first};
  request.device = *agent->promise_device();
  EXPECT_EQ(agent->prepare(request).error().code, Code::kFailedPrecondition);
  machine.containers.alive.erase(71);
  EXPECT_EQ(agent->prepare(request)->device, request.device);
}

/// Runs at twice the allowed compute, until the watchdog has acted.
std::string overuse(Machine& machine, Agent& agent, const std::string& id,
                    const std::function<bool()>& acted) {
  machine.pages.hellos[id] = {79};
  machine.gpu.processes["GPU-0"] = {{79, Bytes::gib(1), 90}};
  for (int i = 0; i < 200 && !acted(); ++i) {
    machine.clock.advance(std::chrono::milliseconds(250));
    agent.watch();
    if (acted()) break;
    agent.reap();
  }
  return agent.view({})->slices.at(0).state;
}

TEST(Throttle, AContainerIsFrozenWhereTheKubeletPutIt) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(79, "pod-1", "pod-1/c1");
  machine.processes.sees[79] = {id};
  const auto state =
      overuse(machine, *agent, id, [&] { return !machine.containers.frozen.empty(); });
  EXPECT_EQ(machine.containers.frozen, std::set<std::string>{"pod-1/c1"});
  EXPECT_NE(state.find("throttled"), std::string::npos) << state;
  machine.clock.advance(std::chrono::seconds(1));
  agent->reap();
  EXPECT_TRUE(machine.containers.frozen.empty());
  // An agent that dies while it throttles leaves processes frozen until the next agent starts.
  machine.containers.frozen.insert("pod-1/c1");
  fakes::leave_dead(std::move(agent));
  agent = machine.start();
  EXPECT_TRUE(machine.containers.frozen.empty());
}

TEST(Throttle, ASliceThatCannotBeFrozenIsOnlyReported) {
  Machine machine;
  auto agent = machine.start();
  const auto id = id_of(*agent->prepare(part(kClaim, "gpu", {"pod-1"})));
  machine.containers.add(79, "pod-1", "gone");
  machine.processes.sees[79] = {id};
  std::string said;
  const auto acted = [&] {
    said = agent->view({})->slices.at(0).state;
    return said.find("breach") != std::string::npos;
  };
  overuse(machine, *agent, id, acted);
  EXPECT_NE(said.find("reported only"), std::string::npos) << said;
  EXPECT_TRUE(machine.containers.frozen.empty());
  EXPECT_TRUE(machine.cgroups.frozen.empty());
  EXPECT_TRUE(machine.processes.killed.empty());
}

/// The kubelet admits one pod at a time, and each admission waits for this call.
TEST(Promise, DoesNotWaitForAPrepareThatHangsOnADisk) {
  Machine machine;
  machine.gives_cards = false;
  auto agent = machine.start();
  std::promise<void> hangs;
  std::promise<void> disk;
  machine.journal.on_append = [&, once = true]() mutable {
    if (std::exchange(once, false)) {
      hangs.set_value();
      disk.get_future().wait();
    }
  };
  auto prepared =
      std::async(std::launch::async, [&] { return agent->prepare(part(kPod, "main", {"pod-1"})); });
  hangs.get_future().wait();
  auto promised = std::async(std::launch::async, [&] {
    std::set<std::string> names;
    for (int i = 0; i < 600; ++i) names.insert(*agent->promise_device());
    return names.size();
  });
  const bool in_time = promised.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
  disk.set_value();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(promised.get(), 600U);
  EXPECT_TRUE(prepared.get());
  agent->reap();  // reserves new ones
  EXPECT_EQ(machine.journal.state().counters.at("device"), 2048U);
}

}  // namespace
}  // namespace carve::agent
