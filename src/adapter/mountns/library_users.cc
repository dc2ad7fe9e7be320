#include "adapter/mountns/library_users.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "adapter/process/proc_fs.h"
#include "adapter/process/text_file.h"
#include "base/timed_calls.h"

namespace carve::mountns {
namespace {

constexpr std::size_t kLongestMounts = 4U << 20U;

/// True for the names that LibraryStore gives to builds: 16 hexadecimal digits.
bool is_build(const std::string& name) {
  return name.size() == 16 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void drop_named(std::set<std::string>* builds, const std::string& text) {
  std::erase_if(*builds, [&](const std::string& id) {
    return text.find("/" + id + "/") != std::string::npos;  // the path of the folder differs between mount namespaces
  });
}

/// The mounts of a process; "": its mount namespace was already read, or the process has ended meanwhile. This process
/// may read the mounts of every process, but the identity of a mount namespace only for processes with no more
/// privileges than its own, and only of one that is not blocked in the kernel.
Result<std::string> mounts_of(const std::string& proc, const std::string& pid, TimedCalls& calls,
                              std::set<std::string>* seen) {
  const std::string process = proc + "/" + pid;
  const auto space = std::make_shared<std::string>();
  const bool read = calls.make(std::atoi(pid.c_str()), [space, process] {
    char link[PATH_MAX];
    const ssize_t length = ::readlink((process + "/ns/mnt").c_str(), link, sizeof link);
    if (length > 0) space->assign(link, static_cast<std::size_t>(length));
  });
  const bool known = read && !space->empty();
  if (known && seen->contains(*space)) return std::string();
  auto mounts = process::read_text(process + "/mountinfo", kLongestMounts);
  if (mounts) {
    if (known) seen->insert(*space);
    return mounts;
  }
  // The folder of a process that has ended exists for a moment longer, without mounts.
  const auto status = process::read_text(process + "/status");
  if (status ? process::has_ended(*status) : status.error().code == Code::kNotFound) return std::string();
  return tl::unexpected(mounts.error());
}

}  // namespace

Result<std::vector<std::string>> unused_builds(const std::string& lib_root, const std::string& current,
                                               const std::vector<std::string>& specs, const std::string& proc) {
  std::vector<std::string> paths;
  const auto names = process::list_folder(lib_root);
  if (!names) return paths;  // no folder: no builds
  std::set<std::string> builds;
  for (const auto& name : *names) {
    if (is_build(name) && lib_root + "/" + name != current) builds.insert(name);
  }
  for (const auto& spec : specs) drop_named(&builds, spec);
  if (builds.empty()) return paths;
  CARVE_TRY(const auto processes, process::list_folder(proc));
  std::set<std::string> seen;
  TimedCalls calls(ThreadName("library-users"), std::chrono::milliseconds(200));
  for (const auto& pid : processes) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    CARVE_TRY(const auto mounts, mounts_of(proc, pid, calls, &seen));
    drop_named(&builds, mounts);
  }
  for (const auto& id : builds) paths.push_back(lib_root + "/" + id);
  return paths;
}

Result<void> remove_build(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) return fail(Code::kUnavailable, "remove " + folder + ": " + error.message());
  return {};
}

}  // namespace carve::mountns
