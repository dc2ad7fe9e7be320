#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve::cmd {

/// Makes the plain files of a folder stand in another one too, each replaced whole, readable by root alone. Names that
/// begin with a dot are left out: a mounted Secret keeps its generations there. What `from` has no more stays in `to`.
///   returns  the names of those that were missing or different
///   errors   kNotFound: `from`; kInternal: `to` cannot be written, what was written by then stays
///   cost     reads every file of both folders
[[nodiscard]] Result<std::vector<std::string>> copy_changed_files(const std::string& from, const std::string& to);

}  // namespace carve::cmd
