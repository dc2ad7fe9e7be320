#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Small files and folders of the system, read and written as a whole.
namespace carve::process {

/// The content of a file, at most its first `limit` bytes. For /proc, /sys and Carve's own small files.
[[nodiscard]] Result<std::string> read_text(const std::string& path, std::size_t limit = 1U << 20U);

/// Writes in place, in one write(): for /proc and cgroup files.
[[nodiscard]] Result<void> write_text(const std::string& path, std::string_view text);

/// Replaces a file atomically: writes `<name>.<pid>.tmp` in the same folder, syncs it, renames it and syncs the folder.
[[nodiscard]] Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode);

/// Like mkdir -p; succeeds if the folder exists. New folders have `mode`, regardless of the umask.
[[nodiscard]] Result<void> make_folders(const std::string& path, mode_t mode);

/// The names in a folder, sorted, without . and ..; kNotFound: the folder does not exist.
[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);

/// Copies a regular file through a temporary name and syncs it. Processes that use the old file are not affected.
[[nodiscard]] Result<void> copy_file(const std::string& from, const std::string& to, mode_t mode);

/// The canonical path, or "" when the file does not exist.
[[nodiscard]] std::string real_path(const std::string& path);

/// The "comm" of a process, or "?" when it has ended.
[[nodiscard]] std::string command_of(pid_t pid);

}  // namespace carve::process
