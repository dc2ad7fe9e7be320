#pragma once

#include <string>

#include "base/result.h"
#include "codec/kube/event.h"
#include "port/kube_api.h"

namespace carve::control {

/// The ConfigMap that control and all agents of an installation mount (deploy/control/cluster.yaml).
inline constexpr const char* kClusterConfigMap = "carve-cluster";

/// The event that the settings in that ConfigMap in namespace `namespace_name` are invalid. It is attached to the
/// ConfigMap, where the edit was made, because an administrator rarely reads the logs of two replicas after an edit. It
/// carries the ConfigMap's UID, by which `kubectl describe` finds events; without it if the ConfigMap is deleted or
/// cannot be read. src/cmd checks the settings.
///   cost    one GET
[[nodiscard]] codec::EventNote settings_refused(KubeApi& api, const std::string& namespace_name, const Error& why);

}  // namespace carve::control
