#pragma once

#include <string>

#include "base/result.h"

namespace carve {

/// Makes the host's file system, mounted at `host_root`, this process's /: what it opens from now on, and every path
/// that it reports, is the host's. The parts of the C library that a vendor's library asks for are loaded before, so
/// that those of the host, of another version perhaps, never meet the ones in use. For a process that does nothing
/// else; cannot be taken back.
///   errors  kPermissionDenied: needs CAP_SYS_CHROOT; kNotFound: no such folder
///   source  chroot(2); dlopen(3): a library whose SONAME is loaded is not looked for again
[[nodiscard]] Result<void> enter_host_root(const std::string& host_root);

}  // namespace carve
