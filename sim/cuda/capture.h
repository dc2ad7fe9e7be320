#pragma once

#include <functional>

#include "sim/cuda/stream.h"

// Stream capture: calls on a capturing stream become nodes of a graph instead of commands.
namespace carve::sim::cu {

struct NodeBody;

/// Checks a call that may wait for, or change, work outside a capture (an allocation, a free, a query for completion).
/// While this thread captures, or any thread captures in "global" mode, such a call is refused and the capture becomes
/// invalid. A thread in the mode "relaxed" (cuThreadExchangeStreamCaptureMode) may always call.
///   cost    one load when no capture is in progress
///   source  CUDA driver API, cuThreadExchangeStreamCaptureMode; seen in practice when event queries of a watchdog
///           thread break a capture in another thread
CUresult refuse_unsafe_call();
/// The legacy default stream may not be used while a stream that synchronises with it captures.
CUresult refuse_implicit(const Stream* stream);
/// CUDA_SUCCESS unless the stream captures. Otherwise the capture becomes invalid and the call returns an error.
CUresult refuse_while_capturing(Stream* stream);
/// Ends the stream's capture, if any, without a graph (the stream is destroyed).
void abandon_capture(Stream* stream);

CUresult capture_host(Stream* stream, CUhostFn function, void* data);
CUresult capture_event_record(Stream* stream, Event* event);
CUresult capture_event_wait(Stream* stream, Event* event);
/// Adds a node that depends on everything captured on the stream so far.
CUresult capture_node(Stream* stream, const NodeBody& body, GraphNode** node = nullptr);

}  // namespace carve::sim::cu
