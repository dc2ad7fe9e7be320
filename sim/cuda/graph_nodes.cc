#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/graph_params.h"

// Adds nodes explicitly, and reads and changes their parameters.
namespace carve::sim::cu {
namespace {

CUresult add(CUgraphNode* out, CUgraph handle, const CUgraphNode* needs, std::size_t n,
             const NodeBody& body) {
  Graph* graph = checked_graph(handle);
  if (out == nullptr || graph == nullptr || (n > 0 && needs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> list;
  for (std::size_t i = 0; i < n; ++i) {
    if (checked_node(needs[i]) == nullptr || needs[i]->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
    if (std::find(list.begin(), list.end(), needs[i]) != list.end())
      return CUDA_ERROR_INVALID_VALUE;
    list.push_back(needs[i]);
  }
  *out = add_node(graph, body, list);
  return CUDA_SUCCESS;
}

/// Changes an executable node's body; the kinds must be equal.
CUresult change(CUgraphExec handle, CUgraphNode origin, const NodeBody& body) {
  GraphExec* exec = checked_exec(handle);
  if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(exec->mutex);
  for (ExecNode& node : exec->nodes) {
    if (node.origin != origin) continue;
    if (node.body.kind != body.kind) return CUDA_ERROR_INVALID_VALUE;
    node.body = body;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult change(CUgraphNode handle, const NodeBody& body) {
  GraphNode* node = checked_node(handle);
  if (node == nullptr || node->body.kind != body.kind) return CUDA_ERROR_INVALID_VALUE;
  node->body = body;
  return CUDA_SUCCESS;
}

const GraphNode* of_kind(CUgraphNode handle, NodeKind kind) {
  const GraphNode* node = checked_node(handle);
  return node != nullptr && node->body.kind == kind ? node : nullptr;
}

NodeBody child_body(CUgraph child) {
  NodeBody body;
  body.kind = NodeKind::kGraph;
  body.child = child;
  return body;
}

NodeBody event_body(NodeKind kind, CUevent event) {
  NodeBody body;
  body.kind = kind;
  body.event = event;
  return body;
}

bool good_event(CUevent event) { return event != nullptr && event->magic == kEventMagic; }

}  // namespace

CUresult body_of(const KernelNodeParams& p, CUfunction kernel, NodeBody* body) {
  body->kind = NodeKind::kKernel;
  KernelCall& call = body->kernel;
  call.function = p.func != nullptr ? p.func : kernel;
  const unsigned grid[3] = {p.gridDimX, p.gridDimY, p.gridDimZ};
  const unsigned block[3] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  std::copy_n(grid, 3, call.grid);
  std::copy_n(block, 3, call.block);
  call.shared = p.sharedMemBytes;
  if (const CUresult rc = check(call); rc != CUDA_SUCCESS) return rc;
  keep_arguments(&call, p.kernelParams, p.extra);
  return CUDA_SUCCESS;
}

CUresult body_of(const CUDA_MEMCPY3D& p, NodeBody* body) {
  body->kind = NodeKind::kCopy;
  body->copy_record = p;
  if (const CUresult rc = box_of(p, &body->copy); rc != CUDA_SUCCESS) return rc;
  return check(&body->copy, false);
}

CUresult body_of(const MemsetNodeParams& p, NodeBody* body) {
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.height == 0 || p.width == 0) return CUDA_ERROR_INVALID_VALUE;
  body->kind = NodeKind::kFill;
  body->fill = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
  return check(body->fill);
}

CUresult body_of(const HostNodeParams& p, NodeBody* body) {
  if (p.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  body->kind = NodeKind::kHost;
  body->function = p.fn;
  body->data = p.userData;
  return CUDA_SUCCESS;
}

CUresult body_of(AllocNodeParams* p, NodeBody* body) {
  if (p->bytesize == 0 || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  Device* device = Driver::get().device(p->poolProps.location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  body->kind = NodeKind::kAlloc;
  body->memory = make_graph_memory(device, p->bytesize);
  if (body->memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  body->memory->props = p->poolProps;
  p->dptr = body->memory->base;
  return CUDA_SUCCESS;
}

void params_of(GraphNode* node, KernelNodeParams* p) {
  KernelCall& call = node->body.kernel;
  node->pointers.clear();
  for (const KernelParameter& parameter : call.function->parameters)
    if (parameter.offset + parameter.size <= call.arguments.size())
      node->pointers.push_back(call.arguments.data() + parameter.offset);
  *p = {call.function, call.grid[0],  call.grid[1],
        call.grid[2],  call.block[0], call.block[1],
        call.block[2], call.shared,   node->pointers.empty() ? nullptr : node->pointers.data(),
        nullptr};
}

#define CU_NODE_HEAD CUgraphNode *out, CUgraph graph, const CUgraphNode *needs, std::size_t n

CU_EXPORT CUresult cuGraphAddKernelNode(CU_NODE_HEAD, const KernelNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, nullptr, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphAddKernelNode_v2(CU_NODE_HEAD, const KernelNodeParams2* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p->first, p->kern, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, KernelNodeParams* p) {
  CU_NEED_INIT();
  if (p == nullptr || of_kind(node, NodeKind::kKernel) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params_of(node, p);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, KernelNodeParams2* p) {
  CU_NEED_INIT();
  if (p == nullptr || of_kind(node, NodeKind::kKernel) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params_of(node, &p->first);
  p->kern = nullptr;
  p->ctx = nullptr;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const KernelNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, nullptr, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const KernelNodeParams2* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p->first, p->kern, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const KernelNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, nullptr, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}
CU_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                     const KernelNodeParams2* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p->first, p->kern, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}

CU_EXPORT CUresult cuGraphAddMemcpyNode(CU_NODE_HEAD, const CUDA_MEMCPY3D* p, CUcontext) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* p) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kCopy);
  if (p == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = node->body.copy_record;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const CUDA_MEMCPY3D* p, CUcontext) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}

CU_EXPORT CUresult cuGraphAddMemsetNode(CU_NODE_HEAD, const MemsetNodeParams* p, CUcontext) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, MemsetNodeParams* p) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kFill);
  if (p == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Fill& fill = node->body.fill;
  *p = {fill.to, fill.pitch, fill.value, fill.element, fill.width, fill.height};
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const MemsetNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  const MemsetNodeParams* p, CUcontext) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}

CU_EXPORT CUresult cuGraphAddHostNode(CU_NODE_HEAD, const HostNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode handle, HostNodeParams* p) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kHost);
  if (p == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = {node->body.function, node->body.data};
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const HostNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const HostNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(*p, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}

CU_EXPORT CUresult cuGraphAddEmptyNode(CU_NODE_HEAD) {
  CU_NEED_INIT();
  return add(out, graph, needs, n, NodeBody{});
}
CU_EXPORT CUresult cuGraphAddChildGraphNode(CU_NODE_HEAD, CUgraph child) {
  CU_NEED_INIT();
  if (checked_graph(child) == nullptr || child == graph) return CUDA_ERROR_INVALID_VALUE;
  return add(out, graph, needs, n, child_body(child));
}
CU_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kGraph);
  if (out == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = node->body.child;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphAddEventRecordNode(CU_NODE_HEAD, CUevent event) {
  CU_NEED_INIT();
  if (!good_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  return add(out, graph, needs, n, event_body(NodeKind::kEventRecord, event));
}
CU_EXPORT CUresult cuGraphAddEventWaitNode(CU_NODE_HEAD, CUevent event) {
  CU_NEED_INIT();
  if (!good_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  return add(out, graph, needs, n, event_body(NodeKind::kEventWait, event));
}
CU_EXPORT CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode handle, CUevent* event) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kEventRecord);
  if (event == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = node->body.event;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode handle, CUevent* event) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kEventWait);
  if (event == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *event = node->body.event;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  CU_NEED_INIT();
  return good_event(event) ? change(node, event_body(NodeKind::kEventRecord, event))
                           : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  CU_NEED_INIT();
  return good_event(event) ? change(node, event_body(NodeKind::kEventWait, event))
                           : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                      CUevent event) {
  CU_NEED_INIT();
  return good_event(event) ? change(exec, node, event_body(NodeKind::kEventRecord, event))
                           : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                    CUevent event) {
  CU_NEED_INIT();
  return good_event(event) ? change(exec, node, event_body(NodeKind::kEventWait, event))
                           : CUDA_ERROR_INVALID_HANDLE;
}

CU_EXPORT CUresult cuGraphAddMemAllocNode(CU_NODE_HEAD, AllocNodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, AllocNodeParams* p) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kAlloc);
  if (p == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *p = {node->body.memory->props, nullptr, 0, node->body.memory->size, node->body.memory->base};
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphAddMemFreeNode(CU_NODE_HEAD, CUdeviceptr address) {
  CU_NEED_INIT();
  NodeBody body;
  body.kind = NodeKind::kFree;
  body.address = address;
  return add(out, graph, needs, n, body);
}
CU_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* address) {
  CU_NEED_INIT();
  const GraphNode* node = of_kind(handle, NodeKind::kFree);
  if (address == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *address = node->body.address;
  return CUDA_SUCCESS;
}

namespace {

/// The body from the general record; an error for a kind that is not supported.
CUresult body_of(NodeParams* p, NodeBody* body) {
  switch (static_cast<NodeKind>(p->type)) {
    case NodeKind::kKernel:
      return body_of(p->kernel.first, p->kernel.kern, body);
    case NodeKind::kCopy:
      return body_of(p->copy.params, body);
    case NodeKind::kFill:
      return body_of(p->fill, body);
    case NodeKind::kHost:
      return body_of(p->host, body);
    case NodeKind::kGraph:
      if (checked_graph(p->child) == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *body = child_body(p->child);
      return CUDA_SUCCESS;
    case NodeKind::kEmpty:
      return CUDA_SUCCESS;
    case NodeKind::kEventWait:
    case NodeKind::kEventRecord:
      if (!good_event(p->event)) return CUDA_ERROR_INVALID_HANDLE;
      *body = event_body(static_cast<NodeKind>(p->type), p->event);
      return CUDA_SUCCESS;
    case NodeKind::kAlloc:
      return body_of(&p->alloc, body);
    case NodeKind::kFree:
      body->kind = NodeKind::kFree;
      body->address = p->address;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult add_general(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs, std::size_t n,
                     NodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p, &body);
  return rc != CUDA_SUCCESS ? rc : add(out, graph, needs, n, body);
}

}  // namespace

CU_EXPORT CUresult cuGraphAddNode(CU_NODE_HEAD, NodeParams* p) {
  return add_general(out, graph, needs, n, p);
}
CU_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs,
                                     const void*, std::size_t n, NodeParams* p) {
  return add_general(out, graph, needs, n, p);
}
CU_EXPORT CUresult cuGraphAddNode_v3(CUgraphNode* out, CUgraph graph, const CUgraphNode* needs,
                                     const void*, std::size_t n, NodeParams* p) {
  return add_general(out, graph, needs, n, p);
}
CU_EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, NodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p, &body);
  return rc != CUDA_SUCCESS ? rc : change(node, body);
}
CU_EXPORT CUresult cuGraphNodeSetParams_v2(CUgraphNode node, NodeParams* p) {
  return cuGraphNodeSetParams(node, p);
}
CU_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, NodeParams* p) {
  CU_NEED_INIT();
  NodeBody body;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult rc = body_of(p, &body);
  return rc != CUDA_SUCCESS ? rc : change(exec, node, body);
}

CU_EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, int, void* value) {
  CU_NEED_INIT();
  if (value == nullptr || of_kind(handle, NodeKind::kKernel) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  std::memset(value, 0, 64);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, int, const void* value) {
  CU_NEED_INIT();
  return value == nullptr || of_kind(handle, NodeKind::kKernel) == nullptr
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}
CU_EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  CU_NEED_INIT();
  return of_kind(to, NodeKind::kKernel) == nullptr || of_kind(from, NodeKind::kKernel) == nullptr
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
