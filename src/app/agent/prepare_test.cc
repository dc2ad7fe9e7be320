#include <gtest/gtest.h>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

namespace carve::agent {
namespace {

using fakes::Machine;

const Owner kClaim{OwnerKind::kClaim, "c1a1-0001"};

Slice share(const Owner& owner, const std::string& part, int card, std::uint64_t gib, std::uint32_t compute) {
  Slice slice;
  slice.owner = owner;
  slice.part = part;
  slice.card = CardId("GPU-" + std::to_string(card));
  slice.memory = Bytes::gib(gib);
  slice.compute = CoreShare(compute);
  return slice;
}

PrepareRequest part(const Owner& owner, const std::string& name, std::uint64_t gib = 4, std::uint32_t compute = 30) {
  return {*record_of(0, {share(owner, name, 0, gib, compute)}), name, "", "default/pod/" + name};
}

std::string id_of(const Prepared& prepared) { return prepared.device.substr(prepared.device.find('=') + 1); }

Bytes set_aside(Agent& agent, std::size_t card) { return agent.view({})->cards.at(card).set_aside; }

TEST(Prepare, APartBecomesASliceAndEndsWithItsOwner) {
  Machine machine;
  auto agent = machine.start();
  const auto prepared = agent->prepare(part(kClaim, "gpu"));
  ASSERT_TRUE(prepared) << prepared.error().what;
  const std::string id = id_of(*prepared);
  EXPECT_EQ(machine.pages.orders.at(id).slices.at(0).memory, Bytes::gib(4));
  EXPECT_EQ(machine.devices.published.count(id), 1U);
  EXPECT_EQ(agent->held().size(), 1U);
  EXPECT_EQ(agent->view({})->slices.at(0).kind, "claim");
  agent->reap();  // the slice has no cgroup, and stays
  ASSERT_TRUE(agent->unprepare(kClaim));
  EXPECT_TRUE(agent->held().empty());
  EXPECT_TRUE(machine.pages.orders.empty());
  EXPECT_TRUE(machine.devices.published.empty());
  EXPECT_TRUE(machine.journal.state().records.empty());
  EXPECT_TRUE(machine.journal.state().notes.empty());
  EXPECT_EQ(set_aside(*agent, 0), Bytes());
  EXPECT_TRUE(agent->unprepare(kClaim));  // repeated: nothing to do
}

TEST(Prepare, AnInitContainerWithoutAProcessIsIdle) {
  Machine machine;
  auto agent = machine.start();
  const Owner pod{OwnerKind::kPod, "u-1"};
  PrepareRequest init = part(pod, "load");
  init.record.parts.front().phase = Phase::kInit;
  const auto prepared = agent->prepare(init);
  ASSERT_TRUE(prepared) << prepared.error().what;
  ASSERT_TRUE(agent->prepare(part(pod, "main")));
  std::map<std::string, std::string> states;
  const auto view = agent->view({});
  ASSERT_TRUE(view);
  for (const auto& slice : view->slices) states[slice.id] = slice.state;
  EXPECT_EQ(states.size(), 2U);
  EXPECT_EQ(states[id_of(*prepared)], "idle");
  states.erase(id_of(*prepared));
  EXPECT_EQ(states.begin()->second, "running");
}

/// What the arbiter enforces for the slice's first card, as "fixed 30".
std::string ordered(const Machine& machine, const std::string& id) {
  const Slice& slice = machine.pages.orders.at(id).slices.at(0);
  return std::string(to_string(slice.share)) + " " + std::to_string(slice.compute.hundredths());
}

PrepareRequest by_node(const Owner& owner, std::uint32_t compute) {
  PrepareRequest request = part(owner, "main", 4, compute);
  request.record.parts.front().share = ShareClass::kNode;
  return request;
}

SharePolicies all_cards(const char* word) { return {.node = share_policy_from(word)}; }

TEST(Prepare, TheNodesPolicyChangesRunningSlices) {
  Machine machine;
  auto agent = machine.start();
  const auto first = agent->prepare(by_node({OwnerKind::kPod, "u-1"}, 30));
  ASSERT_TRUE(first) << first.error().what;
  EXPECT_EQ(ordered(machine, id_of(*first)), "burst 30") << "no policy is known yet";
  agent->divide_by(all_cards("fixed"));
  agent->watch();
  EXPECT_EQ(ordered(machine, id_of(*first)), "fixed 30");
  agent->divide_by(all_cards("equal"));
  const auto second = agent->prepare(by_node({OwnerKind::kPod, "u-2"}, 50));
  ASSERT_TRUE(second);
  EXPECT_EQ(ordered(machine, id_of(*second)), "burst 40") << "a new slice gets its part at once";
  machine.clock.advance(std::chrono::seconds(2));
  agent->watch();
  EXPECT_EQ(ordered(machine, id_of(*first)), "burst 40");
  const auto granted = agent->held();
  EXPECT_TRUE(std::all_of(granted.begin(), granted.end(), [](const Slice& one) {
    return one.share == ShareClass::kNode && one.compute > CoreShare(29);
  })) << "the ledger keeps what was set aside";
}

TEST(Prepare, ANewAgentKeepsTheTermsUntilItKnowsThePolicies) {
  Machine machine;
  auto agent = machine.start();
  agent->divide_by(all_cards("fixed"));
  const auto prepared = agent->prepare(by_node({OwnerKind::kPod, "u-1"}, 30));
  ASSERT_TRUE(prepared);
  agent.reset();
  agent = machine.start();
  agent->watch();
  EXPECT_EQ(ordered(machine, id_of(*prepared)), "fixed 30");
  machine.pages.orders.clear();  // a new arbiter without them: the slice must get some
  agent->watch();
  EXPECT_EQ(ordered(machine, id_of(*prepared)), "burst 30");
  agent->divide_by(all_cards("even-4"));
  machine.clock.advance(std::chrono::seconds(2));
  agent->watch();
  EXPECT_EQ(ordered(machine, id_of(*prepared)), "fixed 25");
}

TEST(Prepare, VariablesOfADialectAreInTheCdiFileAndOutliveTheAgent) {
  Machine machine;
  auto agent = machine.start();
  PrepareRequest request = part(kClaim, "gpu");
  request.environment = {{"ALIYUN_COM_GPU_MEM_DEV", "15"}, {"ALIYUN_COM_GPU_VISIBLE_DEVICES", "GPU-0,GPU-1"}};
  const auto prepared = agent->prepare(request);
  ASSERT_TRUE(prepared) << prepared.error().what;
  const std::string id = id_of(*prepared);
  EXPECT_EQ(machine.devices.environments.at(id), request.environment);
  agent.reset();
  machine.devices.environments.clear();
  agent = machine.start();
  EXPECT_EQ(machine.devices.environments.at(id), request.environment) << "read back from the journal";
  const PrepareRequest existing{.record = {.owner = kClaim}, .part = "gpu", .existing_only = true};
  machine.devices.environments.clear();
  ASSERT_TRUE(agent->prepare(existing));
  EXPECT_EQ(machine.devices.environments.at(id), request.environment) << "a published file does not change";
}

TEST(Prepare, UnsafeVariablesAreRefused) {
  Machine machine;
  auto agent = machine.start();
  using Variables = std::map<std::string, std::string>;
  for (const Variables& bad :
       {Variables{{"NVIDIA_VISIBLE_DEVICES", "all"}}, Variables{{"A", "b c"}}, Variables{{"A", "b;C=d"}},
        Variables{{"A", "b\nC"}}, Variables{{"A=B", "c"}}, Variables{{"", "c"}}}) {
    PrepareRequest request = part(kClaim, "gpu");
    request.environment = bad;
    const auto prepared = agent->prepare(request);
    ASSERT_FALSE(prepared);
    EXPECT_EQ(prepared.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(agent->held().empty());
}

TEST(Prepare, ARepeatedPrepareReturnsTheSameAnswer) {
  Machine machine;
  auto agent = machine.start();
  const auto first = agent->prepare(part(kClaim, "gpu"));
  const auto again = agent->prepare(part(kClaim, "gpu"));
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->device, again->device);
  EXPECT_EQ(set_aside(*agent, 0), Bytes::gib(4));
  const auto other = agent->prepare(part(kClaim, "gpu", 8));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kAlreadyExists);
}

TEST(Prepare, PartsOfOneOwnerShareOneRecord) {
  Machine machine;
  auto agent = machine.start();
  const auto a = agent->prepare(part(kClaim, "a"));
  const auto b = agent->prepare(part(kClaim, "b", 8, 50));
  ASSERT_TRUE(a && b);
  EXPECT_NE(a->device, b->device);
  EXPECT_EQ(machine.journal.state().records.at(kClaim).parts.size(), 2U);
  agent.reset();
  agent = machine.start();
  EXPECT_EQ(agent->held().size(), 2U);
  EXPECT_EQ(agent->prepare(part(kClaim, "a"))->device, a->device);
  EXPECT_EQ(agent->prepare(part(kClaim, "b", 8, 50))->device, b->device);
  ASSERT_TRUE(agent->unprepare(kClaim));
  EXPECT_TRUE(machine.journal.state().records.empty());
}

TEST(Prepare, TheJournalKeepsTheEpoch) {
  Machine machine;
  auto agent = machine.start();
  auto a = part(kClaim, "a");
  a.record.epoch = 41;
  ASSERT_TRUE(agent->prepare(a));
  EXPECT_EQ(machine.journal.state().records.at(kClaim).epoch, 41U);
  agent.reset();
  agent = machine.start();
  auto b = part(kClaim, "b", 8, 50);
  b.record.epoch = 41;
  ASSERT_TRUE(agent->prepare(b));
  EXPECT_EQ(machine.journal.state().records.at(kClaim).epoch, 41U);
  EXPECT_EQ(machine.journal.state().records.at(kClaim).parts.size(), 2U);
}

TEST(Prepare, ARequestThatDoesNotFitIsRefusedAndLeavesNothing) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kClaim, "gpu", 100, 80)));
  const Owner second{OwnerKind::kClaim, "c1a1-0002"};
  const auto refused = agent->prepare(part(second, "gpu", 10, 30));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << refused.error().what;
  PrepareRequest nowhere = part(second, "gpu", 1, 1);
  nowhere.record.parts[0].cards[0].card = CardId("GPU-9");
  EXPECT_EQ(agent->prepare(nowhere).error().code, Code::kNotFound);
  machine.pages.away = true;
  EXPECT_EQ(agent->prepare(part(second, "gpu", 1, 1)).error().code, Code::kUnavailable);
  machine.pages.away = false;
  machine.journal.full = true;
  EXPECT_FALSE(agent->prepare(part(second, "gpu", 1, 1)));
  machine.journal.full = false;
  EXPECT_EQ(agent->held().size(), 1U);
  EXPECT_EQ(machine.journal.state().records.size(), 1U);
  EXPECT_EQ(machine.journal.state().notes.size(), 1U);
  EXPECT_EQ(machine.pages.orders.size(), 1U);
}

TEST(Prepare, InvalidRequestsAreRefused) {
  Machine machine;
  auto agent = machine.start();
  EXPECT_EQ(agent->prepare({}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(agent->prepare(part({OwnerKind::kLocal, "x"}, "gpu")).error().code, Code::kInvalidArgument);
  auto absent = part(kClaim, "a");
  absent.part = "b";
  EXPECT_EQ(agent->prepare(absent).error().code, Code::kInvalidArgument);
  auto twice = part(kClaim, "a");
  twice.record.parts[0].cards.push_back(twice.record.parts[0].cards[0]);
  EXPECT_EQ(agent->prepare(twice).error().code, Code::kInvalidArgument);
  auto foreign = part(kClaim, "a");
  foreign.device = "nvidia.com/gpu=all";
  EXPECT_EQ(agent->prepare(foreign).error().code, Code::kInvalidArgument);
}

/// The decision travels whole. The journal's record is what the owner holds: the part that has started.
TEST(Prepare, OnlyTheRequestedPartOfTheRecordIsPrepared) {
  Machine machine;
  auto agent = machine.start();
  auto request = part(kClaim, "b", 8, 50);
  request.record = *record_of(7, {share(kClaim, "a", 0, 4, 30), share(kClaim, "b", 0, 8, 50)});
  ASSERT_TRUE(agent->prepare(request));
  const std::vector<Slice> only{share(kClaim, "b", 0, 8, 50)};
  EXPECT_EQ(agent->held(), only);
  EXPECT_EQ(machine.journal.state().records.at(kClaim), *record_of(7, only));
}

TEST(Prepare, AStandingPartKeepsItsSlicesUnderAnotherName) {
  Machine machine;
  auto agent = machine.start();
  const Owner pod{OwnerKind::kPod, "pod-1"};
  ASSERT_TRUE(agent->prepare(part(pod, "main")));
  const auto held = agent->held();
  const PrepareRequest existing{
      .record = {.owner = pod}, .part = "main", .device = *agent->promise_device(), .existing_only = true};
  const auto prepared = agent->prepare(existing);
  ASSERT_TRUE(prepared) << prepared.error().what;
  EXPECT_EQ(prepared->device, existing.device);
  EXPECT_EQ(agent->held(), held);
}

TEST(Prepare, APromisedNameIsNeverGivenTwice) {
  Machine machine;
  auto agent = machine.start();
  std::set<std::string> names;
  for (int i = 0; i < 600; ++i) names.insert(*agent->promise_device());
  agent.reset();
  agent = machine.start();
  for (int i = 0; i < 600; ++i) names.insert(*agent->promise_device());
  EXPECT_EQ(names.size(), 1200U);
  auto request = part({OwnerKind::kPod, "pod-1"}, "main");
  request.device = *agent->promise_device();
  EXPECT_EQ(agent->prepare(request)->device, request.device);
  auto other = part({OwnerKind::kPod, "pod-2"}, "main");
  other.device = request.device;
  EXPECT_EQ(agent->prepare(other).error().code, Code::kAlreadyExists);
}

/// The kubelet never retries a pod that Allocate refused.
TEST(Prepare, OnAFullDiskNamesArePromisedAndPreparedLater) {
  Machine machine;
  machine.journal.full = true;
  auto agent = machine.start();
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) names.insert(agent->promise_device().value_or("refused"));
  EXPECT_EQ(names.size(), 100U);
  auto request = part({OwnerKind::kPod, "pod-1"}, "main");
  request.device = *names.begin();
  EXPECT_FALSE(agent->prepare(request)) << "its slice cannot be written";
  machine.journal.full = false;
  const auto prepared = agent->prepare(request);
  ASSERT_TRUE(prepared) << prepared.error().what;
  EXPECT_EQ(prepared->device, request.device);
}

TEST(Prepare, ANewNameReplacesALostOneWhenNoProcessRuns) {
  Machine machine;
  auto agent = machine.start();
  auto request = part({OwnerKind::kPod, "pod-1"}, "main");
  request.device = *agent->promise_device();
  const auto first = agent->prepare(request);
  machine.pages.hellos[id_of(*first)] = {77};
  request.device = *agent->promise_device();
  EXPECT_EQ(agent->prepare(request).error().code, Code::kFailedPrecondition);
  machine.pages.hellos.clear();
  const auto second = agent->prepare(request);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->device, request.device);
  EXPECT_EQ(machine.devices.published, std::set<std::string>{id_of(*second)});
  EXPECT_EQ(agent->held().size(), 1U);
}

TEST(Prepare, AProcessIsShownInTheRequestThatHoldsTheCard) {
  Machine machine;
  auto agent = machine.start();
  const auto a = agent->prepare(part(kClaim, "a"));
  const auto b = agent->prepare({*record_of(0, {share(kClaim, "b", 1, 8, 50)}), "b", "", "default/pod/b"});
  ASSERT_TRUE(a && b);
  machine.processes.sees[78] = {id_of(*a), id_of(*b)};
  machine.gpu.processes["GPU-1"] = {{78, Bytes::gib(2), 10}};
  machine.gpu.processes["GPU-0"] = {{78, Bytes::gib(1), 10}};
  agent->watch();
  const AgentView view = *agent->view({});
  ASSERT_EQ(view.slices.size(), 2U);
  ASSERT_GE(view.cards.size(), 2U);
  for (const auto& slice : view.slices) {
    ASSERT_EQ(slice.processes.size(), 1U) << slice.id;
    EXPECT_EQ(slice.cards.at(0).used, slice.id == id_of(*b) ? Bytes::gib(2) : Bytes::gib(1));
  }
  for (const auto& card : view.cards) EXPECT_TRUE(card.foreign.empty());
}

TEST(Prepare, ASliceIsFreedOnlyWhenItsProcessesAreGone) {
  Machine machine;
  auto agent = machine.start();
  const std::string id = id_of(*agent->prepare(part(kClaim, "gpu")));
  machine.pages.hellos[id] = {77};
  const auto still = agent->unprepare(kClaim);
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().code, Code::kFailedPrecondition);
  EXPECT_NE(still.error().what.find("77"), std::string::npos);
  EXPECT_EQ(set_aside(*agent, 0), Bytes::gib(4));
  EXPECT_TRUE(machine.devices.published.empty());  // no new container starts with it
  EXPECT_EQ(agent->prepare(part(kClaim, "gpu")).error().code, Code::kAborted);
  // The process is no longer in the pages, but the driver still lists a process that never sent a hello.
  machine.pages.hellos.clear();
  machine.processes.sees[78] = {id};
  machine.gpu.processes["GPU-0"] = {{78, Bytes::gib(1), 0}};
  EXPECT_FALSE(agent->unprepare(kClaim));
  machine.gpu.processes.clear();
  EXPECT_TRUE(agent->unprepare(kClaim));
  EXPECT_EQ(set_aside(*agent, 0), Bytes());
}

TEST(Prepare, EndingNeedsNoDriver) {
  Machine machine;
  auto agent = machine.start();
  ASSERT_TRUE(agent->prepare(part(kClaim, "gpu")));
  machine.gpu.now_state = GpuState::kHanging;
  agent.reset();
  agent = machine.start();
  ASSERT_EQ(agent->held().size(), 1U);
  EXPECT_EQ(agent->cards().cards.size(), 0U) << "a stand-in is not offered";
  EXPECT_TRUE(agent->unprepare(kClaim));
  EXPECT_TRUE(machine.journal.state().records.empty());
}

TEST(Prepare, AfterARebootEverySliceIsRestored) {
  Machine machine;
  auto agent = machine.start();
  const std::string id = id_of(*agent->prepare(part(kClaim, "gpu")));
  agent.reset();
  machine.devices.published.clear();  // /run is empty
  machine.pages.orders.clear();
  machine.gpu.now_state = GpuState::kHanging;  // and the driver does not answer yet
  agent = machine.start();
  EXPECT_TRUE(machine.devices.published.empty());
  machine.gpu.now_state = GpuState::kOk;
  agent->watch();
  EXPECT_EQ(machine.devices.published, std::set<std::string>{id});
  EXPECT_EQ(machine.pages.orders.count(id), 1U);
  EXPECT_EQ(agent->prepare(part(kClaim, "gpu"))->device, "carve.elasticgpu.io/slice=" + id);
}

TEST(Prepare, OnAKubernetesNodeAllocateIsRefused) {
  Machine machine;
  auto agent = machine.start();
  const std::string id = id_of(*agent->prepare(part(kClaim, "gpu")));
  const auto refused = agent->release(fakes::root(), id, true);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(agent->held().size(), 1U);
}

/// The life of two claims; throws at the step that Fate chose.
void live(Agent& agent) {
  static_cast<void>(agent.prepare(part(kClaim, "a")));
  static_cast<void>(agent.prepare(part(kClaim, "b", 8, 50)));
  static_cast<void>(agent.prepare(part({OwnerKind::kPod, "pod-1"}, "main", 2, 10)));
  static_cast<void>(agent.unprepare(kClaim));
}

TEST(Prepare, AfterAKillAtAnyStepTheKubeletsNextCallsMakeAllViewsAgree) {
  const auto live_again = [](Machine&, Agent& agent) { live(agent); };
  fakes::killed_at_any_step(live_again, [](Machine& machine, Agent& next) {
    // Regardless of the interrupted step, ledger, journal, pages and devices agree.
    EXPECT_EQ(next.held().size(), slices_of(machine.journal.state()).size());
    EXPECT_EQ(machine.pages.orders.size(), next.held().size());
    EXPECT_EQ(machine.devices.published.size(), next.held().size());
    live(next);  // the kubelet makes the same calls again
    ASSERT_EQ(next.held().size(), 1U);
    EXPECT_EQ(next.held()[0].owner.uid, "pod-1");
    EXPECT_EQ(machine.journal.state().records.size(), 1U);
    EXPECT_EQ(machine.journal.state().notes.size(), 1U);
    EXPECT_EQ(machine.pages.orders.size(), 1U);
    EXPECT_EQ(machine.devices.published.size(), 1U);
    EXPECT_EQ(set_aside(next, 0), Bytes::gib(2));
  });
}

}  // namespace
}  // namespace carve::agent
