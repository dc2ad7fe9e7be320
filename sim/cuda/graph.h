#pragma once

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "sim/cuda/copy.h"
#include "sim/cuda/launch.h"
#include "sim/cuda/pool.h"

// Graphs: nodes with their dependencies, and their executable form, a list in topological order.
namespace carve::sim::cu {

inline constexpr std::uint32_t kGraphMagic = 0xC0DE0008;
inline constexpr std::uint32_t kNodeMagic = 0xC0DE0009;
inline constexpr std::uint32_t kExecMagic = 0xC0DE000A;

/// The driver's node types, with the same numbers.
enum class NodeKind : int {
  kKernel = 0,
  kCopy = 1,
  kFill = 2,
  kHost = 3,
  kGraph = 4,
  kEmpty = 5,
  kEventWait = 6,
  kEventRecord = 7,
  kAlloc = 10,
  kFree = 11,
};

/// The memory of an alloc node: it has addresses from its creation and is charged from the first launch.
struct GraphMemory {
  Device* device = nullptr;
  std::uint64_t base = 0, size = 0, span = 0;
  std::uint64_t handle = 0;  // the daemon's handle of the charge; 0: not charged
  bool live = false;         // allocated and not yet freed, in stream order
  CUmemPoolProps props = {};
  GraphMemory() = default;
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();
};

struct NodeBody {
  NodeKind kind = NodeKind::kEmpty;
  KernelCall kernel;
  CopyBox copy;
  CUDA_MEMCPY3D copy_record = {};  // as passed, for the getters
  Fill fill;
  CUhostFn function = nullptr;
  void* data = nullptr;
  Graph* child = nullptr;
  Event* event = nullptr;
  std::shared_ptr<GraphMemory> memory;
  CUdeviceptr address = 0;  // kFree
};

struct GraphNode {
  std::uint32_t magic = kNodeMagic;
  Graph* graph = nullptr;
  std::uint32_t id = 0;
  NodeBody body;
  std::vector<GraphNode*> needs;
  GraphNode* cloned_from = nullptr;
  std::vector<void*> pointers;  // pointers to the kept arguments, for the getters
};

struct Graph {
  std::uint32_t magic = kGraphMagic;
  std::uint32_t id = 0;
  std::uint32_t next_node = 1;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<std::pair<UserObject*, unsigned>> objects;
  bool child = false;  // owned by a node
  ~Graph();
};

struct ExecNode {
  NodeBody body;
  const GraphNode* origin = nullptr;  // used as an identity only: the graph may be destroyed
  std::size_t needs = 0;
  bool enabled = true;
};

struct GraphExec {
  std::uint32_t magic = kExecMagic;
  std::uint32_t id = 0;
  std::uint64_t flags = 0;
  Context* context = nullptr;
  Mutex mutex;
  std::vector<ExecNode> nodes GUARDED_BY(mutex);
  std::vector<std::pair<UserObject*, unsigned>> objects;
};

inline Graph* checked_graph(CUgraph g) {
  return g != nullptr && g->magic == kGraphMagic ? g : nullptr;
}
inline GraphNode* checked_node(CUgraphNode n) {
  return n != nullptr && n->magic == kNodeMagic ? n : nullptr;
}
inline GraphExec* checked_exec(CUgraphExec e) {
  return e != nullptr && e->magic == kExecMagic ? e : nullptr;
}

Graph* make_graph();
std::unique_ptr<Graph> clone_graph(const Graph& graph);
GraphNode* add_node(Graph* graph, const NodeBody& body, const std::vector<GraphNode*>& needs);
/// Nodes in an order that respects all dependencies; false when they form a cycle.
bool ordered(const Graph& graph, std::vector<GraphNode*>* out);
/// All nodes, with child graphs expanded.
bool flatten(const Graph& graph, std::vector<ExecNode>* out);

CUresult launch_exec(GraphExec* exec, Stream* stream);
/// Charges the memory of alloc nodes (in cuGraphUpload, and as the first step of a launch).
CUresult charge_memory(GraphExec* exec) REQUIRES(exec->mutex);
/// New memory for an alloc node: addresses without a charge.
std::shared_ptr<GraphMemory> make_graph_memory(Device* device, std::uint64_t size);
/// Starts the life of an alloc node's memory when a launch reaches the node.
CUresult begin_life(const std::shared_ptr<GraphMemory>& memory, Context* context, bool auto_free);
CUresult end_life(CUdeviceptr address);
/// Releases the charge unless the memory is live.
void uncharge(GraphMemory* memory);
/// Frees a graph's memory from outside the graph.
bool free_graph_memory(CUdeviceptr address);

void retain_object(UserObject* object, unsigned count);
void release_object(UserObject* object, unsigned count);

}  // namespace carve::sim::cu
