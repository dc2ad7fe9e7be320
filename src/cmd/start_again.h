#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve::cmd {

/// The arguments of this process, without the program's name.
[[nodiscard]] Result<std::vector<std::string>> own_arguments();

/// Replaces this process with a new start of the same program with the same arguments, which reads its settings again.
/// The process ID stays, so the container does not end. Call it when all threads of the process have ended. Does not
/// return, except with an exit code: kExitOk if a stop signal is pending, otherwise after an error that it reported.
[[nodiscard]] int start_again();

}  // namespace carve::cmd
