#include "tests/isolation/paths.h"

#include "tests/isolation/driver_calls.h"

namespace carve::isolation {

namespace {

constexpr CUmemAllocationProp on_card() { return {1, 0, {1, 0}, nullptr, {}}; }

CUresult take_linear(std::uint64_t bytes, Held* held) {
  return call("cuMemAlloc_v2", &held->a, static_cast<std::size_t>(bytes));
}
CUresult drop_linear(Held held) { return call("cuMemFree_v2", CUdeviceptr{held.a}); }

CUresult take_pitched(std::uint64_t bytes, Held* held) {
  std::size_t pitch = 0;
  return call("cuMemAllocPitch_v2", &held->a, &pitch, std::size_t{512}, static_cast<std::size_t>(bytes / 512), 4U);
}

CUresult take_managed(std::uint64_t bytes, Held* held) {
  return call("cuMemAllocManaged", &held->a, static_cast<std::size_t>(bytes), 1U);
}

CUresult take_async(std::uint64_t bytes, Held* held) {
  return call("cuMemAllocAsync", &held->a, static_cast<std::size_t>(bytes), CUstream{});
}
CUresult drop_async(Held held) {
  const CUresult result = call("cuMemFreeAsync", CUdeviceptr{held.a}, CUstream{});
  return result != 0 ? result : call("cuStreamSynchronize", CUstream{});
}
CUresult take_async_own(std::uint64_t bytes, Held* held) {
  return call("cuMemAllocAsync_ptsz", &held->a, static_cast<std::size_t>(bytes), CUstream{});
}
CUresult drop_async_own(Held held) {
  const CUresult result = call("cuMemFreeAsync_ptsz", CUdeviceptr{held.a}, CUstream{});
  return result != 0 ? result : call("cuStreamSynchronize_ptsz", CUstream{});
}

CUmemoryPool own_pool() {
  static CUmemoryPool pool = nullptr;
  if (pool == nullptr) {
    CUmemPoolProps properties{};
    properties.alloc_type = 1;
    properties.location = {1, 0};
    call("cuMemPoolCreate", &pool, &properties);
  }
  return pool;
}
CUresult take_from_pool(std::uint64_t bytes, Held* held) {
  return call("cuMemAllocFromPoolAsync", &held->a, static_cast<std::size_t>(bytes), own_pool(), CUstream{});
}
CUresult take_from_pool_own(std::uint64_t bytes, Held* held) {
  return call("cuMemAllocFromPoolAsync_ptsz", &held->a, static_cast<std::size_t>(bytes), own_pool(), CUstream{});
}

CUresult take_physical(std::uint64_t bytes, Held* held) {
  const CUmemAllocationProp where = on_card();
  return call("cuMemCreate", &held->a, static_cast<std::size_t>(bytes), &where, 0ULL);
}
CUresult drop_physical(Held held) { return call("cuMemRelease", CUmemGenericAllocationHandle{held.a}); }

/// The handle is released right after the mapping, which keeps the memory.
CUresult take_mapped(std::uint64_t bytes, Held* held) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp where = on_card();
  const auto size = static_cast<std::size_t>(bytes);
  CUresult result = call("cuMemCreate", &handle, size, &where, 0ULL);
  if (result != 0) {
    return result;
  }
  held->b = bytes;
  result = call("cuMemAddressReserve", &held->a, size, std::size_t{0}, CUdeviceptr{0}, 0ULL);
  result = result != 0 ? result : call("cuMemMap", CUdeviceptr{held->a}, size, std::size_t{0}, handle, 0ULL);
  call("cuMemRelease", handle);
  return result;
}
CUresult drop_mapped(Held held) {
  const auto size = static_cast<std::size_t>(held.b);
  const CUresult result = call("cuMemUnmap", CUdeviceptr{held.a}, size);
  call("cuMemAddressFree", CUdeviceptr{held.a}, size);
  return result;
}

/// A handle that is retained from a mapping keeps the memory after the mapping is removed.
CUresult take_retained(std::uint64_t bytes, Held* held) {
  Held mapped{};
  CUresult result = take_mapped(bytes, &mapped);
  if (result != 0) {
    return result;
  }
  result = call("cuMemRetainAllocationHandle", &held->a, reinterpret_cast<void*>(mapped.a));
  drop_mapped(mapped);
  return result;
}

/// Another pool is the card's default pool during the request.
CUresult take_from_set_pool(std::uint64_t bytes, Held* held) {
  CUmemLocation card{1, 0};
  CUmemoryPool usual = nullptr;
  CUresult result = call("cuDeviceGetMemPool", &usual, CUdevice{0});
  result = result != 0 ? result : call("cuMemSetMemPool", &card, 1, own_pool());
  result = result != 0 ? result : take_async(bytes, held);
  call("cuMemSetMemPool", &card, 1, usual);
  return result;
}

constexpr CUDA_MEM_ALLOC_NODE_PARAMS node_of(std::uint64_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.pool_props.alloc_type = 1;
  parameters.pool_props.location = {1, 0};
  parameters.bytesize = static_cast<std::size_t>(bytes);
  return parameters;
}

/// Adds an allocation of this size to an empty graph; `address` is its address.
using Fill = CUresult (*)(CUgraph graph, std::uint64_t bytes, CUdeviceptr* address);
using Instantiate = CUresult (*)(CUgraphExec* exec, CUgraph graph);

CUresult add_node(CUgraph graph, std::uint64_t bytes, CUdeviceptr* address) {
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = node_of(bytes);
  const CUresult result = call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                               std::size_t{0}, &parameters);
  *address = parameters.dptr;
  return result;
}

/// The parameters of the general node functions; the two later functions also take edge data.
struct NodeParams {
  int type;
  int reserved0[3];
  CUDA_MEM_ALLOC_NODE_PARAMS memory;
  char reserved1[232 - sizeof(CUDA_MEM_ALLOC_NODE_PARAMS)];
  long long reserved2;
};
static_assert(sizeof(NodeParams) == 256);
CUresult add_general_node(CUgraph graph, std::uint64_t bytes, CUdeviceptr* address) {
  CUgraphNode node = nullptr;
  NodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  parameters.memory = node_of(bytes);
  const CUresult result =
      call("cuGraphAddNode", &node, graph, static_cast<const CUgraphNode*>(nullptr), std::size_t{0}, &parameters);
  *address = parameters.memory.dptr;
  return result;
}
CUresult add_general_node_v2(CUgraph graph, std::uint64_t bytes, CUdeviceptr* address) {
  CUgraphNode node = nullptr;
  NodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  parameters.memory = node_of(bytes);
  const CUresult result = call("cuGraphAddNode_v2", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                               static_cast<const void*>(nullptr), std::size_t{0}, &parameters);
  *address = parameters.memory.dptr;
  return result;
}
CUresult add_child(CUgraph graph, std::uint64_t bytes, CUdeviceptr* address) {
  CUgraph child = nullptr;
  CUgraphNode node = nullptr;
  CUresult result = call("cuGraphCreate", &child, 0U);
  result = result != 0 ? result : add_node(child, bytes, address);
  result = result != 0 ? result
                       : call("cuGraphAddChildGraphNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                              std::size_t{0}, child);
  call("cuGraphDestroy", child);
  return result;
}

CUresult with_flags(CUgraphExec* exec, CUgraph graph) {
  return call("cuGraphInstantiateWithFlags", exec, graph, 0ULL);
}
CUresult the_first_way(CUgraphExec* exec, CUgraph graph) {
  return call("cuGraphInstantiate", exec, graph, static_cast<CUgraphNode*>(nullptr), static_cast<char*>(nullptr),
              std::size_t{0});
}
CUresult the_second_way(CUgraphExec* exec, CUgraph graph) {
  return call("cuGraphInstantiate_v2", exec, graph, static_cast<CUgraphNode*>(nullptr), static_cast<char*>(nullptr),
              std::size_t{0});
}
/// The memory is allocated immediately, by an upload.
struct InstantiateParams {
  std::uint64_t flags;
  CUstream upload;
  CUgraphNode error;
  int result;
};
CUresult uploaded(CUgraphExec* exec, CUgraph graph) {
  InstantiateParams parameters{2, nullptr, nullptr, 0};
  return call("cuGraphInstantiateWithParams", exec, graph, &parameters);
}
CUresult uploaded_own(CUgraphExec* exec, CUgraph graph) {
  InstantiateParams parameters{2, nullptr, nullptr, 0};
  return call("cuGraphInstantiateWithParams_ptsz", exec, graph, &parameters);
}

/// The memory is allocated when the graph is launched (or uploaded).
template <Fill fill, Instantiate instantiate>
CUresult take_graph(std::uint64_t bytes, Held* held) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr address = 0;
  CUresult result = call("cuGraphCreate", &graph, 0U);
  result = result != 0 ? result : fill(graph, bytes, &address);
  result = result != 0 ? result : instantiate(&exec, graph);
  result = result != 0 ? result : call("cuGraphLaunch", exec, CUstream{});
  result = result != 0 ? result : call("cuStreamSynchronize", CUstream{});
  *held = {address, reinterpret_cast<std::uint64_t>(graph), reinterpret_cast<std::uint64_t>(exec)};
  if (result != 0) {
    call("cuGraphDestroy", graph);
  }
  return result;
}

/// An allocation in stream order during a capture: it becomes a node.
CUresult take_captured(std::uint64_t bytes, Held* held) {
  static CUstream stream = nullptr;
  if (stream == nullptr && call("cuStreamCreate", &stream, 1U) != 0) {
    return -1;
  }
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr address = 0;
  CUresult result = call("cuStreamBeginCapture_v2", stream, 2);
  if (result != 0) {
    return result;
  }
  result = call("cuMemAllocAsync", &address, static_cast<std::size_t>(bytes), stream);
  const CUresult ended = call("cuStreamEndCapture", stream, &graph);
  result = result != 0 ? result : ended;
  result = result != 0 ? result : with_flags(&exec, graph);
  result = result != 0 ? result : call("cuGraphLaunch", exec, stream);
  result = result != 0 ? result : call("cuStreamSynchronize", stream);
  *held = {address, reinterpret_cast<std::uint64_t>(graph), reinterpret_cast<std::uint64_t>(exec)};
  if (result != 0 && graph != nullptr) {
    call("cuGraphDestroy", graph);
  }
  return result;
}

/// The executable graph is destroyed; its allocation stays until it is freed.
CUresult take_outliving(std::uint64_t bytes, Held* held) {
  const CUresult result = take_graph<add_node, with_flags>(bytes, held);
  if (result == 0) {
    call("cuGraphExecDestroy", reinterpret_cast<CUgraphExec>(held->c));
    held->c = 0;
  }
  return result;
}

CUresult drop_graph(Held held) {
  CUresult result = call("cuMemFree_v2", CUdeviceptr{held.a});
  if (held.c != 0) {
    call("cuGraphExecDestroy", reinterpret_cast<CUgraphExec>(held.c));
  }
  call("cuGraphDestroy", reinterpret_cast<CUgraph>(held.b));
  result = result != 0 ? result : call("cuDeviceGraphMemTrim", CUdevice{0});
  return result;
}

constexpr std::uint64_t kRow = 4096;  // of 1,024 floats
CUresult take_array(std::uint64_t bytes, Held* held) {
  const CUDA_ARRAY_DESCRIPTOR shape{kRow / 4, static_cast<std::size_t>(bytes / kRow), 0x20, 1};
  return call("cuArrayCreate_v2", reinterpret_cast<CUarray*>(&held->a), &shape);
}
CUresult take_array_3d(std::uint64_t bytes, Held* held) {
  const CUDA_ARRAY3D_DESCRIPTOR shape{kRow / 16, 2, static_cast<std::size_t>(bytes / kRow / 2), 0x20, 4, 0};
  return call("cuArray3DCreate_v2", reinterpret_cast<CUarray*>(&held->a), &shape);
}
CUresult drop_array(Held held) { return call("cuArrayDestroy", reinterpret_cast<CUarray>(held.a)); }

constexpr Path kPaths[] = {
    {"cuMemAlloc", take_linear, drop_linear},
    {"cuMemAlloc, freed in stream order", take_linear, drop_async},
    {"cuMemAllocPitch", take_pitched, drop_linear},
    {"cuMemAllocManaged", take_managed, drop_linear},
    {"cuMemAllocAsync", take_async, drop_async},
    {"cuMemAllocAsync, freed immediately", take_async, drop_linear},
    {"cuMemAllocAsync_ptsz", take_async_own, drop_async_own},
    {"cuMemAllocFromPoolAsync", take_from_pool, drop_async},
    {"cuMemAllocFromPoolAsync_ptsz", take_from_pool_own, drop_async_own},
    {"cuMemCreate", take_physical, drop_physical},
    {"cuMemCreate, mapped, released", take_mapped, drop_mapped},
    {"cuMemRetainAllocationHandle", take_retained, drop_physical},
    {"cuArrayCreate", take_array, drop_array},
    {"cuArray3DCreate", take_array_3d, drop_array},
    {"cuMemAllocAsync, from the pool of cuMemSetMemPool", take_from_set_pool, drop_async},
    {"graph allocation node", take_graph<add_node, with_flags>, drop_graph},
    {"graph allocation node, cuGraphInstantiate", take_graph<add_node, the_first_way>, drop_graph},
    {"graph allocation node, cuGraphInstantiate_v2", take_graph<add_node, the_second_way>, drop_graph},
    {"graph allocation node, cuGraphInstantiateWithParams, uploaded", take_graph<add_node, uploaded>, drop_graph},
    {"graph allocation node, cuGraphInstantiateWithParams_ptsz", take_graph<add_node, uploaded_own>, drop_graph},
    {"graph allocation node by cuGraphAddNode", take_graph<add_general_node, with_flags>, drop_graph},
    {"graph allocation node by cuGraphAddNode_v2", take_graph<add_general_node_v2, with_flags>, drop_graph},
    {"graph allocation node in a child graph", take_graph<add_child, with_flags>, drop_graph},
    {"graph allocation node that outlives its executable graph", take_outliving, drop_graph},
    {"cuMemAllocAsync while the stream captures", take_captured, drop_graph},
};

}  // namespace

std::span<const Path> paths() { return kPaths; }

}  // namespace carve::isolation
