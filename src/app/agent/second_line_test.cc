// Tests the whole second line: its observations of the machine, and its actions. In memory, with the test's own clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "app/agent/agent.h"
#include "app/agent/testing/machine.h"

namespace carve::agent {
namespace {

using fakes::ask;
using fakes::Machine;
using fakes::root;
using std::chrono::milliseconds;

class SecondLine : public ::testing::Test {
 protected:
  SecondLine() { agent_ = machine_.start(); }

  /// A slice on the first card with one process that sent a hello.
  std::string start(std::int32_t pid, std::uint64_t gib, std::uint32_t compute) {
    auto request = ask(gib, compute);
    request.request.constraints.cards = {CardId("GPU-0")};
    const auto grant = agent_->allocate(root(), request, {});
    if (!grant) return {};
    EXPECT_TRUE(agent_->join(root(pid), grant->slice));
    machine_.pages.hellos[grant->slice] = {pid};
    return grant->slice;
  }
  void round(int milliseconds_on = 250) {
    machine_.clock.advance(milliseconds(milliseconds_on));
    agent_->watch();
  }
  [[nodiscard]] int events(const std::string& kind) {
    int count = 0;
    const AgentView view = *agent_->view({});
    for (const auto& event : view.events) count += event.kind == kind ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::string last_event() { return agent_->view({})->events.back().text; }

  Machine machine_;
  std::unique_ptr<Agent> agent_;
};

/// The memory is taken by cuMemCreate of the driver's own file, without a context: NVML lists no process, and the card
/// is full.
TEST_F(SecondLine, MemoryWithoutAContextIsFoundByTheOpenDeviceFile) {
  start(77, 1, 10);
  start(78, 1, 10);
  machine_.gpu.processes["GPU-0"] = {{78, Bytes::mib(500), 0}};
  machine_.processes.holders[0] = {77, 78};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  int rounds = 0;
  for (; rounds < 4 && machine_.processes.killed.empty(); ++rounds) round();
  EXPECT_LE(rounds, 3) << "within a second, including the round before it began";
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
  EXPECT_EQ(events("breach-unexplained"), 1);
}

/// No slice is ended on suspicion alone: either of two slices may hold the memory.
TEST_F(SecondLine, SeveralSuspectsAreNamedAndNotEnded) {
  const auto one = start(77, 1, 10);
  const auto two = start(78, 1, 10);
  machine_.processes.holders[0] = {77, 78};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  for (int i = 0; i < 3; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
  ASSERT_EQ(events("breach-unexplained"), 1);
  EXPECT_NE(last_event().find("77 (" + one + "), 78 (" + two + ")"), std::string::npos) << last_event();
}

/// nvidia-persistenced, an exporter and Carve's own NVML process hold the file all the time.
TEST_F(SecondLine, DaemonsOutsideSlicesDoNotShieldATaker) {
  start(77, 1, 10);
  start(78, 1, 10);
  machine_.gpu.processes["GPU-0"] = {{78, Bytes::mib(500), 0}};
  machine_.processes.holders[0] = {77, 78, 900, 901};
  machine_.processes.users[900] = {120, false, "/usr/bin/nvidia-persistenced"};
  machine_.processes.users[901] = {0, false, "/usr/bin/dcgm-exporter"};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  int rounds = 0;
  for (; rounds < 4 && machine_.processes.killed.empty(); ++rounds) round();
  EXPECT_LE(rounds, 3);
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
  EXPECT_NE(last_event().find("not suspected: 900 (in no slice: /usr/bin/nvidia-persistenced, uid 120)"),
            std::string::npos)
      << last_event();
}

/// A program outside slices takes the memory. A slice's process holds the file too and has no context yet.
TEST_F(SecondLine, NoSliceIsEndedForMemoryOfAProgramOutside) {
  const auto id = start(77, 1, 10);
  machine_.processes.holders[0] = {77, 900};
  machine_.processes.users[900] = {0, true, "/opt/bin/train"};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  for (int i = 0; i < 40; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
  EXPECT_GE(events("breach-unexplained"), 9) << "once per second";
  EXPECT_NE(last_event().find("900 (in no slice: /opt/bin/train, uid 0)"), std::string::npos) << last_event();
}

/// The slice starts after the memory was taken, so it cannot be the holder. It does not shield the holder either.
TEST_F(SecondLine, ASliceThatStartsLaterIsNotSuspected) {
  machine_.processes.holders[0] = {900};
  machine_.processes.users[900] = {0, true, "/opt/bin/train"};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  for (int i = 0; i < 4; ++i) round();
  start(77, 1, 10);
  machine_.processes.holders[0] = {77};  // the program outside closed the file, and another process has it now
  for (int i = 0; i < 40; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
}

/// The data loaders of a training job inherit the job's open files and never send a hello. The process that took the
/// memory sent one.
TEST_F(SecondLine, DataLoadersOfANeighbourAreNotSuspected) {
  start(77, 1, 10);
  const auto job = start(78, 1, 10);
  machine_.cgroups.groups[job].insert(79);
  machine_.processes.parents[79] = 78;
  machine_.gpu.processes["GPU-0"] = {{78, Bytes::mib(500), 0}};
  machine_.processes.holders[0] = {77, 78, 79};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  for (int i = 0; i < 4; ++i) round();
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
}

/// The holder is not visible. The only visible suspect is ended, which frees nothing. After that no other slice is
/// ended.
TEST_F(SecondLine, AVerdictWithoutEffectIsReportedAndNotRepeated) {
  const auto first = start(77, 1, 10);
  const auto second = start(78, 1, 10);
  machine_.processes.holders[0] = {77};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(12);
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
  machine_.cgroups.groups[first].clear();
  machine_.processes.holders[0] = {78};
  machine_.gpu.used["GPU-0"] = Bytes::gib(14);  // it grows, so the other slice can be a holder
  for (int i = 0; i < 40; ++i) round();
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
  const auto view = *agent_->view({});
  EXPECT_TRUE(std::any_of(view.events.begin(), view.events.end(), [&](const auto& event) {
    return event.slice == first && event.text.find("it did not hold them") != std::string::npos;
  }));
}

TEST_F(SecondLine, AnnouncedMemoryIsExplainedBeforeAContextExists) {
  const auto id = start(77, 4, 10);
  machine_.processes.holders[0] = {77};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::gib(3);
  machine_.pages.announced[id] = Bytes::gib(3);
  for (int i = 0; i < 8; ++i) round();
  EXPECT_EQ(events("breach-unexplained"), 0);
  EXPECT_TRUE(machine_.processes.killed.empty());
}

/// 25 × 250 MiB of module globals, each within the tolerance that every process had in earlier versions.
TEST_F(SecondLine, ManyProcessesShareOneTolerance) {
  const auto id = start(100, 4, 10);
  std::set<std::int32_t> all;
  for (std::int32_t pid = 100; pid < 125; ++pid) {
    machine_.pages.hellos[id].insert(pid);
    machine_.cgroups.groups[id].insert(pid);
    machine_.gpu.processes["GPU-0"].push_back({pid, Bytes::mib(350), 0});
    all.insert(pid);
  }
  for (int i = 0; i < 4; ++i) round();
  EXPECT_EQ(machine_.processes.killed, all);
}

/// A slice holds more than its limit, within its tolerance. The excess is not promised to a second slice. Otherwise the
/// second slice would lack memory, or the first would be ended because of a neighbour.
TEST_F(SecondLine, ToleranceIsTakenFromUnpromisedMemory) {
  start(77, 4, 10);
  machine_.gpu.processes["GPU-0"] = {{77, Bytes::gib(4) + Bytes::mib(200), 0}};
  for (int i = 0; i < 4; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
  EXPECT_TRUE(start(78, 136, 10).empty()) << "the card is not free to the last byte";
  EXPECT_FALSE(start(78, 135, 10).empty());
  for (int i = 0; i < 4; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
  machine_.gpu.processes["GPU-0"] = {{77, Bytes::gib(4) + Bytes::mib(257), 0}};
  for (int i = 0; i < 4; ++i) round();
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
}

/// On a card that is promised to the last byte there is no tolerance. A slice keeps a little of its own limit back
/// instead, from its first process on.
TEST_F(SecondLine, OnAFullCardASliceKeepsMemoryBackFromItsOwnLimit) {
  const auto one = start(77, 4, 10);
  EXPECT_EQ(machine_.pages.overheads[one + "/0"], Bytes());
  const auto two = start(78, 136, 10);
  EXPECT_EQ(machine_.pages.overheads[two + "/0"], Bytes::mib(64)) << "before its first process runs";
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(machine_.pages.overheads[one + "/0"], Bytes::mib(64));
  EXPECT_EQ(machine_.pages.overheads[two + "/0"], Bytes::mib(64));
  machine_.gpu.processes["GPU-0"] = {{77, Bytes::gib(4), 0}, {78, Bytes::gib(136) + Bytes(1), 0}};
  machine_.pages.announced[one] = Bytes::gib(4) - Bytes::mib(64);
  for (int i = 0; i < 4; ++i) round();
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{78}) << "a byte that its neighbour was promised";
}

/// Memory without a context on a card that is promised to the last byte: it would be missing in a slice. Beside memory
/// that is promised to no slice the same amount is tolerated.
TEST_F(SecondLine, OnAFullCardLessUnexplainedMemoryIsTolerated) {
  start(77, 4, 10);
  machine_.processes.holders[0] = {77};
  round();
  machine_.gpu.used["GPU-0"] = Bytes::mib(200);
  for (int i = 0; i < 4; ++i) round();
  EXPECT_TRUE(machine_.processes.killed.empty());
  ASSERT_FALSE(start(78, 136, 10).empty());
  for (int i = 0; i < 4; ++i) round();
  EXPECT_GE(events("breach-unexplained"), 1);
  EXPECT_EQ(machine_.processes.killed, std::set<std::int32_t>{77});
}

/// What a slice keeps back at its start is what the rounds find without any excess, for all bounds.
TEST_F(SecondLine, TheStartAndTheRoundsHaveOneRuleForWhatASliceKeepsBack) {
  agent_.reset();
  machine_.bounds.tolerance.most = Bytes::mib(16);
  agent_ = machine_.start();
  const auto one = start(77, 4, 10);
  const auto two = start(78, 100, 10);
  EXPECT_EQ(machine_.pages.overheads[two + "/0"], Bytes::mib(48));
  for (int i = 0; i < 3; ++i) round();
  EXPECT_EQ(machine_.pages.overheads[one + "/0"], Bytes::mib(48));
  EXPECT_EQ(machine_.pages.overheads[two + "/0"], Bytes::mib(48));
}

/// The memory is held repeatedly for less time than counts as a breach. Each time is reported and halves the time that
/// the next may last. The last one ends the slice.
TEST_F(SecondLine, RepeatedShortBreachesAreToleratedLess) {
  const auto id = start(77, 1, 10);
  int bursts = 0;
  for (; bursts < 50 && machine_.cgroups.groups.at(id).count(77) != 0; ++bursts) {
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::gib(8), 0}};
    round(60);
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::mib(500), 0}};
    round(250);
  }
  EXPECT_EQ(bursts, 4);
  EXPECT_EQ(events("breach-memory-brief"), 3);
  EXPECT_NE(last_event().find("the slice was ended"), std::string::npos) << last_event();
}

TEST_F(SecondLine, ShortBreachesAreForgivenInTime) {
  const auto id = start(77, 1, 10);
  for (int i = 0; i < 20; ++i) {
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::gib(8), 0}};
    round();
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::mib(500), 0}};
    for (int second = 0; second < 20; ++second) round(1000);
  }
  EXPECT_EQ(machine_.cgroups.groups.at(id).count(77), 1U);
  EXPECT_EQ(events("breach-memory-brief"), 20);
}

TEST_F(SecondLine, RepeatedRescuesOfASliceAreAnEventAndAreShown) {
  const auto id = start(77, 1, 10);
  const auto neighbour = start(78, 1, 10);
  round();
  for (std::uint32_t rescues = 1; rescues <= 20; ++rescues) {
    machine_.pages.rescues[id] = rescues;
    round();
  }
  ASSERT_EQ(events("rescues-repeat"), 1);
  const AgentView view = *agent_->view({});
  EXPECT_EQ(view.events.back().slice, id);
  EXPECT_NE(last_event().find("got 3 leases out of turn on GPU-0"), std::string::npos) << last_event();
  for (const auto& slice : view.slices) EXPECT_EQ(slice.cards[0].rescues, slice.id == id ? 20U : 0U) << slice.id;
  EXPECT_EQ(machine_.cgroups.groups.at(id).count(77), 1U) << "only reported";
}

/// A slice of 10 that bypasses the library to compute, next to a neighbour of 70: each gets half of the card.
class ComputeLine : public SecondLine {
 protected:
  void SetUp() override {
    offender_ = start(77, 1, 10);
    neighbour_ = start(78, 1, 70);
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::mib(500), 0}, {78, Bytes::mib(500), 100}};
    for (int i = 0; i < 4; ++i) compute_round(0);
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::mib(500), 50}, {78, Bytes::mib(500), 50}};
  }
  /// 250 ms in which the neighbour has the lease. The offender adds `claimed_ms` to its busy_ns, and the arbiter
  /// charges the offender for that time.
  void compute_round(std::uint64_t claimed_ms) {
    machine_.pages.busy_ns[offender_] += claimed_ms * 1'000'000;
    machine_.pages.charged_ns[offender_] += claimed_ms * 1'000'000;
    machine_.pages.charged_ns[neighbour_] += 250'000'000;
    machine_.pages.granted_ms.try_emplace(offender_, 1);
    machine_.pages.granted_ms[neighbour_] += 250;
    round();
    agent_->reap();
  }
  [[nodiscard]] bool alive(const std::string& id) { return machine_.cgroups.groups[id].size() == 1; }
  [[nodiscard]] int rounds_until(const std::function<bool()>& condition, std::uint64_t claimed_ms, int most = 80) {
    for (int i = 1; i <= most; ++i) {
      compute_round(claimed_ms);
      if (condition()) return i;
    }
    return most + 1;
  }
  std::string offender_, neighbour_;
};

TEST_F(ComputeLine, AFalseBusyNsCausesAnEventWithinASecond) {
  EXPECT_LE(rounds_until([&] { return events("breach-compute") != 0; }, 250), 4);
  EXPECT_EQ(machine_.cgroups.frozen, std::set<std::string>{offender_});
}

TEST_F(ComputeLine, ADriverNextToTheLibraryCausesAnEventWithinASecond) {
  EXPECT_LE(rounds_until([&] { return events("breach-compute") != 0; }, 0), 4);
  EXPECT_EQ(machine_.cgroups.frozen, std::set<std::string>{offender_});
}

/// Queued work runs on while the slice is frozen: the slice loses its leases, does not get them back, and is ended.
TEST_F(ComputeLine, ASliceThatFreezingDoesNotStopIsRevokedAndThenEnded) {
  const int frozen = rounds_until([&] { return machine_.cgroups.frozen.count(offender_) != 0; }, 250);
  const int revoked = frozen + rounds_until([&] { return machine_.pages.orders.count(offender_) == 0; }, 250);
  EXPECT_TRUE(alive(offender_));
  EXPECT_NE(last_event().find("revoked"), std::string::npos) << last_event();
  bool back = false;
  const int ended = revoked + rounds_until(
                                  [&] {
                                    back = back || machine_.pages.orders.count(offender_) != 0;
                                    return !alive(offender_);
                                  },
                                  250);
  EXPECT_FALSE(back) << "its pages were re-created";
  EXPECT_LE(revoked, 16) << "1.0 s of the card at 30 points: 3.3 s";
  EXPECT_LE(ended, 24) << "1.6 s of the card: 5.3 s";
  EXPECT_TRUE(alive(neighbour_));
  EXPECT_EQ(machine_.pages.orders.count(neighbour_), 1U);
}

class ThrottledOnly : public ComputeLine {
 protected:
  void SetUp() override {
    machine_.on_compute = BreachAction::kThrottle;
    agent_ = machine_.start();
    ComputeLine::SetUp();
  }
};

TEST_F(ThrottledOnly, ThePolicyThrottleNeverRevokesAndNeverKills) {
  EXPECT_LE(rounds_until([&] { return machine_.cgroups.frozen.count(offender_) != 0; }, 250), 4);
  EXPECT_EQ(rounds_until([&] { return !alive(offender_) || machine_.pages.orders.count(offender_) == 0; }, 250), 81);
  EXPECT_GT(events("breach-compute"), 5) << "reported once a second";
}

/// Each time the slice leaves soon after it was caught, and its user returns with a new slice.
TEST_F(ComputeLine, AUserThatReturnsIsEndedInTheFourthSlice) {
  std::vector<int> rounds;
  for (int visit = 1; visit <= 4; ++visit) {
    rounds.push_back(rounds_until([&] { return events("breach-compute") != 0 && !alive(offender_); }, 250, 5));
    if (!alive(offender_)) break;
    machine_.cgroups.groups[offender_].clear();
    machine_.gpu.processes["GPU-0"] = {{78, Bytes::mib(500), 100}};
    agent_->reap();
    for (int i = 0; i < 32; ++i) compute_round(0);
    offender_ = start(77, 1, 10);
    machine_.gpu.processes["GPU-0"] = {{77, Bytes::mib(500), 50}, {78, Bytes::mib(500), 50}};
  }
  ASSERT_EQ(rounds.size(), 4U);
  EXPECT_FALSE(alive(offender_)) << last_event();
}

}  // namespace
}  // namespace carve::agent
