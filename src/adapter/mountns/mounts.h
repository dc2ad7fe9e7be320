#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"

// The mount operations of an enclosure. Every error names the target. They change only the mount namespace of the
// calling process.
namespace carve::mountns {

/// A descriptor of a path that stays valid after another file is mounted over the path.
[[nodiscard]] Result<Fd> hold(const std::string& path);
/// Bind-mounts the file or folder of `source` over an existing target of the same kind.
[[nodiscard]] Result<void> bind_over(const Fd& source, const std::string& target);
/// Mounts a small empty tmpfs (1 MiB, mode 0755) over an existing folder.
[[nodiscard]] Result<void> cover_with_tmpfs(const std::string& folder);
/// Makes a mount of this process read-only.
[[nodiscard]] Result<void> make_read_only(const std::string& mount_point);
/// Mounts a read-only overlay on `folder`: its own files with those of `above` over them.
[[nodiscard]] Result<void> overlay(const std::string& above, const std::string& folder, bool user_namespace);
/// Creates an empty file as a mount target.
[[nodiscard]] Result<void> make_target(const std::string& path);

/// Gives this process its own mount namespace. `user_namespace`: inside a new user namespace that maps only the calling
/// user, for a user other than root.
///   errors  kPermissionDenied, with the settings that may forbid it
[[nodiscard]] Result<void> separate(bool user_namespace);

}  // namespace carve::mountns
