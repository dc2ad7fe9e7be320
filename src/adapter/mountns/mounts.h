#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

// The few mount operations an enclosure is made of. Every error names the target. For the calling process's
// own mount namespace only.
namespace carve::mountns {

/// A handle on a path that stays good after something else was mounted over it.
[[nodiscard]] Result<Fd> hold(const std::string& path);
/// Binds what `source` holds over an existing target of the same kind.
[[nodiscard]] Result<void> bind_over(const Fd& source, const std::string& target);
/// A small empty tmpfs over an existing folder, 0755.
[[nodiscard]] Result<void> cover_with_tmpfs(const std::string& folder);
/// Makes one of our own mounts read-only.
[[nodiscard]] Result<void> make_read_only(const std::string& mount_point);
/// The folder's files with those of `above` over them, read-only.
[[nodiscard]] Result<void> overlay(const std::string& above, const std::string& folder, bool user_namespace);
/// An empty file as a mount target.
[[nodiscard]] Result<void> make_target(const std::string& path);

/// A mount namespace of our own; for an ordinary user inside a user namespace that maps just that user.
///   errors  kPermissionDenied, with the setting that forbids it
[[nodiscard]] Result<void> separate(bool user_namespace);

}  // namespace carve::mountns
