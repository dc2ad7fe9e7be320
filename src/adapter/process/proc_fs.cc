#include "adapter/process/proc_fs.h"

#include <algorithm>
#include <csignal>
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

Result<bool> ProcFs::kill(std::int32_t pid, const std::function<bool()>& still) {
  if (pid <= 1) return false;
  const auto process = open_process(pid);
  if (!process && process.error().code != Code::kNotFound) return tl::unexpected(process.error());
  if (!process || !still()) return false;
  send_signal(*process, SIGKILL);
  return true;
}

}  // namespace carve
