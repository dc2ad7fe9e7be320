#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/meter.h"

// Graphs that allocate: what their nodes ask for is charged when the graph is instantiated, for as long as the
// executable graph lives; and, like a pool's, what the driver keeps for graphs afterwards.
using namespace carve::preload;

namespace {

constexpr std::size_t kNodesAtOnce = 256;
constexpr int kDeepest = 8;  // child graphs within child graphs

struct Demand {
  std::uint64_t bytes;
  bool known;
};

/// Sums the allocation nodes. Graphs with more nodes than fit here at once are read through mmap'd memory.
Demand demand_of(CUgraph graph, int depth) {
  std::size_t count = 0;
  if (depth > kDeepest || driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return {0, false};
  }
  CUgraphNode few[kNodesAtOnce];
  CUgraphNode* nodes = few;
  const std::size_t length = count * sizeof(CUgraphNode);
  if (count > kNodesAtOnce) {
    void* memory_for_all = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_for_all == MAP_FAILED) {
      return {0, false};
    }
    nodes = static_cast<CUgraphNode*>(memory_for_all);
  }
  Demand sum{0, count == 0 || driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS};
  for (std::size_t i = 0; sum.known && i < count; ++i) {
    int type = -1;
    driver.cuGraphNodeGetType(nodes[i], &type);
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
      sum.known = driver.cuGraphMemAllocNodeGetParams(nodes[i], &parameters) == CUDA_SUCCESS;
      sum.bytes += round_up(parameters.bytesize, 512);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (driver.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) {
        const Demand below = demand_of(child, depth + 1);
        sum.bytes += below.bytes;
        sum.known = below.known;
      }
    }
  }
  if (nodes != few) {
    munmap(nodes, length);
  }
  return sum;
}

template <class Make>
CUresult instantiate(CUgraphExec* out, CUgraph graph, Make make) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? make() : refusal();
  }
  const Demand demand = demand_of(graph, 0);
  if (demand.known && demand.bytes == 0) {
    return make();
  }
  Card* card = current_card();
  Pool* pool = card != nullptr && demand.known ? graph_pool_of(*card) : nullptr;
  if (pool == nullptr) {
    return card == nullptr ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const Hold hold(pool->lock);
  if (!charge_in_pool(*pool, demand.bytes, nullptr)) {
    return revoked(*card) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = make();
  if (result == CUDA_SUCCESS && memory.objects.insert({reinterpret_cast<std::uint64_t>(*out), demand.bytes, 0,
                                                       index_of(*card), Kind::kGraph, 1})) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuGraphExecDestroy)(*out);
  }
  leave_pool(*pool, demand.bytes);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

template <class Call>
CUresult update(CUgraphExec graph, Call call) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  if (now == Duty::kMeter) {
    forget_duration(graph_key(graph));
  }
  return call();
}

}  // namespace

CARVE_EXPORT CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log,
                                         std::size_t size) {
  return instantiate(out, graph, [=] { return CARVE_DRIVER(cuGraphInstantiate)(out, graph, error, log, size); });
}
CARVE_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log,
                                            std::size_t size) {
  return instantiate(out, graph,
                     [=] { return CARVE_DRIVER(cuGraphInstantiate_v2)(out, graph, error, log, size); });
}
CARVE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiate(out, graph, [=] { return CARVE_DRIVER(cuGraphInstantiateWithFlags)(out, graph, flags); });
}
CARVE_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph, void* parameters) {
  return instantiate(out, graph,
                     [=] { return CARVE_DRIVER(cuGraphInstantiateWithParams)(out, graph, parameters); });
}
CARVE_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph, void* parameters) {
  return instantiate(out, graph,
                     [=] { return CARVE_DRIVER(cuGraphInstantiateWithParams_ptsz)(out, graph, parameters); });
}

CARVE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuGraphExecDestroy)(graph) : refusal();
  }
  const auto key = reinterpret_cast<std::uint64_t>(graph);
  forget_duration(graph_key(graph));
  Entry entry{};
  const bool known = memory.objects.take(key, entry);
  const CUresult result = CARVE_DRIVER(cuGraphExecDestroy)(graph);
  if (known && result == CUDA_SUCCESS) {
    Pool* pool = graph_pool_of(process.cards[entry.card]);
    if (pool != nullptr) {
      const Hold hold(pool->lock);
      leave_pool(*pool, entry.bytes);
    }
  } else if (known) {
    memory.objects.insert(entry);
  }
  return result;
}

CARVE_EXPORT CUresult cuGraphExecUpdate(CUgraphExec graph, CUgraph with, CUgraphNode* error, int* outcome) {
  return update(graph, [=] { return CARVE_DRIVER(cuGraphExecUpdate)(graph, with, error, outcome); });
}
CARVE_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec graph, CUgraph with, void* outcome) {
  return update(graph, [=] { return CARVE_DRIVER(cuGraphExecUpdate_v2)(graph, with, outcome); });
}

CARVE_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuDeviceGraphMemTrim)(device);
  Card* card = now == Duty::kMeter ? card_of_device(device) : nullptr;
  if (card != nullptr) {
    refresh_pools(*card, false);
  }
  return result;
}
