#include "preload/export.h"
#include "preload/memory.h"
#include "preload/meter.h"

// The calls that begin and end a stream's capture. During one of these calls no thread allocates or frees in stream
// order. Therefore a hook knows before the driver call whether a request becomes a node or memory, and this does not
// change until the driver has answered.
using namespace carve::preload;

namespace {

// Closes the open segments before a stream captures, because the helper must not record a marker into a graph.
template <class Call>
CUresult begin(Call call) {
  if (duty() == Duty::kUnknown) {
    return refusal();
  }
  before_capture();
  const HoldAlone change(memory.capture_lock);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    capture_began();
  }
  return result;
}

// A capture that ends with an error also counts as ended. A call for a stream that does not capture ends no capture.
template <class Call>
CUresult end(CUstream stream, bool per_thread, Call call) {
  if (duty() == Duty::kUnknown) {
    return refusal();
  }
  const HoldAlone change(memory.capture_lock);
  const bool captured = capturing(stream, per_thread);
  const CUresult result = call();
  if (captured && !capturing(stream, per_thread)) {
    capture_ended();
  }
  return result;
}

}  // namespace

CARVE_EXPORT CUresult cuStreamBeginCapture(CUstream stream) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCapture)(stream); });
}
CARVE_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCapture_v2)(stream, mode); });
}
CARVE_EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                                   const void* edges, std::size_t count, int mode) {
  return begin([=] {
    return CARVE_DRIVER(cuStreamBeginCaptureToGraph)(stream, graph, nodes, edges, count, mode);
  });
}
CARVE_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end(stream, false, [=] { return CARVE_DRIVER(cuStreamEndCapture)(stream, graph); });
}
CARVE_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCapture_ptsz)(stream); });
}
CARVE_EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCapture_v2_ptsz)(stream, mode); });
}
CARVE_EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                                   const void* edges, std::size_t count, int mode) {
  return begin([=] {
    return CARVE_DRIVER(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, nodes, edges, count, mode);
  });
}
CARVE_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end(stream, true, [=] { return CARVE_DRIVER(cuStreamEndCapture_ptsz)(stream, graph); });
}
CARVE_EXPORT CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void* callback,
                                                    void* data) {
  return begin([=] {
    return CARVE_DRIVER(cuStreamBeginRecaptureToGraph)(stream, mode, graph, callback, data);
  });
}
CARVE_EXPORT CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void* callback,
                                                         void* data) {
  return begin([=] {
    return CARVE_DRIVER(cuStreamBeginRecaptureToGraph_ptsz)(stream, mode, graph, callback, data);
  });
}
CARVE_EXPORT CUresult cuStreamBeginCaptureToCig(CUstream stream, void* parameters) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCaptureToCig)(stream, parameters); });
}
CARVE_EXPORT CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void* parameters) {
  return begin([=] { return CARVE_DRIVER(cuStreamBeginCaptureToCig_ptsz)(stream, parameters); });
}
CARVE_EXPORT CUresult cuStreamEndCaptureToCig(CUstream stream) {
  return end(stream, false, [=] { return CARVE_DRIVER(cuStreamEndCaptureToCig)(stream); });
}
CARVE_EXPORT CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
  return end(stream, true, [=] { return CARVE_DRIVER(cuStreamEndCaptureToCig_ptsz)(stream); });
}
