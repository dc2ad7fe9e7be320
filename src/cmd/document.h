#pragma once

#include <string>

#include "base/result.h"

namespace carve::cmd {

/// Whether -o asks for what programs read: json or yaml.
[[nodiscard]] bool is_document(const std::string& output);

/// The document as -o json or -o yaml prints it, with its last line's end.
///   errors  codec::yaml_of_json()'s
[[nodiscard]] Result<std::string> document(const std::string& json, const std::string& output);

}  // namespace carve::cmd
