#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "port/agent_api.h"

namespace carve::api {

/// What cGPU's kernel module shows below /proc/cgpu_km, for scripts that read it: `path` is the rest of the path.
///   version                       Carve's
///   CARD/policy, CARD/max_inst    by the driver's index: cGPU's number of the policy that its slices have, and the
///                                 largest number of slices on the card
///   CARD/CONTAINER/id             the container's place on the card; CONTAINER is NAMESPACE_POD_CONTAINER
///   CARD/CONTAINER/memsize        the limit in bytes
///   CARD/CONTAINER/meminfo        "Free: BYTES": of the limit
///   (empty)                       the paths of all of them, one per line
/// Process IDs are left out, and so are default_memsize, inst_ctl and major, which set up cGPU itself.
///   errors  nullopt: there is no such file
///   source  spec: systems.md R6
[[nodiscard]] std::optional<std::string> cgpu_file(const AgentView& view, std::string_view path);

}  // namespace carve::api
