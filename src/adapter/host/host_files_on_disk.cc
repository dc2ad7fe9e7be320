#include "adapter/host/host_files_on_disk.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "adapter/process/text_file.h"

namespace carve::host {
namespace {

constexpr std::size_t kLargest = 16U << 20U;  // dpkg's status file has a few MiB

FileKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kFolder;
  if (S_ISSOCK(mode)) return FileKind::kSocket;
  if (S_ISCHR(mode)) return FileKind::kCharDevice;
  return FileKind::kOther;
}

}  // namespace

Result<std::string> HostFilesOnDisk::read(const std::string& path) const {
  return process::read_text(path, kLargest);
}

Result<std::vector<std::string>> HostFilesOnDisk::list(const std::string& folder) const {
  return process::list_folder(folder);
}

Result<FileFacts> HostFilesOnDisk::facts(const std::string& path) const {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return FileFacts{};
    return tl::unexpected(errno_error(errno, "look at " + path));
  }
  return FileFacts{kind_of(info.st_mode), major(info.st_rdev), minor(info.st_rdev)};
}

}  // namespace carve::host
