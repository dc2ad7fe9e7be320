#pragma once

#include <string>
#include <string_view>

#include "codec/cluster/cluster_pod.h"

namespace carve::codec {

/// The body of POST pods/<name>/eviction: of this very pod (its UID is a precondition). `dry`: asks only whether it
/// would be allowed.
[[nodiscard]] std::string eviction_body(const ClusterPod& pod, bool dry);

/// A merge patch of pods/<name>/status of this very pod: others go on that node for it; empty: nobody does.
[[nodiscard]] std::string nomination_patch(const ClusterPod& pod, std::string_view node);

}  // namespace carve::codec
