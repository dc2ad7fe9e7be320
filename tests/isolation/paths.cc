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

/// The handle is released right after mapping: the mapping keeps the memory.
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

/// A handle had back from a mapping keeps the memory after the mapping is gone.
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

/// An allocation node: the memory comes when the graph is launched.
CUresult take_graph(std::uint64_t bytes, Held* held) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.pool_props.alloc_type = 1;
  parameters.pool_props.location = {1, 0};
  parameters.bytesize = static_cast<std::size_t>(bytes);
  CUresult result = call("cuGraphCreate", &graph, 0U);
  result = result != 0 ? result
                       : call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                              std::size_t{0}, &parameters);
  result = result != 0 ? result : call("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
  result = result != 0 ? result : call("cuGraphLaunch", exec, CUstream{});
  result = result != 0 ? result : call("cuStreamSynchronize", CUstream{});
  *held = {parameters.dptr, reinterpret_cast<std::uint64_t>(graph), reinterpret_cast<std::uint64_t>(exec)};
  if (result != 0) {
    call("cuGraphDestroy", graph);
  }
  return result;
}
CUresult drop_graph(Held held) {
  CUresult result = call("cuMemFree_v2", CUdeviceptr{held.a});
  call("cuGraphExecDestroy", reinterpret_cast<CUgraphExec>(held.c));
  call("cuGraphDestroy", reinterpret_cast<CUgraph>(held.b));
  result = result != 0 ? result : call("cuDeviceGraphMemTrim", CUdevice{0});
  return result;
}

constexpr Path kPaths[] = {
    {"cuMemAlloc", take_linear, drop_linear},
    {"cuMemAlloc, freed in stream order", take_linear, drop_async},
    {"cuMemAllocPitch", take_pitched, drop_linear},
    {"cuMemAllocManaged", take_managed, drop_linear},
    {"cuMemAllocAsync", take_async, drop_async},
    {"cuMemAllocAsync, freed at once", take_async, drop_linear},
    {"cuMemAllocAsync_ptsz", take_async_own, drop_async_own},
    {"cuMemAllocFromPoolAsync", take_from_pool, drop_async},
    {"cuMemAllocFromPoolAsync_ptsz", take_from_pool_own, drop_async_own},
    {"cuMemCreate", take_physical, drop_physical},
    {"cuMemCreate, mapped, released", take_mapped, drop_mapped},
    {"cuMemRetainAllocationHandle", take_retained, drop_physical},
    {"graph allocation node", take_graph, drop_graph},
};

}  // namespace

std::span<const Path> paths() { return kPaths; }

}  // namespace carve::isolation
