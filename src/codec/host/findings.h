#pragma once

#include <string>
#include <vector>

#include "core/model/finding.h"

namespace carve::codec {

/// [{"id", "severity": "error" | "warning" | "note", "what", "cause", "fix"}, …]
[[nodiscard]] std::string to_json(const std::vector<Finding>& findings);

}  // namespace carve::codec
