// Nanoseconds per placement decision on one machine: place() compared with a plain first-fit loop over the same cards,
// in one run. The loop is the lower bound: it neither checks the request, nor scores, nor explains.
#include <benchmark/benchmark.h>

#include "core/cluster/cluster.h"
#include "core/policy/policy.h"

namespace carve {
namespace {

/// A machine of `cards` cards, each holding `slices` slices of 1 GiB and 1/100.
Ledger machine(std::int64_t cards, std::int64_t slices) {
  Ledger ledger;
  for (std::int64_t i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-8f0c5a1e-0000-4000-8000-0000000000" + std::to_string(10 + i));
    card.model = "NVIDIA H200";
    card.memory = Bytes::gib(141);
    (void)ledger.put_card(card);
    for (std::int64_t s = 0; s < slices; ++s) {
      Slice slice;
      slice.owner.uid = std::to_string(s);
      slice.part = "main";
      slice.card = card.id;
      slice.memory = Bytes::gib(1);
      slice.compute = CoreShare(1);
      (void)ledger.add({slice});
    }
  }
  return ledger;
}

Request fraction() {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = CoreShare(30);
  return request;
}

LinkMatrix nvlink_pairs(const Ledger& ledger) {
  std::vector<CardId> ids;
  for (const CardState& card : ledger.cards()) ids.push_back(card.card.id);
  LinkMatrix links(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = i + 1; j < ids.size(); ++j) {
      links.set(ids[i], ids[j], {i / 2 == j / 2 ? LinkLevel::kNvLink : LinkLevel::kSystem, 0});
    }
  }
  return links;
}

void bench_first_fit(benchmark::State& state) {
  const Ledger ledger = machine(state.range(0), state.range(1));
  const Request request = fraction();
  for (auto _ : state) {
    const CardState* found = nullptr;
    for (const CardState& card : ledger.cards()) {
      if (card.card.health.ok && card.free_memory() >= request.memory.on(card.card.memory) &&
          card.free_compute() >= request.compute.share()) {
        found = &card;
        break;
      }
    }
    benchmark::DoNotOptimize(found);
  }
}

void bench_place(benchmark::State& state, const PolicyRow& policy) {
  const Ledger ledger = machine(state.range(0), state.range(1));
  const Request request = fraction();
  const LinkMatrix links;
  for (auto _ : state) benchmark::DoNotOptimize(place(ledger, links, request, policy));
}

void bench_refusal(benchmark::State& state) {
  const Ledger ledger = machine(state.range(0), state.range(1));
  Request request = fraction();
  request.compute = CoreShare(100);
  request.memory = MemoryAsk::of(Bytes::gib(140));
  const LinkMatrix links;
  for (auto _ : state) benchmark::DoNotOptimize(place(ledger, links, request, kPolicies[0]));
}

void bench_whole_set(benchmark::State& state) {
  const Ledger ledger = machine(state.range(0), 0);
  const LinkMatrix links = nvlink_pairs(ledger);
  const Request request = whole_cards(static_cast<std::uint32_t>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(place(ledger, links, request, kPolicies[0]));
}

void bench_book_and_free(benchmark::State& state) {
  Ledger ledger = machine(state.range(0), state.range(1));
  const Owner owner{OwnerKind::kLocal, "bench"};
  const Request request = fraction();
  const LinkMatrix links;
  for (auto _ : state) {
    const auto placed = place(ledger, links, request, kPolicies[0]);
    (void)ledger.add(slices_for(owner, "main", request, *placed));
    (void)ledger.remove(owner, "main");
  }
}

/// All nodes of a cluster, as in a filter call: every node that fits, and the reasons for the others.
void bench_fit(benchmark::State& state) {
  ClusterState::Nodes nodes;
  std::vector<std::string> names;
  const auto node = std::make_shared<const NodeState>(NodeState{machine(8, 4), {}, {}, {}});
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    names.push_back("node-" + std::to_string(10000 + i));
    nodes[names.back()] = node;
  }
  const ClusterState cluster(nodes);
  const Owner owner{OwnerKind::kPod, "bench"};
  const std::vector<PartRequest> parts = {{"main", Phase::kRun, fraction()}};
  for (auto _ : state) benchmark::DoNotOptimize(fit(cluster, owner, parts, names, kPolicies[0]));
  state.counters["per_node"] = benchmark::Counter(
      static_cast<double>(state.range(0)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(bench_fit)->Arg(100)->Arg(1000)->Unit(benchmark::kMicrosecond);
BENCHMARK(bench_first_fit)->Args({8, 8})->Args({16, 64});
BENCHMARK_CAPTURE(bench_place, binpack, kPolicies[0])->Args({8, 8})->Args({16, 64});
BENCHMARK_CAPTURE(bench_place, spread, kPolicies[1])->Args({8, 8})->Args({16, 64});
BENCHMARK(bench_refusal)->Args({8, 8});
BENCHMARK(bench_whole_set)->Args({8, 2})->Args({8, 4})->Args({16, 8});
BENCHMARK(bench_book_and_free)->Args({8, 8})->Args({16, 64});

}  // namespace
}  // namespace carve

BENCHMARK_MAIN();
