#include "preload/export.h"
#include "preload/memory.h"
#include "preload/meter.h"

// The later ways by which a stream begins and ends to capture. (The first ones stand in launch.cc.) While one of these
// calls is under way no thread allocates or frees in stream order: whether a request becomes a node or memory is known
// before the driver is called, and stays so until it has answered.
using namespace carve::preload;

namespace {

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
