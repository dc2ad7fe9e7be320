#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve::cmd {

/// Copies the plain files of a folder to another one, each replaced atomically and readable by root only. Names that
/// begin with a dot are skipped, because a mounted Secret keeps its generations there. A file that `from` no longer has
/// stays in `to`.
///   returns  the names of the files that were missing or different
///   errors   kNotFound: `from`; kInternal: `to` cannot be written, files that were written before stay
///   cost     reads every file of both folders
[[nodiscard]] Result<std::vector<std::string>> copy_changed_files(const std::string& from, const std::string& to);

}  // namespace carve::cmd
