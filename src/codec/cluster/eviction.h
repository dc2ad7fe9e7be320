#pragma once

#include <string>
#include <string_view>

#include "codec/cluster/cluster_pod.h"

namespace carve::codec {

/// The body of POST pods/<name>/eviction for this pod (its UID is a precondition). `dry`: only asks whether the
/// eviction would be allowed.
[[nodiscard]] std::string eviction_body(const ClusterPod& pod, bool dry);

/// A merge patch of pods/<name>/status of this pod: it nominates `node`, on which victims are evicted for it; empty: no
/// node.
[[nodiscard]] std::string nomination_patch(const ClusterPod& pod, std::string_view node);

}  // namespace carve::codec
