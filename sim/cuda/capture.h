#pragma once

#include <functional>

#include "sim/cuda/stream.h"

// Stream capture: calls on a capturing stream become nodes of a graph instead of commands.
namespace carve::sim::cu {

struct NodeBody;

/// CUDA_SUCCESS unless the stream captures: then the capture is invalid from here on, and this says
/// so.
CUresult refuse_while_capturing(Stream* stream);
/// Ends the stream's capture, if any, without a graph (the stream is destroyed).
void abandon_capture(Stream* stream);

CUresult capture_host(Stream* stream, CUhostFn function, void* data);
CUresult capture_event_record(Stream* stream, Event* event);
CUresult capture_event_wait(Stream* stream, Event* event);
/// Adds a node that waits for all that was captured on the stream so far.
CUresult capture_node(Stream* stream, const NodeBody& body, GraphNode** node = nullptr);

}  // namespace carve::sim::cu
