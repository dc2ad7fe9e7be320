#include <algorithm>

#include "base/mutex.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"

// Executable graphs. A launch becomes as few commands as possible: everything between two host functions or events is
// one command with the sum of its parts as duration, because the card runs one kernel at a time anyway.
namespace carve::sim::cu {
namespace {

constexpr std::uint64_t kAutoFree = 1;
constexpr std::uint64_t kUpload = 2;
constexpr std::uint64_t kFlagsKnown = 15;

struct InstantiateParams {
  std::uint64_t flags;
  CUstream upload;
  CUgraphNode error_node;
  int result;
};

struct UpdateResult {
  int result;
  CUgraphNode error_node, error_from;
};
enum : int { kUpdated = 0, kUpdateError = 1, kTopologyChanged = 2, kTypeChanged = 3 };

CUresult instantiate(CUgraphExec* out, CUgraph handle, std::uint64_t flags) {
  CU_NEED_CONTEXT(context);
  const Graph* graph = checked_graph(handle);
  if (out == nullptr || graph == nullptr || (flags & ~kFlagsKnown) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_unique<GraphExec>();
  std::vector<ExecNode> nodes;
  if (!flatten(*graph, &nodes)) return CUDA_ERROR_INVALID_VALUE;
  for (const ExecNode& node : nodes)
    if (node.body.kind == NodeKind::kKernel && checked_function(node.body.kernel.function) == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
  {
    const MutexLock lock(exec->mutex);
    exec->nodes = std::move(nodes);
  }
  exec->id = graph->id;
  exec->flags = flags;
  exec->context = context;
  for (const auto& [object, count] : graph->objects) {
    retain_object(object, count);
    exec->objects.emplace_back(object, count);
  }
  *out = exec.release();
  return CUDA_SUCCESS;
}

/// The work gathered since the last host function or event.
struct Segment {
  std::uint64_t duration = 0;
  std::uint64_t kernels = 0;
  bool any = false;
};

void flush(Segment* segment, Stream* stream) {
  if (segment->any) submit(stream, CommandKind::kCompute, segment->duration, 0, segment->kernels);
  *segment = {};
}

CUresult play_node(const GraphExec& exec, const NodeBody& body, Stream* stream, Segment* segment) {
  CommandKind engine;
  switch (body.kind) {
    case NodeKind::kKernel:
      in_order(stream, [call = body.kernel] { compute(call); });
      segment->duration += duration_of(*body.kernel.function, body.kernel.grid, body.kernel.block);
      ++segment->kernels;
      segment->any = true;
      return CUDA_SUCCESS;
    case NodeKind::kCopy:
      in_order(stream, [box = body.copy] { move_bytes(box); });
      segment->duration += duration_of(body.copy, &engine);
      segment->any = true;
      return CUDA_SUCCESS;
    case NodeKind::kFill:
      in_order(stream, [fill = body.fill] { fill_bytes(fill); });
      segment->duration += duration_of(body.fill);
      segment->any = true;
      return CUDA_SUCCESS;
    case NodeKind::kHost:
      flush(segment, stream);
      append_host(stream, [f = body.function, data = body.data] { f(data); });
      return CUDA_SUCCESS;
    case NodeKind::kEventRecord: {
      flush(segment, stream);
      const MutexLock lock(body.event->mutex);
      body.event->point = {stream->index, submit(stream, CommandKind::kMark, 0, body.event->slot)};
      body.event->recorded = true;
      return CUDA_SUCCESS;
    }
    case NodeKind::kEventWait:
      flush(segment, stream);
      if (body.event->recorded && body.event->point.index != stream->index &&
          !reached(body.event->point))
        submit(stream, CommandKind::kWait, 0, body.event->point.index, body.event->point.target);
      return CUDA_SUCCESS;
    case NodeKind::kAlloc:
      return begin_life(body.memory, stream->context, (exec.flags & kAutoFree) != 0);
    case NodeKind::kFree:
      return end_life(body.address);
    default:
      return CUDA_SUCCESS;
  }
}

CUresult launch_handle(CUgraphExec handle, CUstream stream_handle, std::uintptr_t zero) {
  CU_STREAM(stream, stream_handle, zero);
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() == nullptr) return launch_exec(exec, stream);
  // A graph launched into a capture becomes a child graph. Its nodes form a chain in execution order.
  const std::unique_ptr<Graph> chain(make_graph());
  std::vector<GraphNode*> previous;
  {
    const MutexLock lock(exec->mutex);
    for (const ExecNode& node : exec->nodes)
      if (node.enabled) previous = {add_node(chain.get(), node.body, previous)};
  }
  NodeBody body;
  body.kind = NodeKind::kGraph;
  body.child = chain.get();
  return capture_node(stream, body);
}

CUresult upload(CUgraphExec handle, CUstream stream_handle, std::uintptr_t zero) {
  CU_STREAM(stream, stream_handle, zero);
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(exec->mutex);
  return charge_memory(exec);
}

CUresult update(CUgraphExec handle, CUgraph graph_handle, UpdateResult* result) {
  CU_NEED_INIT();
  GraphExec* exec = checked_exec(handle);
  const Graph* graph = checked_graph(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<ExecNode> fresh;
  *result = {kUpdated, nullptr, nullptr};
  const MutexLock lock(exec->mutex);
  if (!flatten(*graph, &fresh) || fresh.size() != exec->nodes.size()) {
    result->result = kTopologyChanged;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (fresh[i].body.kind == exec->nodes[i].body.kind && fresh[i].needs == exec->nodes[i].needs)
      continue;
    result->result =
        fresh[i].body.kind == exec->nodes[i].body.kind ? kTopologyChanged : kTypeChanged;
    result->error_node = const_cast<GraphNode*>(fresh[i].origin);
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  for (std::size_t i = 0; i < fresh.size(); ++i)
    if (fresh[i].body.kind != NodeKind::kAlloc && fresh[i].body.kind != NodeKind::kFree)
      exec->nodes[i].body = fresh[i].body;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult launch_exec(GraphExec* exec, Stream* stream) {
  const MutexLock lock(exec->mutex);
  if (const CUresult rc = charge_memory(exec); rc != CUDA_SUCCESS) return rc;
  Segment segment;
  for (const ExecNode& node : exec->nodes) {
    if (!node.enabled) continue;
    if (const CUresult rc = play_node(*exec, node.body, stream, &segment); rc != CUDA_SUCCESS)
      return rc;
  }
  flush(&segment, stream);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                               unsigned long long flags) {
  return instantiate(out, graph, flags);
}
CU_EXPORT CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error,
                                      char* log, std::size_t n) {
  if (error != nullptr) *error = nullptr;
  if (log != nullptr && n > 0) *log = '\0';
  return instantiate(out, graph, 0);
}
CU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error,
                                         char* log, std::size_t n) {
  return cuGraphInstantiate(out, graph, error, log, n);
}

namespace {
CUresult with_params(CUgraphExec* out, CUgraph graph, InstantiateParams* params,
                     std::uintptr_t zero) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->error_node = nullptr;
  CUresult rc = instantiate(out, graph, params->flags);
  if (rc == CUDA_SUCCESS && (params->flags & kUpload) != 0) rc = upload(*out, params->upload, zero);
  params->result = rc == CUDA_SUCCESS ? 0 : 1;
  return rc;
}
}  // namespace

CU_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                                InstantiateParams* params) {
  return with_params(out, graph, params, kStreamLegacy);
}
CU_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph,
                                                     InstantiateParams* params) {
  return with_params(out, graph, params, kStreamPerThread);
}

CU_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream s) {
  return launch_handle(exec, s, kStreamLegacy);
}
CU_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream s) {
  return launch_handle(exec, s, kStreamPerThread);
}
CU_EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream s) {
  return upload(exec, s, kStreamLegacy);
}
CU_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream s) {
  return upload(exec, s, kStreamPerThread);
}

CU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
  CU_NEED_INIT();
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  exec->magic = 0;
  {
    const MutexLock lock(exec->mutex);
    for (const ExecNode& node : exec->nodes)
      if (node.body.kind == NodeKind::kAlloc) uncharge(node.body.memory.get());
  }
  for (const auto& [object, count] : exec->objects) release_object(object, count);
  delete exec;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphExecGetFlags(CUgraphExec handle, std::uint64_t* flags) {
  CU_NEED_INIT();
  const GraphExec* exec = checked_exec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphExecGetId(CUgraphExec handle, unsigned* id) {
  CU_NEED_INIT();
  const GraphExec* exec = checked_exec(handle);
  if (exec == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = exec->id;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error,
                                     int* result) {
  UpdateResult info = {kUpdateError, nullptr, nullptr};
  const CUresult rc = update(exec, graph, &info);
  if (error != nullptr) *error = info.error_node;
  if (result != nullptr) *result = info.result;
  return rc;
}
CU_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, UpdateResult* info) {
  return info == nullptr ? CUDA_ERROR_INVALID_VALUE : update(exec, graph, info);
}

CU_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode origin, unsigned enabled) {
  CU_NEED_INIT();
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(exec->mutex);
  for (ExecNode& node : exec->nodes) {
    if (node.origin != origin) continue;
    if (node.body.kind != NodeKind::kKernel && node.body.kind != NodeKind::kCopy &&
        node.body.kind != NodeKind::kFill)
      return CUDA_ERROR_INVALID_VALUE;
    node.enabled = enabled != 0;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CU_EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode origin,
                                         unsigned* enabled) {
  CU_NEED_INIT();
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr || enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(exec->mutex);
  for (const ExecNode& node : exec->nodes) {
    if (node.origin != origin) continue;
    *enabled = node.enabled ? 1 : 0;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace carve::sim::cu
