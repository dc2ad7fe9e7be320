#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace carve::cdi {

/// Allows `user`, who requested the slice, to traverse `folder`, the folder around the slice's own folder. Before, only
/// root may. The user needs it for a container engine that runs without root and mounts with the user's permissions.
/// Creates the folder if it is missing. The folder stays owned by root and gets an access list, because the owner of a
/// folder could replace what is in it. If the file system has no access lists, only root may traverse the folder; that
/// is not an error.
///   errors  those of creating the folder and writing its access list
Result<void> allow_through(const std::string& folder, std::uint32_t user);

}  // namespace carve::cdi
