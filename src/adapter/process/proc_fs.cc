#include "adapter/process/proc_fs.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "abi/hello.h"
#include "adapter/process/spawn.h"
#include "adapter/process/text_file.h"

namespace carve {
namespace {
constexpr std::size_t kLongestMounts = 4U << 20U;
constexpr std::string_view kDeleted = "//deleted";
}  // namespace

std::string ProcFs::command(std::int32_t pid) const { return command_of(pid); }

std::vector<std::string> slices_in_mounts(const std::string& mountinfo) {
  const std::string below = std::string(abi::kSlicesFolder) + "/";
  std::vector<std::string> ids;
  std::istringstream lines(mountinfo);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string skipped;
    std::string root;
    std::string point;
    if (!(fields >> skipped >> skipped >> skipped >> root >> point)) continue;
    if (point.rfind(below, 0) != 0) continue;
    const std::string id = point.substr(below.size());
    if (id.empty() || id.find('/') != std::string::npos) continue;
    // The folder may be gone from the host already: the mount stays, and so do the container's processes.
    if (root.size() > kDeleted.size() && root.compare(root.size() - kDeleted.size(), kDeleted.size(), kDeleted) == 0)
      root.resize(root.size() - kDeleted.size());
    const auto slash = root.rfind('/');
    if (slash == std::string::npos || root.substr(slash + 1) != id) continue;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return ids;
}

std::vector<std::string> ProcFs::slices_seen_by(std::int32_t pid) const {
  // Not what its folders show: the agent may run in a mount namespace of its own, whence every process of the
  // host looks like one of another container; and a tenant may make folders beside its own.
  const auto mounts = read_text("/proc/" + std::to_string(pid) + "/mountinfo", kLongestMounts);
  return mounts ? slices_in_mounts(*mounts) : std::vector<std::string>();
}

namespace {

/// True for the path of a slice's own node of the card: /dev/carve/<slice>/nvidia0.
bool is_slices_node(const std::string& path, int minor) {
  const std::string end = "/nvidia" + std::to_string(minor);
  return path.rfind("/dev/carve/", 0) == 0 && path.size() > end.size() &&
         path.compare(path.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::vector<std::int32_t> ProcFs::holders_of_card(int minor) const {
  constexpr unsigned kNvidiaMajor = 195;  // of the kernel's list of allocated devices; a tenant may give it any name
  const std::string name = "/dev/nvidia" + std::to_string(minor);
  std::vector<std::int32_t> pids;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::int32_t pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0) continue;
    std::error_code unreadable;
    for (std::filesystem::directory_iterator at(process.path() / "fd", unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
      std::error_code gone;
      struct stat status = {};
      const bool same_device = ::stat(at->path().c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
                               status.st_rdev == makedev(kNvidiaMajor, static_cast<unsigned>(minor));
      const std::string target = same_device ? name : std::filesystem::read_symlink(at->path(), gone).string();
      if (target != name && !is_slices_node(target, minor)) continue;
      pids.push_back(pid);
      break;
    }
  }
  return pids;
}

Result<bool> ProcFs::kill(std::int32_t pid, const std::function<bool()>& still) {
  if (pid <= 1) return false;
  const auto process = open_process(pid);
  if (!process && process.error().code != Code::kNotFound) return tl::unexpected(process.error());
  if (!process || !still()) return false;
  send_signal(*process, SIGKILL);
  return true;
}

}  // namespace carve
