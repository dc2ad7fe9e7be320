// A slice of two cards: memory is charged to the card that holds it, regardless of the current card. A program with one
// thread per card does all of this.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "tests/isolation/driver_calls.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;
constexpr std::uint64_t kRoom = 256 * kMiB;  // for explicit allocations, on each card

const bool kTwoCards = [] {
  profile_under_test() = "t4x2";
  return true;
}();

/// The primary contexts of both cards; that of card 0 is current.
struct Cards {
  CUcontext context[2] = {};

  CUresult start() {
    CUresult result = call("cuInit", 0U);
    for (int card = 0; card < 2; ++card) {
      result = result != 0 ? result : call("cuDevicePrimaryCtxRetain", &context[card], CUdevice{card});
    }
    return result != 0 ? result : use(0);
  }
  CUresult use(int card) const { return call("cuCtxSetCurrent", context[card]); }
  /// The free memory of the card as Carve reports it. Makes card 0 current again.
  [[nodiscard]] std::size_t free_of(int card) const {
    use(card);
    const std::size_t bytes = free_memory();
    use(0);
    return bytes;
  }
};

/// Allocates 64 MiB on card 1 while card 0 is current. `keep` stores what the drop needs.
using Take = CUresult (*)(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]);
using Drop = CUresult (*)(const std::uint64_t keep[3]);

CUstream stream_of_card_1(const Cards& cards) {
  static CUstream stream = nullptr;
  if (stream == nullptr) {
    cards.use(1);
    call("cuStreamCreate", &stream, 1U);
    cards.use(0);
  }
  return stream;
}
CUstream the_stream = nullptr;

CUresult take_in_its_stream(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]) {
  the_stream = stream_of_card_1(cards);
  return call("cuMemAllocAsync", &keep[0], static_cast<std::size_t>(bytes), the_stream);
}
CUresult take_in_its_stream_own(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]) {
  the_stream = stream_of_card_1(cards);
  return call("cuMemAllocAsync_ptsz", &keep[0], static_cast<std::size_t>(bytes), the_stream);
}
CUresult drop_in_its_stream(const std::uint64_t keep[3]) {
  const CUresult result = call("cuMemFreeAsync", CUdeviceptr{keep[0]}, the_stream);
  return result != 0 ? result : call("cuStreamSynchronize", the_stream);
}

CUresult take_from_its_default_pool(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]) {
  the_stream = stream_of_card_1(cards);
  CUmemoryPool pool = nullptr;
  const CUresult result = call("cuDeviceGetDefaultMemPool", &pool, CUdevice{1});
  return result != 0 ? result
                     : call("cuMemAllocFromPoolAsync", &keep[0], static_cast<std::size_t>(bytes), pool, the_stream);
}
/// Allocates in a stream of card 0: the pool decides which card holds the memory.
CUresult take_from_its_pool_elsewhere(const Cards&, std::uint64_t bytes, std::uint64_t keep[3]) {
  the_stream = nullptr;
  CUmemoryPool pool = nullptr;
  const CUresult result = call("cuDeviceGetDefaultMemPool", &pool, CUdevice{1});
  return result != 0 ? result
                     : call("cuMemAllocFromPoolAsync", &keep[0], static_cast<std::size_t>(bytes), pool, the_stream);
}

CUresult take_handle(const Cards&, std::uint64_t bytes, std::uint64_t keep[3]) {
  const CUmemAllocationProp where{1, 0, {1, 1}, nullptr, {}};
  return call("cuMemCreate", &keep[0], static_cast<std::size_t>(bytes), &where, 0ULL);
}
CUresult drop_handle(const std::uint64_t keep[3]) {
  return call("cuMemRelease", CUmemGenericAllocationHandle{keep[0]});
}

CUresult launched(CUgraph graph, CUdeviceptr address, CUstream stream, std::uint64_t keep[3]) {
  CUgraphExec exec = nullptr;
  CUresult result = call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
  result = result != 0 ? result : call("cuGraphLaunch", exec, stream);
  result = result != 0 ? result : call("cuStreamSynchronize", stream);
  keep[0] = address;
  keep[1] = reinterpret_cast<std::uint64_t>(graph);
  keep[2] = reinterpret_cast<std::uint64_t>(exec);
  if (result != 0) call("cuGraphDestroy", graph);
  return result;
}
CUresult take_node(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.pool_props.alloc_type = 1;
  parameters.pool_props.location = {1, 1};
  parameters.bytesize = static_cast<std::size_t>(bytes);
  CUresult result = call("cuGraphCreate", &graph, 0U);
  result = result != 0 ? result
                       : call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                              std::size_t{0}, &parameters);
  return result != 0 ? result : launched(graph, parameters.dptr, stream_of_card_1(cards), keep);
}
CUresult take_captured(const Cards& cards, std::uint64_t bytes, std::uint64_t keep[3]) {
  const CUstream stream = stream_of_card_1(cards);
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  CUresult result = call("cuStreamBeginCapture_v2", stream, 2);
  if (result != 0) return result;
  result = call("cuMemAllocAsync", &address, static_cast<std::size_t>(bytes), stream);
  const CUresult ended = call("cuStreamEndCapture", stream, &graph);
  result = result != 0 ? result : ended;
  return result != 0 ? result : launched(graph, address, stream, keep);
}
CUresult drop_graph(const std::uint64_t keep[3]) {
  const CUresult result = call("cuMemFree_v2", CUdeviceptr{keep[0]});
  call("cuGraphExecDestroy", reinterpret_cast<CUgraphExec>(keep[2]));
  call("cuGraphDestroy", reinterpret_cast<CUgraph>(keep[1]));
  return result != 0 ? result : call("cuDeviceGraphMemTrim", CUdevice{1});
}

struct Way {
  const char* name;
  Take take;
  Drop drop;
};
constexpr Way kWays[] = {
    {"cuMemAllocAsync in a stream of card 1", take_in_its_stream, drop_in_its_stream},
    {"cuMemAllocAsync_ptsz in a stream of card 1", take_in_its_stream_own, drop_in_its_stream},
    {"the default pool of card 1", take_from_its_default_pool, drop_in_its_stream},
    {"the default pool of card 1, in a stream of card 0", take_from_its_pool_elsewhere, drop_in_its_stream},
    {"cuMemCreate on card 1", take_handle, drop_handle},
    {"a graph's node of card 1", take_node, drop_graph},
    {"a node captured in a stream of card 1", take_captured, drop_graph},
};

class CardsTest : public SliceTest {};

TEST_F(CardsTest, MemoryIsChargedToTheCardThatHoldsIt) {
  ASSERT_TRUE(kTwoCards);
  for (const Way& way : kWays) {
    start_slice(kContext + kRoom);
    EXPECT_EQ(in_child([&] {
      Cards cards;
      if (cards.start() != 0) return 1;
      if (cards.free_of(0) != kRoom || cards.free_of(1) != kRoom) return 2;
      std::uint64_t held[5][3] = {};
      for (int i = 0; i < 4; ++i) {
        if (way.take(cards, 64 * kMiB, held[i]) != 0) return 10 + i;
      }
      if (truth_of_process(getpid(), 1).explicit_bytes != kRoom) return 3;
      if (truth_of_process(getpid(), 0).explicit_bytes != 0) return 4;
      if (cards.free_of(1) != 0) return 5;
      if (cards.free_of(0) != kRoom) return 6;
      if (way.take(cards, 2 * kMiB, held[4]) != CUDA_ERROR_OUT_OF_MEMORY) return 7;
      CUdeviceptr address = 0;  // card 0 has its own limit
      if (call("cuMemAlloc_v2", &address, static_cast<std::size_t>(kRoom)) != 0) return 8;
      if (call("cuMemFree_v2", address) != 0) return 9;
      for (int i = 0; i < 4; ++i) {
        if (way.drop(held[i]) != 0) return 20 + i;
      }
      if (truth_of_process(getpid(), 1).explicit_bytes != 0) return 30;
      return cards.free_of(0) == kRoom && cards.free_of(1) == kRoom ? 0 : 31;
    }), 0) << way.name;
    slice_.reset();
  }
}

TEST_F(CardsTest, AGraphOfBothCardsIsChargedToBoth) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([&] {
    Cards cards;
    if (cards.start() != 0) return 1;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUgraphNode node = nullptr;
    if (call("cuGraphCreate", &graph, 0U) != 0) return 2;
    for (const int card : {0, 1, 1}) {
      CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
      parameters.pool_props.alloc_type = 1;
      parameters.pool_props.location = {1, card};
      parameters.bytesize = 100 * kMiB;
      if (call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr), std::size_t{0},
               &parameters) != 0) {
        return 3;
      }
    }
    if (call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL) != 0) return 4;
    if (cards.free_of(0) != kRoom - 100 * kMiB || cards.free_of(1) != kRoom - 200 * kMiB) return 5;
    CUgraphExec another = nullptr;  // fits on card 0 but not on card 1: no part of it is charged
    if (call("cuGraphInstantiateWithFlags", &another, graph, 0ULL) != CUDA_ERROR_OUT_OF_MEMORY) return 6;
    if (cards.free_of(0) != kRoom - 100 * kMiB || cards.free_of(1) != kRoom - 200 * kMiB) return 7;
    if (call("cuGraphExecDestroy", exec) != 0) return 8;
    return cards.free_of(0) == kRoom && cards.free_of(1) == kRoom ? 0 : 9;
  }), 0);
}

}  // namespace
}  // namespace carve::isolation
