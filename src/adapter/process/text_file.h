#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Small files and folders of the system, read and written whole.
namespace carve {

/// The whole file, at most `limit` bytes of it. For /proc, /sys and small files of ours.
[[nodiscard]] Result<std::string> read_text(const std::string& path, std::size_t limit = 1U << 20U);

/// Writes in place, in one write(): for /proc and cgroup files.
[[nodiscard]] Result<void> write_text(const std::string& path, std::string_view text);

/// Writes `<name>.<pid>.tmp` in the same folder, syncs it, renames it, syncs the folder: after this call the
/// file is there whole, before it the old one was.
[[nodiscard]] Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode);

/// mkdir -p; success when it exists as a folder. New folders get `mode`, whatever the umask.
[[nodiscard]] Result<void> make_folders(const std::string& path, mode_t mode);

/// Names in a folder, sorted, without . and ..; kNotFound when there is no folder.
[[nodiscard]] Result<std::vector<std::string>> list_folder(const std::string& path);

/// Copies a regular file, synced, through a temporary name. What runs from the old file goes on unharmed.
[[nodiscard]] Result<void> copy_file(const std::string& from, const std::string& to, mode_t mode);

/// The canonical path, or "" when there is no such file.
[[nodiscard]] std::string real_path(const std::string& path);

/// "comm" of a process, or "?" when it is gone.
[[nodiscard]] std::string command_of(pid_t pid);

}  // namespace carve
