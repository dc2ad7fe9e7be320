#include "sim/cuda/capture.h"

#include "sim/cuda/graph.h"
namespace carve::sim::cu {
CUresult refuse_while_capturing(Stream* stream) {
  return stream->capture.load() == nullptr ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
void abandon_capture(Stream*) {}
CUresult capture_host(Stream*, CUhostFn, void*) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult capture_event_record(Stream*, Event*) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult capture_event_wait(Stream*, Event*) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
CUresult capture_node(Stream*, const NodeBody&, GraphNode**) { return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
}  // namespace carve::sim::cu
