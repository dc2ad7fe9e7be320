#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace carve::mountns {

/// The folders of builds below `lib_root` that nobody needs any more, as full paths: not `current`, named by no text in
/// `specs` (what container runtimes may still read), and mounted by no living process.
///   lib_root  as LibraryStore::install() was given it; what is no folder of a build there is left alone
///   proc      "/proc" of the namespace in which every process is seen
///   errors    a process whose mounts cannot be read: then nobody knows
///   cost      one read per mount namespace on the machine, some 0.1 ms each; nothing when there is one build only
[[nodiscard]] Result<std::vector<std::string>> unused_builds(const std::string& lib_root, const std::string& current,
                                                             const std::vector<std::string>& specs,
                                                             const std::string& proc = "/proc");

/// Removes the folder of a build, with what LibraryStore put there.
[[nodiscard]] Result<void> remove_build(const std::string& folder);

}  // namespace carve::mountns
