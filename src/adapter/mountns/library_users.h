#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve::mountns {

/// The full paths of the build folders below `lib_root` that are no longer in use: a build is in use when it is
/// `current`, when a text in `specs` names it (the files that container runtimes may still read), or when a running
/// process has it mounted.
///   lib_root  the argument of LibraryStore::install(); folders that are not builds are ignored
///   proc      the "/proc" in which every process of the machine is visible
///   errors    the mounts of a process cannot be read: then the use of every build is unknown
///   cost      one read per mount namespace on the machine, about 0.1 ms each; none when there is only one build
[[nodiscard]] Result<std::vector<std::string>> unused_builds(const std::string& lib_root, const std::string& current,
                                                             const std::vector<std::string>& specs,
                                                             const std::string& proc = "/proc");

/// Removes the folder of a build with its content.
[[nodiscard]] Result<void> remove_build(const std::string& folder);

}  // namespace carve::mountns
