#include "adapter/mountns/mounts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "adapter/process/text_file.h"

namespace carve::mountns {

Result<Fd> hold(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  return fd;
}

Result<void> bind_over(const Fd& source, const std::string& target) {
  const std::string from = "/proc/self/fd/" + std::to_string(source.get());
  if (::mount(from.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return tl::unexpected(errno_error(errno, "bind over " + target));
  }
  return {};
}

Result<void> cover_with_tmpfs(const std::string& folder) {
  if (::mount("carve", folder.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755") != 0) {
    return tl::unexpected(errno_error(errno, "mount tmpfs on " + folder));
  }
  return {};
}

Result<void> make_read_only(const std::string& mount_point) {
  if (::mount(nullptr, mount_point.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV,
              nullptr) != 0) {
    return tl::unexpected(errno_error(errno, "make read-only " + mount_point));
  }
  return {};
}

Result<void> overlay(const std::string& above, const std::string& folder, bool user_namespace) {
  if ((above + folder).find_first_of(":,\\") != std::string::npos) {
    return fail(Code::kInvalidArgument, above + ": the path of a library folder must not contain ':', ',' or '\\'");
  }
  std::string options = "lowerdir=" + above + ":" + folder;
  if (user_namespace) options += ",userxattr";
  if (::mount("carve", folder.c_str(), "overlay", MS_RDONLY, options.c_str()) == 0) return {};
  const int err = errno;
  auto error = errno_error(err, "overlay on " + folder);
  if (user_namespace && (err == EPERM || err == EINVAL)) {
    error.what += " (users other than root need Linux 5.11 or later for this; or run as root)";
  }
  return tl::unexpected(error);
}

Result<void> make_target(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444));
  if (!fd) return tl::unexpected(errno_error(errno, "create " + path));
  return {};
}

Result<void> separate(bool user_namespace) {
  const uid_t uid = ::geteuid();
  const gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWNS | (user_namespace ? CLONE_NEWUSER : 0)) != 0) {
    const int err = errno;
    auto error = errno_error(err, "create a private mount namespace");
    error.code = Code::kPermissionDenied;
    if (user_namespace) {
      error.what +=
          ": this host forbids user namespaces for users other than root (sysctl user.max_user_namespaces, "
          "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns); run as root, or "
          "ask the administrator to allow them";
    }
    return tl::unexpected(error);
  }
  if (user_namespace) {
    CARVE_TRY_VOID(process::write_text("/proc/self/setgroups", "deny"));
    CARVE_TRY_VOID(process::write_text("/proc/self/uid_map", std::to_string(uid) + " " + std::to_string(uid) + " 1"));
    CARVE_TRY_VOID(process::write_text("/proc/self/gid_map", std::to_string(gid) + " " + std::to_string(gid) + " 1"));
  }
  // Later mounts of the host still propagate into this namespace; mounts in this namespace do not propagate out.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return tl::unexpected(errno_error(errno, "make the mount namespace private"));
  }
  return {};
}

}  // namespace carve::mountns
