#pragma once

#include <string>

#include "base/result.h"
#include "codec/dra/event.h"
#include "port/kube_api.h"

namespace carve::control {

/// The ConfigMap that control and all agents of an installation mount (deploy/control/cluster.yaml).
inline constexpr const char* kClusterConfigMap = "carve-cluster";

/// The event on that ConfigMap in namespace `space` that what stands there cannot be used. Nobody reads the logs of
/// two replicas after an edit, so it is said where the edit was; with the ConfigMap's UID, by which `kubectl describe`
/// finds events, and without it where the ConfigMap is gone or cannot be read. What checks settings is src/cmd.
///   cost    one GET
[[nodiscard]] codec::EventNote settings_refused(KubeApi& api, const std::string& space, const Error& why);

}  // namespace carve::control
