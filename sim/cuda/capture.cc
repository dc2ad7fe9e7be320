#include "sim/cuda/capture.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "base/mutex.h"
#include "sim/cuda/graph.h"

namespace carve::sim::cu {

/// One capture, from its begin call to its end call. Several streams may have joined it. Never freed, because events
/// that were recorded inside keep pointing to it.
struct Capture {
  Graph* graph = nullptr;
  bool own_graph = true;  // created for this capture, not passed by the program
  std::uint64_t id = 0;
  Stream* origin = nullptr;
  int mode = 0;
  std::uint64_t thread = 0;  // the thread that began the capture
  bool invalid = false;
  bool ended = false;
  std::unordered_map<Stream*, std::vector<GraphNode*>>
      tips;  // the nodes that a stream's next node depends on
};

namespace {

Mutex g_mutex;  // for all captures: capturing is not a hot path
std::vector<Capture*> g_active GUARDED_BY(g_mutex);
std::atomic<int> g_active_count{0};
enum : int { kNone = 0, kActive = 1, kInvalidated = 2 };
enum : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

/// Removes all streams from the capture.
void finish(Capture* capture) REQUIRES(g_mutex) {
  for (auto& [stream, tip] : capture->tips) stream->capture.store(nullptr);
  capture->tips.clear();
  capture->ended = true;
  std::erase(g_active, capture);
  g_active_count.store(static_cast<int>(g_active.size()));
}

void merge(std::vector<GraphNode*>* into, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more)
    if (std::find(into->begin(), into->end(), node) == into->end()) into->push_back(node);
}

/// True when every tip of the joined streams is an ancestor of one of the origin's tips.
bool joined(const Capture& capture) {
  std::unordered_set<const GraphNode*> before;
  std::vector<GraphNode*> open = capture.tips.at(capture.origin);
  while (!open.empty()) {
    GraphNode* node = open.back();
    open.pop_back();
    if (!before.insert(node).second) continue;
    open.insert(open.end(), node->needs.begin(), node->needs.end());
  }
  for (const auto& [stream, tip] : capture.tips)
    for (const GraphNode* node : tip)
      if (!before.contains(node)) return false;
  return true;
}

CUresult begin(CUstream handle, int mode, CUgraph graph, const CUgraphNode* needs, std::size_t n,
               std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const MutexLock lock(g_mutex);
  if (stream->capture.load() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto* capture = new Capture();
  capture->own_graph = graph == nullptr;
  capture->graph = graph != nullptr ? graph : make_graph();
  capture->id = Driver::get().next_id();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = thread_state().number;
  g_active.push_back(capture);
  g_active_count.store(static_cast<int>(g_active.size()));
  capture->tips[stream] =
      n > 0 ? std::vector<GraphNode*>(needs, needs + n) : std::vector<GraphNode*>{};
  stream->capture.store(capture);
  return CUDA_SUCCESS;
}

CUresult begin_to_graph(CUstream handle, CUgraph graph, const CUgraphNode* needs, std::size_t n,
                        int mode, std::uintptr_t zero) {
  CU_NEED_INIT();
  if (checked_graph(graph) == nullptr || (n > 0 && needs == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  return begin(handle, mode, graph, needs, n, zero);
}

CUresult end(CUstream handle, CUgraph* out, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != kRelaxed && capture->thread != thread_state().number)
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const bool good = !capture->invalid;
  const bool whole = joined(*capture);
  finish(capture);
  if (good && whole) {
    *out = capture->graph;
    return CUDA_SUCCESS;
  }
  if (capture->own_graph) delete capture->graph;
  return good ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult is_capturing(CUstream handle, int* status, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->legacy && g_active_count.load(std::memory_order_relaxed) != 0) {
    // The driver reports the error, and the capture continues.
    const MutexLock lock(g_mutex);
    for (const Capture* active : g_active)
      for (const auto& [other, tip] : active->tips)
        if (other->blocking && other->context == stream->context) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  const Capture* capture = stream->capture.load();
  *status = capture == nullptr ? kNone : capture->invalid ? kInvalidated : kActive;
  return CUDA_SUCCESS;
}

CUresult info(CUstream handle, int* status, std::uint64_t* id, CUgraph* graph,
              const CUgraphNode** needs, const void** edges, std::size_t* n, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  *status = capture == nullptr ? kNone : capture->invalid ? kInvalidated : kActive;
  if (capture == nullptr || capture->invalid) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = capture->graph;
  if (edges != nullptr) *edges = nullptr;
  const auto& tip = capture->tips[stream];
  if (needs != nullptr) *needs = tip.empty() ? nullptr : tip.data();
  if (n != nullptr) *n = tip.size();
  return CUDA_SUCCESS;
}

CUresult update(CUstream handle, CUgraphNode* nodes, std::size_t n, unsigned flags,
                std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (flags > 1 || (n > 0 && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto& tip = capture->tips[stream];
  if (flags == 1) tip.clear();  // set, rather than add
  merge(&tip, std::vector<GraphNode*>(nodes, nodes + n));
  return CUDA_SUCCESS;
}

}  // namespace

CUresult refuse_unsafe_call() {
  if (g_active_count.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const ThreadState& thread = thread_state();
  if (thread.capture_mode == kRelaxed) return CUDA_SUCCESS;
  const MutexLock lock(g_mutex);
  CUresult rc = CUDA_SUCCESS;
  for (Capture* capture : g_active) {
    const bool own = capture->thread == thread.number && capture->mode != kRelaxed;
    const bool global = capture->mode == kGlobal && thread.capture_mode == kGlobal;
    if (!own && !global) continue;
    capture->invalid = true;
    rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return rc;
}

CUresult refuse_implicit(const Stream* stream) {
  if (!stream->legacy || g_active_count.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const MutexLock lock(g_mutex);
  for (Capture* capture : g_active)
    for (const auto& [other, tip] : capture->tips)
      if (other->blocking && other->context == stream->context) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
  return CUDA_SUCCESS;
}

CUresult refuse_while_capturing(Stream* stream) {
  Capture* capture = stream->capture.load(std::memory_order_relaxed);
  if (capture == nullptr) return CUDA_SUCCESS;
  const MutexLock lock(g_mutex);
  capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void abandon_capture(Stream* stream) {
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  if (capture == nullptr) return;
  capture->invalid = true;
  capture->tips.erase(stream);
  if (capture->origin == stream) finish(capture);
}

CUresult capture_node(Stream* stream, const NodeBody& body, GraphNode** node) {
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto& tip = capture->tips[stream];
  GraphNode* added = add_node(capture->graph, body, tip);
  tip = {added};
  if (node != nullptr) *node = added;
  return CUDA_SUCCESS;
}

CUresult capture_host(Stream* stream, CUhostFn function, void* data) {
  NodeBody body;
  body.kind = NodeKind::kHost;
  body.function = function;
  body.data = data;
  return capture_node(stream, body);
}

CUresult capture_event_record(Stream* stream, Event* event) {
  const MutexLock lock(g_mutex);
  Capture* capture = stream->capture.load();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = capture;
  event->captured = capture->tips[stream];
  return CUDA_SUCCESS;
}

CUresult capture_event_wait(Stream* stream, Event* event) {
  const MutexLock lock(g_mutex);
  Capture* mine = stream->capture.load();
  Capture* other = event->capture;
  if (mine != nullptr && mine->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (other == nullptr || other->ended) {
    if (mine == nullptr) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->recorded && other == nullptr) return CUDA_SUCCESS;
    mine->invalid = true;  // the graph would depend on work outside the capture
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (mine == nullptr) {
    if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    stream->capture.store(other);  // the stream joins the event's capture
  } else if (mine != other) {
    mine->invalid = other->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  merge(&other->tips[stream], event->captured);
  return CUDA_SUCCESS;
}

#define CU_PAIR(name, twin, parameters, call)         \
  CU_EXPORT CUresult name parameters {                \
    constexpr std::uintptr_t zero = kStreamLegacy;    \
    return call;                                      \
  }                                                   \
  CU_EXPORT CUresult twin parameters {                \
    constexpr std::uintptr_t zero = kStreamPerThread; \
    return call;                                      \
  }

CU_PAIR(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream s),
        begin(s, 0, nullptr, nullptr, 0, zero))
CU_PAIR(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, (CUstream s, int mode),
        begin(s, mode, nullptr, nullptr, 0, zero))
CU_PAIR(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
        (CUstream s, CUgraph g, const CUgraphNode* needs, const void*, std::size_t n, int mode),
        begin_to_graph(s, g, needs, n, mode, zero))
CU_PAIR(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream s, CUgraph* out), end(s, out, zero))
CU_PAIR(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, (CUstream s, int* status),
        is_capturing(s, status, zero))
CU_PAIR(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
        (CUstream s, int* status, std::uint64_t* id),
        info(s, status, id, nullptr, nullptr, nullptr, nullptr, zero))
CU_PAIR(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
        (CUstream s, int* status, std::uint64_t* id, CUgraph* g, const CUgraphNode** needs,
         std::size_t* n),
        info(s, status, id, g, needs, nullptr, n, zero))
CU_PAIR(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
        (CUstream s, int* status, std::uint64_t* id, CUgraph* g, const CUgraphNode** needs,
         const void** edges, std::size_t* n),
        info(s, status, id, g, needs, edges, n, zero))
CU_PAIR(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
        (CUstream s, CUgraphNode* nodes, std::size_t n, unsigned flags),
        update(s, nodes, n, flags, zero))
CU_PAIR(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
        (CUstream s, CUgraphNode* nodes, const void*, std::size_t n, unsigned flags),
        update(s, nodes, n, flags, zero))

CU_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  CU_NEED_INIT();
  if (mode == nullptr || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_state().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
