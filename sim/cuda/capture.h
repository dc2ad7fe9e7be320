#pragma once

#include <functional>

#include "sim/cuda/stream.h"

// Stream capture: calls on a capturing stream become nodes of a graph instead of commands.
namespace carve::sim::cu {

struct NodeBody;

/// The rule for calls that may wait for, or touch, work outside of a capture (allocating, freeing,
/// asking whether something is done): while a capture goes on in this thread, or in "global" mode
/// in any thread, such a call is refused and the capture is invalid from here on. A thread whose
/// mode is "relaxed" (cuThreadExchangeStreamCaptureMode) may always call. One load when nothing is
/// being captured.
///   source  CUDA driver API, cuThreadExchangeStreamCaptureMode; seen in practice as event queries
///   of a
///           watchdog thread that break a capture in another thread
CUresult refuse_unsafe_call();
/// The legacy default stream may not be used while a stream that synchronises with it captures.
CUresult refuse_implicit(const Stream* stream);
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
