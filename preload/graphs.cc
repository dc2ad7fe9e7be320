#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/meter.h"
#include "preload/owner.h"

// Graphs that allocate. The memory that their nodes request is charged when the graph is instantiated, for the lifetime
// of the executable graph. Memory that the driver keeps for graphs afterwards is charged like a pool's.
using namespace carve::preload;

namespace {

constexpr std::size_t kNodesAtOnce = 256;
constexpr int kDeepest = 8;  // nesting levels of child graphs

struct Demand {
  std::uint64_t bytes[kMaxCards];
  bool known;    // all nodes could be read
  bool foreign;  // a node names a card that is not in the slice
};

/// A node's memory belongs to the card that the node names, regardless of the current card.
void add_node(CUgraphNode node, Demand& sum) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  if (driver.cuGraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) {
    sum.known = false;
    return;
  }
  const CUmemPoolProps& pool = parameters.pool_props;
  std::uint16_t owner = card_of_location(pool.location.type, pool.location.id, pool.alloc_type);
  if (owner == kAnyCard) {
    const Card* card = current_card();
    owner = card == nullptr ? kForeignCard : index_of(*card);
  }
  if (owner == kForeignCard) {
    sum.foreign = true;
  } else if (owner != kInHost) {
    sum.bytes[owner] += round_up(parameters.bytesize, 512);
  }
}

/// Sums the allocation nodes. A graph with more nodes than fit on the stack is read into mmap'd memory.
void add_demand(CUgraph graph, int depth, Demand& sum) {
  std::size_t count = 0;
  if (depth > kDeepest || driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    sum.known = false;
    return;
  }
  CUgraphNode few[kNodesAtOnce];
  CUgraphNode* nodes = few;
  const std::size_t length = count * sizeof(CUgraphNode);
  if (count > kNodesAtOnce) {
    void* memory_for_all = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_for_all == MAP_FAILED) {
      sum.known = false;
      return;
    }
    nodes = static_cast<CUgraphNode*>(memory_for_all);
  }
  sum.known = sum.known && (count == 0 || driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS);
  for (std::size_t i = 0; sum.known && i < count; ++i) {
    int type = -1;
    driver.cuGraphNodeGetType(nodes[i], &type);
    CUgraph child = nullptr;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      add_node(nodes[i], sum);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH &&
               driver.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS) {
      add_demand(child, depth + 1, sum);
    }
  }
  if (nodes != few) {
    munmap(nodes, length);
  }
}

Demand demand_of(CUgraph graph) {
  Demand sum{};
  sum.known = true;
  add_demand(graph, 0, sum);
  return sum;
}

void leave(std::uint32_t card, std::uint64_t bytes) {
  Pool* pool = graph_pool_of(process.cards[card]);
  if (pool != nullptr) {
    const Hold hold(pool->lock);
    leave_pool(*pool, bytes);
  }
}

void leave_all(const Demand& demand) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    if (demand.bytes[i] != 0) {
      leave(i, demand.bytes[i]);
    }
  }
}

/// Charges the demand on all cards, or on none.
CUresult charge_all(const Demand& demand) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    if (demand.bytes[i] == 0) {
      continue;
    }
    Card& card = process.cards[i];
    Pool* pool = graph_pool_of(card);
    bool fits = false;
    if (pool != nullptr) {
      const Hold hold(pool->lock);
      fits = charge_in_pool(*pool, demand.bytes[i], true);
    }
    if (!fits) {
      Demand charged = demand;
      for (std::uint32_t rest = i; rest < process.card_count; ++rest) {
        charged.bytes[rest] = 0;
      }
      leave_all(charged);
      return refused_request(card, demand.bytes[i]);
    }
  }
  return CUDA_SUCCESS;
}

/// The table has one entry per card. The keys are unique because handles are addresses of objects, and these are
/// farther apart than the number of cards.
std::uint64_t key_of(CUgraphExec graph, std::uint32_t card) {
  return reinterpret_cast<std::uint64_t>(graph) + card;
}

/// Remembers the demand of an executable graph. False: no memory for the entries.
bool keep(CUgraphExec graph, const Demand& demand) {
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    const auto card = static_cast<std::uint16_t>(i);
    if (demand.bytes[i] != 0 &&
        !memory.objects.insert({key_of(graph, i), demand.bytes[i], 0, card, Kind::kGraph, 0, 1})) {
      Entry entry{};
      for (std::uint32_t kept = 0; kept < i; ++kept) {
        memory.objects.take(key_of(graph, kept), entry);
      }
      return false;
    }
  }
  return true;
}

/// True when a graph requests more than was charged. Another thread can add allocation nodes to a graph but cannot
/// remove them. So a reading after the driver's own reading covers everything that the driver has read.
bool grew(const Demand& charged, const Demand& now) {
  bool more = now.foreign || !now.known;
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    more = more || now.bytes[i] > charged.bytes[i];
  }
  return more;
}

template <class Make>
CUresult instantiate(CUgraphExec* out, CUgraph graph, Make make) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? make() : refusal();
  }
  const Demand demand = demand_of(graph);
  if (!demand.known || demand.foreign) {
    return demand.foreign ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult charged = charge_all(demand);
  if (charged != CUDA_SUCCESS) {
    return charged;
  }
  const CUresult result = make();
  if (result == CUDA_SUCCESS && !grew(demand, demand_of(graph)) && keep(*out, demand)) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuGraphExecDestroy)(*out);
  }
  leave_all(demand);
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
  forget_duration(graph_key(graph));
  // Removed before the driver call: after it, another thread may get a graph with the same handle.
  Entry entries[kMaxCards] = {};
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    memory.objects.take(key_of(graph, i), entries[i]);
  }
  const CUresult result = CARVE_DRIVER(cuGraphExecDestroy)(graph);
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    if (entries[i].kind == Kind::kGraph && result == CUDA_SUCCESS) {
      leave(entries[i].card, entries[i].bytes);
    } else if (entries[i].key != 0) {
      memory.objects.insert(entries[i]);
    }
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
