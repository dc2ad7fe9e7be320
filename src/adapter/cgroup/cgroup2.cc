#include "adapter/cgroup/cgroup2.h"

#include <linux/magic.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "adapter/process/proc_fs.h"
#include "adapter/process/text_file.h"

namespace carve::cgroup {
namespace {

/// The cgroup2 mount that contains `path`, from mountinfo: "36 25 0:30 / /sys/fs/cgroup rw - cgroup2 …".
std::string mount_above(const std::string& path) {
  const auto text = process::read_text("/proc/self/mountinfo", 16U << 20U);
  if (!text) return {};
  std::istringstream lines(*text);
  std::string best;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point, word, type;
    fields >> id >> parent >> device >> root >> point;
    while (fields >> word && word != "-") {
    }
    fields >> type;
    if (type != "cgroup2") continue;
    const bool above = path.empty() || path == point || path.rfind(point + "/", 0) == 0;
    if (above && (best.empty() || point.size() > best.size())) best = point;
  }
  return best;
}

/// The cgroup2 path of a process ("/system.slice/x.service"); empty when the process has ended.
std::string path_of(std::int32_t pid) {
  const auto text = process::read_text("/proc/" + std::to_string(pid) + "/cgroup");
  if (!text) return {};
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return {};
}

/// The parent of a process; 0 when the process has ended.
std::int32_t parent_of(std::int32_t pid) {
  const auto status = process::read_text("/proc/" + std::to_string(pid) + "/status");
  return status ? std::atoi(std::string(process::status_value(*status, "PPid")).c_str()) : 0;
}

}  // namespace

Result<std::string> Cgroup2::find_mount() {
  std::string point = mount_above("");
  if (point.empty()) {
    return fail(Code::kUnavailable,
                "no cgroup2 mount in /proc/self/mountinfo (mount -t cgroup2 none /sys/fs/cgroup/unified)");
  }
  return point;
}

Result<std::string> Cgroup2::spelled(const std::string& root) {
  std::error_code ignored;
  const std::string real = std::filesystem::weakly_canonical(root, ignored);
  const std::string mount = mount_above(real);
  if (real.empty() || mount.empty())
    return fail(Code::kUnavailable, "cgroup root " + root + ": not in a cgroup2 mount");
  return real.substr(mount.size());
}

Result<std::unique_ptr<Cgroup2>> Cgroup2::open(const std::string& root) {
  CARVE_TRY_VOID(process::make_folders(root, 0755));
  CARVE_TRY(std::string inside, spelled(root));
  Fd inotify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify) return tl::unexpected(errno_error(errno, "inotify"));
  CARVE_TRY(auto bell, Bell::make());
  std::unique_ptr<Cgroup2> groups(
      new Cgroup2(process::real_path(root), std::move(inside), std::move(inotify), std::move(bell)));
  CARVE_TRY(const auto present, groups->list());
  for (const auto& id : present) groups->watch(id);
  return groups;
}

Cgroup2::Cgroup2(std::string root, std::string inside, Fd inotify, Bell bell)
    : root_(std::move(root)),
      inside_(std::move(inside)),
      inotify_(std::move(inotify)),
      bell_(std::move(bell)) {}

void Cgroup2::remove_root() const { ::rmdir(root_.c_str()); }

void Cgroup2::watch(const std::string& id) {
  // If the watch fails (the limit is reached), the timeout of wait_change() finds the empty group a little later.
  static_cast<void>(::inotify_add_watch(inotify_.get(), (folder(id) + "/cgroup.events").c_str(), IN_MODIFY));
}

Result<void> Cgroup2::create(const std::string& id) {
  if (::mkdir(folder(id).c_str(), 0755) != 0) {
    return tl::unexpected(errno_error(errno, "create cgroup " + folder(id)));
  }
  watch(id);
  return {};
}

Result<void> Cgroup2::join(const std::string& id, std::int32_t pid) {
  return process::write_text(folder(id) + "/cgroup.procs", std::to_string(pid));
}

Result<void> Cgroup2::expel(const std::string& id, std::int32_t pid) {
  if (slice_of(pid) != id) return {};
  const std::string mount = root_.substr(0, root_.size() - inside_.size());
  const std::string parents = path_of(parent_of(pid));
  const bool outside = !parents.empty() && parents.rfind(inside_ + "/", 0) != 0;
  if (outside && process::write_text(mount + parents + "/cgroup.procs", std::to_string(pid))) return {};
  auto moved = process::write_text(mount + "/cgroup.procs", std::to_string(pid));
  if (!moved && moved.error().code == Code::kNotFound) return {};  // the process has ended
  return moved;
}

Result<bool> Cgroup2::populated(const std::string& id) {
  CARVE_TRY(const auto text, process::read_text(folder(id) + "/cgroup.events"));
  return text.find("populated 1") != std::string::npos;
}

Result<bool> Cgroup2::has_run(const std::string& id) {
  CARVE_TRY(const auto text, process::read_text(folder(id) + "/cpu.stat"));
  return text.find("usage_usec 0\n") == std::string::npos;
}

Result<std::vector<std::int32_t>> Cgroup2::pids(const std::string& id) {
  CARVE_TRY(const auto text, process::read_text(folder(id) + "/cgroup.procs", 16U << 20U));
  std::vector<std::int32_t> pids;
  std::istringstream lines(text);
  for (std::int32_t pid; lines >> pid;) pids.push_back(pid);
  // A tenant that is root in the slice may have created groups below this one: include them.
  const auto below = process::list_folder(folder(id));
  if (!below) return pids;
  for (const auto& name : *below) {
    struct stat info = {};
    const std::string sub = id + "/" + name;
    if (::stat(folder(sub).c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) continue;
    if (const auto more = this->pids(sub)) pids.insert(pids.end(), more->begin(), more->end());
  }
  return pids;
}

Result<void> Cgroup2::freeze(const std::string& id, bool frozen) {
  return process::write_text(folder(id) + "/cgroup.freeze", frozen ? "1" : "0");
}

Result<void> Cgroup2::kill(const std::string& id) {
  const auto killed = process::write_text(folder(id) + "/cgroup.kill", "1");
  if (killed) return {};
  // Kernels before 5.14: freeze the group, so that no process forks meanwhile, and kill the processes one by one.
  static_cast<void>(freeze(id, true));
  CARVE_TRY(const auto members, pids(id));
  for (const auto pid : members) ::kill(pid, SIGKILL);
  return freeze(id, false);
}

Result<void> Cgroup2::remove(const std::string& id) {
  if (const auto below = process::list_folder(folder(id))) {
    for (const auto& name : *below) {
      struct stat info = {};
      const std::string sub = folder(id) + "/" + name;
      if (::stat(sub.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
        CARVE_TRY_VOID(remove(id + "/" + name));
      }
    }
  }
  if (::rmdir(folder(id).c_str()) == 0 || errno == ENOENT) return {};
  if (errno == EBUSY) return fail(Code::kFailedPrecondition, "cgroup " + folder(id) + " is not empty");
  return tl::unexpected(errno_error(errno, "remove cgroup " + folder(id)));
}

Result<std::vector<std::string>> Cgroup2::list() {
  CARVE_TRY(const auto names, process::list_folder(root_));
  std::vector<std::string> ids;
  for (const auto& name : names) {
    struct stat info = {};
    if (::stat(folder(name).c_str(), &info) == 0 && S_ISDIR(info.st_mode)) ids.push_back(name);
  }
  return ids;
}

void Cgroup2::wait_change(std::chrono::milliseconds timeout) {
  pollfd items[2] = {{inotify_.get(), POLLIN, 0}, {bell_.fd(), POLLIN, 0}};
  if (::poll(items, 2, static_cast<int>(timeout.count())) <= 0) return;
  char buffer[4096];
  while (::read(inotify_.get(), buffer, sizeof(buffer)) > 0) {
  }
  bell_.hush();
}

void Cgroup2::wake() { bell_.ring(); }

std::string Cgroup2::slice_of(std::int32_t pid) const {
  const std::string path = path_of(pid);
  if (path.rfind(inside_ + "/", 0) != 0) return {};
  const auto begin = inside_.size() + 1;
  return path.substr(begin, path.find('/', begin) - begin);
}

}  // namespace carve::cgroup
