#include "sim/cuda/graph.h"

#include <algorithm>
#include <unordered_map>

// Graphs as data: nodes, dependencies, clones, topological order.
namespace carve::sim::cu {
namespace {

std::atomic<std::uint32_t> g_graphs{1};

/// Copies the body; the copy owns its own child graph.
NodeBody clone_body(const NodeBody& body) {
  NodeBody out = body;
  if (body.kind == NodeKind::kGraph) {
    out.child = clone_graph(*body.child).release();
    out.child->child = true;
  }
  return out;
}

}  // namespace

Graph::~Graph() {
  for (const auto& [object, count] : objects) release_object(object, count);
  for (const auto& node : nodes)
    if (node->body.kind == NodeKind::kGraph) delete node->body.child;
}

Graph* make_graph() {
  auto* graph = new Graph();
  graph->id = g_graphs.fetch_add(1);
  return graph;
}

GraphNode* add_node(Graph* graph, const NodeBody& body, const std::vector<GraphNode*>& needs) {
  auto node = std::make_unique<GraphNode>();
  node->graph = graph;
  node->id = graph->next_node++;
  node->body = clone_body(body);
  node->needs = needs;
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

std::unique_ptr<Graph> clone_graph(const Graph& graph) {
  std::unique_ptr<Graph> out(make_graph());
  std::unordered_map<const GraphNode*, GraphNode*> twin;
  for (const auto& node : graph.nodes) {
    GraphNode* copy = add_node(out.get(), node->body, {});
    copy->cloned_from = node.get();
    twin[node.get()] = copy;
  }
  for (const auto& node : graph.nodes)
    for (GraphNode* need : node->needs) twin[node.get()]->needs.push_back(twin[need]);
  for (const auto& [object, count] : graph.objects) {
    retain_object(object, count);
    out->objects.emplace_back(object, count);
  }
  return out;
}

bool ordered(const Graph& graph, std::vector<GraphNode*>* out) {
  std::unordered_map<const GraphNode*, std::size_t> missing;
  std::unordered_map<const GraphNode*, std::vector<GraphNode*>> after;
  std::vector<GraphNode*> ready;
  for (const auto& node : graph.nodes) {
    missing[node.get()] = node->needs.size();
    for (GraphNode* need : node->needs) after[need].push_back(node.get());
    if (node->needs.empty()) ready.push_back(node.get());
  }
  for (std::size_t i = 0; i < ready.size(); ++i)
    for (GraphNode* next : after[ready[i]])
      if (--missing[next] == 0) ready.push_back(next);
  *out = std::move(ready);
  return out->size() == graph.nodes.size();
}

bool flatten(const Graph& graph, std::vector<ExecNode>* out) {
  std::vector<GraphNode*> order;
  if (!ordered(graph, &order)) return false;
  for (GraphNode* node : order) {
    if (node->body.kind != NodeKind::kGraph) {
      out->push_back({node->body, node, node->needs.size(), true});
    } else if (!flatten(*node->body.child, out)) {
      return false;
    }
  }
  return true;
}

CU_EXPORT CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  CU_NEED_INIT();
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = make_graph();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphDestroy(CUgraph handle) {
  CU_NEED_INIT();
  Graph* graph = checked_graph(handle);
  if (graph == nullptr || graph->child) return CUDA_ERROR_INVALID_VALUE;
  graph->magic = 0;
  delete graph;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphClone(CUgraph* out, CUgraph original) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(original);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = clone_graph(*graph).release();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(clone);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& node : graph->nodes) {
    if (node->cloned_from != original) continue;
    *out = node.get();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CU_EXPORT CUresult cuGraphGetId(CUgraph handle, unsigned* id) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(handle);
  if (graph == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = graph->id;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, int* type) {
  CU_NEED_INIT();
  const GraphNode* node = checked_node(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = static_cast<int>(node->body.kind);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphNodeGetContainingGraph(CUgraphNode handle, CUgraph* graph) {
  CU_NEED_INIT();
  const GraphNode* node = checked_node(handle);
  if (node == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = node->graph;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuGraphNodeGetLocalId(CUgraphNode handle, unsigned* id) {
  CU_NEED_INIT();
  const GraphNode* node = checked_node(handle);
  if (node == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = node->id;
  return CUDA_SUCCESS;
}

namespace {

/// The vendor's convention for lists: without an array the call returns the number; with an array it fills up to its
/// size and zeroes the rest.
CUresult list_out(const std::vector<GraphNode*>& from, CUgraphNode* nodes, std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr)
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = i < from.size() ? from[i] : nullptr;
  *count = nodes == nullptr ? from.size() : std::min(*count, from.size());
  return CUDA_SUCCESS;
}

/// Edge data is all zero: the simulator supports only full serial dependencies.
void zero_edges(void* edges, std::size_t count) {
  if (edges != nullptr) __builtin_memset(edges, 0, 8 * count);
}

std::vector<GraphNode*> nodes_of(const Graph& graph, bool roots) {
  std::vector<GraphNode*> out;
  for (const auto& node : graph.nodes)
    if (!roots || node->needs.empty()) out.push_back(node.get());
  return out;
}

CUresult edges_out(CUgraph handle, CUgraphNode* from, CUgraphNode* to, void* data,
                   std::size_t* count) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(handle);
  if (graph == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> begins, ends;
  for (const auto& node : graph->nodes) {
    for (GraphNode* need : node->needs) {
      begins.push_back(need);
      ends.push_back(node.get());
    }
  }
  std::size_t same = *count;
  if (from != nullptr && to != nullptr) zero_edges(data, std::min(*count, begins.size()));
  if (const CUresult rc = list_out(begins, from, count); rc != CUDA_SUCCESS) return rc;
  return list_out(ends, to, &same);
}

CUresult needs_out(CUgraphNode handle, CUgraphNode* nodes, void* data, std::size_t* count) {
  CU_NEED_INIT();
  const GraphNode* node = checked_node(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (nodes != nullptr) zero_edges(data, std::min(*count, node->needs.size()));
  return list_out(node->needs, nodes, count);
}

CUresult dependents_out(CUgraphNode handle, CUgraphNode* nodes, void* data, std::size_t* count) {
  CU_NEED_INIT();
  GraphNode* node = checked_node(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> out;
  for (const auto& other : node->graph->nodes)
    if (std::find(other->needs.begin(), other->needs.end(), node) != other->needs.end())
      out.push_back(other.get());
  if (nodes != nullptr) zero_edges(data, std::min(*count, out.size()));
  return list_out(out, nodes, count);
}

CUresult change_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, std::size_t n,
                      bool add) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(handle);
  if (graph == nullptr || (n > 0 && (from == nullptr || to == nullptr)))
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < n; ++i) {
    if (checked_node(from[i]) == nullptr || checked_node(to[i]) == nullptr || from[i] == to[i] ||
        from[i]->graph != graph || to[i]->graph != graph)
      return CUDA_ERROR_INVALID_VALUE;
    auto& needs = to[i]->needs;
    const auto at = std::find(needs.begin(), needs.end(), from[i]);
    if ((at != needs.end()) == add) return CUDA_ERROR_INVALID_VALUE;
    if (add) {
      needs.push_back(from[i]);
    } else {
      needs.erase(at);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(handle);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : list_out(nodes_of(*graph, false), nodes, count);
}
CU_EXPORT CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  CU_NEED_INIT();
  const Graph* graph = checked_graph(handle);
  return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                          : list_out(nodes_of(*graph, true), nodes, count);
}
CU_EXPORT CUresult cuGraphGetEdges(CUgraph g, CUgraphNode* from, CUgraphNode* to, std::size_t* n) {
  return edges_out(g, from, to, nullptr, n);
}
CU_EXPORT CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode* from, CUgraphNode* to, void* data,
                                      std::size_t* n) {
  return edges_out(g, from, to, data, n);
}
CU_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes,
                                              std::size_t* n) {
  return needs_out(node, nodes, nullptr, n);
}
CU_EXPORT CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, void* data,
                                                 std::size_t* n) {
  return needs_out(node, nodes, data, n);
}
CU_EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes,
                                                std::size_t* n) {
  return dependents_out(node, nodes, nullptr, n);
}
CU_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, void* data,
                                                   std::size_t* n) {
  return dependents_out(node, nodes, data, n);
}
CU_EXPORT CUresult cuGraphAddDependencies(CUgraph g, const CUgraphNode* from, const CUgraphNode* to,
                                          std::size_t n) {
  return change_edges(g, from, to, n, true);
}
CU_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph g, const CUgraphNode* from,
                                             const CUgraphNode* to, const void*, std::size_t n) {
  return change_edges(g, from, to, n, true);
}
CU_EXPORT CUresult cuGraphRemoveDependencies(CUgraph g, const CUgraphNode* from,
                                             const CUgraphNode* to, std::size_t n) {
  return change_edges(g, from, to, n, false);
}
CU_EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph g, const CUgraphNode* from,
                                                const CUgraphNode* to, const void*, std::size_t n) {
  return change_edges(g, from, to, n, false);
}

CU_EXPORT CUresult cuGraphDestroyNode(CUgraphNode handle) {
  CU_NEED_INIT();
  GraphNode* node = checked_node(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& nodes = node->graph->nodes;
  for (const auto& other : nodes) std::erase(other->needs, node);
  if (node->body.kind == NodeKind::kGraph) delete node->body.child;
  node->magic = 0;
  std::erase_if(nodes, [node](const auto& other) { return other.get() == node; });
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
