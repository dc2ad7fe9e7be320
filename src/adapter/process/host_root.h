#pragma once

#include <string>

#include "base/result.h"

namespace carve::process {

/// Makes the host's file system, mounted at `host_root`, the root of this process: all files that it opens afterwards,
/// and all paths that it reports, are the host's. The parts of the C library that a vendor's library needs are loaded
/// first, so that the host's files, perhaps of another version, are not mixed with those in use. Only for a process
/// with this single purpose; it cannot be undone.
///   errors  kPermissionDenied: the process lacks CAP_SYS_CHROOT; kNotFound: the folder does not exist
///   source  chroot(2); dlopen(3): a library is not searched again if its SONAME is already loaded
[[nodiscard]] Result<void> enter_host_root(const std::string& host_root);

}  // namespace carve::process
