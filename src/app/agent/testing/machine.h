#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "app/agent/testing/fake_card_files.h"
#include "app/agent/testing/fakes.h"

namespace carve::agent::fakes {

/// One machine. It outlives its agents.
struct Machine {
  Fate fate;
  FakeGpu gpu;
  FakePages pages{fate};
  FakeCgroups cgroups{fate};
  FakeJournal journal{fate};
  FakeDevices devices;
  FakeProcesses processes;
  FakeContainers containers;
  FakeCardFiles card_files{fate};
  bool own_devices = false;
  ManualClock clock;
  bool gives_cards = true;
  BreachAction on_compute = AgentConfig().on_compute;
  WatchBounds bounds;
  std::function<Result<void>(const std::string&)> prepare_links;  // empty: there is nothing to link
  Log log{[](std::string_view) {}};

  std::unique_ptr<Agent> start(const std::vector<AccessRule>& access = {}) {
    AgentConfig config;
    config.slices_folder = "/run/carve/slices";
    config.access = access;
    config.arbiter_settles = std::chrono::seconds(0);
    config.gives_cards = gives_cards;
    config.on_compute = on_compute;
    config.bounds = bounds;
    config.last_process = std::chrono::seconds(0);
    auto agent = std::make_unique<Agent>(
        config, AgentWorld{gpu, pages, &cgroups, "", journal, devices, processes, clock, log, prepare_links,
                           &containers, nullptr, own_devices ? &card_files : nullptr});
    const auto restored = agent->restore();
    if (!restored) return nullptr;
    return agent;
  }
  /// The set on which all views must agree: the slices with processes in their cgroups.
  [[nodiscard]] std::set<std::string> running() const {
    std::set<std::string> ids;
    for (const auto& [id, members] : cgroups.groups) {
      if (!members.empty()) ids.insert(id);
    }
    return ids;
  }
};

/// Leaves the agent as kill -9 would: no destructor runs. A leak checker still finds the object.
inline void leave_dead(std::unique_ptr<Agent> agent) {
  static auto& dead = *new std::vector<Agent*>;  // never destroyed: leak checkers run after the destruction of statics
  dead.push_back(agent.release());
}

/// Runs a history on a new machine for each step that changes the world, and kills the agent at that step. Then starts
/// the next agent, runs one watch round, and checks the result.
///   live   the history; it ends at the chosen step by the exception of Fate
///   check  what must be true, regardless of the step
inline void killed_at_any_step(const std::function<void(Machine&, Agent&)>& live,
                               const std::function<void(Machine&, Agent&)>& check) {
  int steps = 0;
  {
    Machine machine;
    auto agent = machine.start();
    live(machine, *agent);
    steps = machine.fate.step;
  }
  ASSERT_GT(steps, 8);
  for (int die_at = 1; die_at <= steps; ++die_at) {
    SCOPED_TRACE(::testing::Message() << "killed at step " << die_at);
    Machine machine;
    auto agent = machine.start();
    machine.fate.die_at = die_at;
    EXPECT_THROW(live(machine, *agent), Killed);
    machine.fate.die_at = 0;
    leave_dead(std::move(agent));
    auto next = machine.start();
    ASSERT_TRUE(next);
    next->watch();
    check(machine, *next);
  }
  std::printf("killed at each of %d steps\n", steps);
}

inline AllocateRequest ask(std::uint64_t gib, std::uint32_t compute, std::uint32_t count = 1) {
  AllocateRequest request;
  request.request.count = count;
  request.request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.request.compute = CoreShare(compute);
  request.name = "job";
  return request;
}

inline Caller root(std::int32_t pid = 100) { return {pid, 0, {0}}; }

}  // namespace carve::agent::fakes
