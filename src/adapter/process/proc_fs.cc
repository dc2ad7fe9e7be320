#include "adapter/process/proc_fs.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

#include "abi/hello.h"
#include "adapter/process/spawn.h"
#include "adapter/process/text_file.h"

namespace carve::process {
namespace {
constexpr std::size_t kLongestMounts = 4U << 20U;
constexpr std::size_t kLongestStatus = 64U << 10U;
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

std::string_view status_value(std::string_view status, std::string_view name) {
  const std::string start = std::string(name) + ":";
  while (!status.empty()) {
    const auto end = std::min(status.find('\n'), status.size());
    const std::string_view line = status.substr(0, end);
    if (line.rfind(start, 0) == 0) {
      const auto value = line.find_first_not_of(" \t", start.size());
      return value == std::string_view::npos ? std::string_view() : line.substr(value);
    }
    status.remove_prefix(std::min(end + 1, status.size()));
  }
  return {};
}

bool has_ended(std::string_view status) {
  const auto state = status_value(status, "State");
  return state.empty() || state.front() == 'Z' || state.front() == 'X';
}

std::vector<std::string> ProcFs::slices_seen_by(std::int32_t pid) const {
  // The mounts are read, not the folders that the process sees. The agent may run in its own mount namespace, from
  // which every process of the host looks like a process of another container. And a tenant may create more folders.
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

namespace {

constexpr unsigned kNvidiaMajor = 195;  // of the kernel's list of allocated devices; a tenant may give it any name

std::filesystem::path folder_of(std::int32_t pid) { return "/proc/" + std::to_string(pid); }

/// The largest of the four user IDs in the text of /proc/<pid>/status; nullopt: there are none.
std::optional<std::uint32_t> largest_uid(const std::string& status) {
  std::istringstream fields{std::string(status_value(status, "Uid"))};
  std::uint32_t most = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint32_t uid = 0;
    if (!(fields >> uid)) return std::nullopt;
    most = std::max(most, uid);
  }
  return most;
}

}  // namespace

/// An open descriptor of a process.
struct ProcFs::OpenFile {
  int number = -1;
  std::string path;                  // as the process sees it
  std::optional<dev_t> device = {};  // of a character device

  [[nodiscard]] bool is_of_nvidia() const {
    return (device && major(*device) == kNvidiaMajor) || path.rfind("/dev/nvidia", 0) == 0 ||
           path.rfind("/dev/carve/", 0) == 0;
  }
};

struct ProcFs::Files {
  std::vector<OpenFile> open;
  std::string program;
};

std::optional<ProcFs::Files> ProcFs::files_of(std::int32_t pid) const {
  const auto files = std::make_shared<Files>();
  const MutexLock lock(mutex_);
  const bool read = calls_.make(pid, [files, folder = folder_of(pid)] {
    std::error_code unreadable;
    for (std::filesystem::directory_iterator at(folder / "fd", unreadable), end; !unreadable && at != end;
         at.increment(unreadable)) {
      OpenFile file;
      file.number = std::atoi(at->path().filename().c_str());
      struct stat status = {};
      if (::stat(at->path().c_str(), &status) == 0 && S_ISCHR(status.st_mode)) file.device = status.st_rdev;
      std::error_code gone;
      file.path = std::filesystem::read_symlink(at->path(), gone).string();
      files->open.push_back(std::move(file));
    }
    std::error_code gone;
    files->program = std::filesystem::read_symlink(folder / "exe", gone).string();
  });
  if (!read) return std::nullopt;
  return std::move(*files);
}

std::vector<std::int32_t> ProcFs::holders_of_card(int minor) const {
  const std::string name = "/dev/nvidia" + std::to_string(minor);
  const dev_t device = makedev(kNvidiaMajor, static_cast<unsigned>(minor));
  std::vector<std::int32_t> pids;
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::int32_t pid = std::atoi(process.path().filename().c_str());
    if (pid <= 0) continue;
    const auto files = files_of(pid);
    const bool holds = files ? std::any_of(files->open.begin(), files->open.end(),
                                           [&](const OpenFile& file) {
                                             return file.device == device || file.path == name ||
                                                    is_slices_node(file.path, minor);
                                           })
                             : !slices_seen_by(pid).empty();
    if (holds) pids.push_back(pid);
  }
  return pids;
}

DeviceUser ProcFs::device_user(std::int32_t pid) const {
  const auto status = read_text((folder_of(pid) / "status").string(), kLongestStatus);
  const auto uid = status ? largest_uid(*status) : std::nullopt;
  if (!uid) return {std::numeric_limits<std::uint32_t>::max(), true, "?"};
  const auto files = files_of(pid);
  if (!files) return {*uid, true, "?"};
  DeviceUser user;
  user.uid = *uid;
  user.computes = std::any_of(files->open.begin(), files->open.end(),
                              [](const OpenFile& file) { return file.path == "/dev/nvidia-uvm"; });
  user.program = files->program.empty() ? "?" : files->program;
  return user;
}

bool ProcFs::only_inherited(std::int32_t pid, std::int32_t from) const {
  constexpr int kSameFile = 0;  // KCMP_FILE of linux/kcmp.h
  const auto files = files_of(pid);
  if (!files) return false;
  std::vector<int> numbers;
  for (const OpenFile& file : files->open) {
    if (file.is_of_nvidia()) numbers.push_back(file.number);
  }
  const auto same = std::make_shared<bool>(false);
  const MutexLock lock(mutex_);
  const bool compared = calls_.make(pid, [=] {
    *same = std::all_of(numbers.begin(), numbers.end(), [&](int number) {
      return ::syscall(SYS_kcmp, pid, from, kSameFile, number, number) == 0;
    });
  });
  return compared && *same && !numbers.empty();
}

Result<bool> ProcFs::kill(std::int32_t pid, const std::function<bool()>& still) {
  if (pid <= 1) return false;
  const auto process = open_process(pid);
  if (!process && process.error().code != Code::kNotFound) return tl::unexpected(process.error());
  if (!process || !still()) return false;
  send_signal(*process, SIGKILL);
  return true;
}

}  // namespace carve::process
