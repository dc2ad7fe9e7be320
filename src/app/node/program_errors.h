#pragma once

#include <vector>

#include "codec/dra/event.h"
#include "codec/kubelet/node_pod.h"
#include "codec/node/gpu_object.h"
#include "port/node_slices.h"

namespace carve::node {

/// Events for the pods on a card of which the driver reported a program's own error. NVML names no process: with one
/// pod on the card it was that one's program, with several each is told that it may be its. Pure.
///   cost    O(errors × holders of the card × pods)
[[nodiscard]] std::vector<codec::EventNote> program_error_notes(const std::vector<ProgramError>& errors,
                                                                const std::vector<codec::GpuObject>& gpus,
                                                                const std::vector<codec::NodePod>& pods);

}  // namespace carve::node
