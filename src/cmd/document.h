#pragma once

#include <string>

#include "base/result.h"

namespace carve::cmd {

/// Whether -o selects a format for programs: json or yaml.
[[nodiscard]] bool is_document(const std::string& output);

/// The document as -o json or -o yaml prints it, with a newline at its end.
///   errors  those of codec::yaml_of_json()
[[nodiscard]] Result<std::string> document(const std::string& json, const std::string& output);

}  // namespace carve::cmd
