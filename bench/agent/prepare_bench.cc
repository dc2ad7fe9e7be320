// The time of 100 prepares of 100 owners in parallel, with a journal, an arbiter and CDI files in memory that are as
// slow as real ones: a sync takes 5 ms, an arbiter call 1 ms, a CDI file 1 ms. The arbiter's connection carries one
// call at a time, as ArbiterClient does. --check fails beyond 1.5 times the budget.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "app/agent/agent.h"
#include "app/agent/testing/fakes.h"

namespace carve::agent {
namespace {

using std::chrono::milliseconds;

constexpr int kOwners = 100;
constexpr milliseconds kSync{5};
constexpr milliseconds kArbiter{1};
constexpr milliseconds kCdi{1};
constexpr int kCards = 8;

/// The budget in milliseconds: the arbiter's calls one after the other, twice, plus four syncs.
constexpr double kBudget = 2 * kOwners * 1.0 + 4 * 5.0;

PrepareRequest request_of(int owner) {
  Slice slice;
  slice.owner = {OwnerKind::kClaim, "claim-" + std::to_string(owner)};
  slice.part = "gpu";
  slice.card = CardId("GPU-" + std::to_string(owner % kCards));
  slice.memory = Bytes::gib(1);
  slice.compute = CoreShare(1);
  return {*record_of(0, {slice}), slice.part, "", "default/pod/gpu"};
}

struct Node {
  Node() {
    gpu.listed.cards.resize(1);
    gpu.listed.pci_bus_ids.resize(1);
    for (int i = 1; i < kCards; ++i) {
      Card card = gpu.listed.cards.front();
      card.id = CardId("GPU-" + std::to_string(i));
      card.minor = i;
      gpu.listed.cards.push_back(card);
      gpu.listed.pci_bus_ids.push_back("0000:0" + std::to_string(i) + ":00.0");
    }
    journal.on_append = [] { std::this_thread::sleep_for(kSync); };
    pages.on_put = [this](const std::string&) {
      const std::lock_guard lock(connection);
      std::this_thread::sleep_for(kArbiter);
    };
    devices.on_publish = [](const std::string&) { std::this_thread::sleep_for(kCdi); };
  }
  fakes::Fate fate;
  fakes::FakeGpu gpu;
  fakes::FakePages pages{fate};
  fakes::FakeJournal journal{fate};
  fakes::FakeDevices devices;
  fakes::FakeProcesses processes;
  fakes::FakeContainers containers;
  SystemClock clock;
  Log log{[](std::string_view) {}};
  std::mutex connection;
};

/// Milliseconds until the last of the prepares has returned; negative: a prepare failed.
double run(int workers) {
  Node node;
  AgentConfig config;
  config.slices_folder = "/run/carve/slices";
  config.gives_cards = false;
  Agent agent(config, AgentWorld{node.gpu,
                                 node.pages,
                                 nullptr,
                                 "none",
                                 node.journal,
                                 node.devices,
                                 node.processes,
                                 node.clock,
                                 node.log,
                                 {},
                                 &node.containers,
                                 nullptr,
                                 nullptr});
  if (!agent.restore()) return -1;
  std::atomic<int> next = 0;
  std::atomic<int> failed = 0;
  const auto start = std::chrono::steady_clock::now();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < workers; ++i) {
      threads.emplace_back([&] {
        for (int owner = next++; owner < kOwners; owner = next++) {
          const auto prepared = agent.prepare(request_of(owner));
          if (!prepared) fmt::print(stderr, "prepare {}: {}\n", owner, prepared.error().what);
          if (!prepared) ++failed;
        }
      });
    }
  }
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return failed == 0 ? took.count() : -1;
}

int main_with(const std::vector<std::string>& args) {
  bool check = false;
  double scale = 1.5;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--check") check = true;
    if (args[i] == "--budget-scale" && i + 1 < args.size()) scale = std::strtod(args[++i].c_str(), nullptr);
  }
  fmt::print("{} prepares of {} owners; sync 5 ms, arbiter call 1 ms (one at a time), CDI file 1 ms\n", kOwners,
             kOwners);
  bool over = false;
  for (const int workers : {1, 4, kOwners}) {
    const double took = run(workers);
    const bool late = workers == kOwners && (took < 0 || took > kBudget * scale);
    fmt::print("{:3} at a time: {:7.1f} ms{}\n", workers, took, check && late ? " OVER" : "");
    over = over || late;
  }
  return check && over ? 1 : 0;
}

}  // namespace
}  // namespace carve::agent

int main(int argc, char** argv) { return carve::agent::main_with({argv + 1, argv + argc}); }
