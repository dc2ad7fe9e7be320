#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/loader_cache.h"

// What the hook of a container device does as a container is created: the loader's cache of this container names the
// driver's libraries, as it would had `ldconfig` run in the container after they were mounted.
namespace carve::cdi {

/// Where the container's file system is seen while it is created.
///   in      state: what a runtime writes to a hook's standard input (JSON)
///   errors  kInvalidArgument: no bundle in it, no root in the bundle's config.json; else the system's reason
///   source  OCI runtime specification, "State" and "Root"
[[nodiscard]] Result<std::string> container_root(std::string_view state);

/// Puts the libraries into <root>/etc/ld.so.cache. What an image says of itself is never believed: every path is
/// resolved below `root`, only a regular file of at most 64 MiB is read, and nothing outside of the container's own
/// file system is written: where /etc is a mount of somebody, or cannot be written, the new cache is mounted over the
/// old one, which then stays as it is.
///   errors  kFailedPrecondition: no /etc, or no cache in one that cannot be written; kInvalidArgument: no such cache;
///           else the system's reason. The container can start in each case, and its loader finds what it found before
///   cost    a read and a write of the file, some 50 KB: under 1 ms
[[nodiscard]] Result<void> add_to_cache(const std::string& root, const std::vector<codec::LoaderEntry>& libraries);

}  // namespace carve::cdi
