#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/loader_cache.h"

// The hook of a container device runs while a container is created. It adds the driver's libraries to the container's
// loader cache, as `ldconfig` would if it ran in the container after the libraries were mounted.
namespace carve::cdi {

/// The path of the container's root file system while the container is created.
///   in      state: the JSON that a runtime writes to a hook's standard input
///   errors  kInvalidArgument: `state` has no bundle, or the bundle's config.json has no root; the system's
///   source  OCI runtime specification, "State" and "Root"
[[nodiscard]] Result<std::string> container_root(std::string_view state);

/// Adds the libraries to <root>/etc/ld.so.cache. The image is not trusted: every path is resolved below `root`, only a
/// regular file of at most 64 MiB is read, and nothing outside the container's own file system is written. If /etc is a
/// mount from elsewhere, or cannot be written, the new cache is mounted over the old one, which stays unchanged.
///   errors  kFailedPrecondition: no /etc, or /etc cannot be written and has no cache; kInvalidArgument: the cache is
///           not a regular file or not valid; kOutOfRange: it is larger than 64 MiB; the system's. After each of these
///           errors the container can start, and its loader finds the same libraries as without the hook. kDataLoss:
///           the container must not start, because a tmpfs covers its /etc
///   cost    one read and one write of the file, about 50 KB: less than 1 ms
[[nodiscard]] Result<void> add_to_cache(const std::string& root, const std::vector<codec::LoaderEntry>& libraries);

}  // namespace carve::cdi
