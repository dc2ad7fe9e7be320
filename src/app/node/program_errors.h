#pragma once

#include <vector>

#include "codec/kube/event.h"
#include "codec/kubelet/node_pod.h"
#include "codec/node/gpu_object.h"
#include "port/node_slices.h"

namespace carve::node {

/// Events for the pods on a card for which the driver reported an error of a program. NVML does not name the process.
/// With one pod on the card it was a program of that pod. With several pods each event says that it may be its program.
/// Pure.
///   cost    O(errors × holders of the card × pods)
[[nodiscard]] std::vector<codec::EventNote> program_error_notes(const std::vector<ProgramError>& errors,
                                                                const std::vector<codec::GpuObject>& gpus,
                                                                const std::vector<codec::NodePod>& pods);

}  // namespace carve::node
