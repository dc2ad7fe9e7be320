#include "adapter/files/history_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "adapter/process/text_file.h"
#include "base/fd.h"

namespace carve::files {
namespace {

constexpr std::size_t kLargestFile = 16UL << 20;

}  // namespace

Result<std::vector<std::string>> HistoryFolder::list() {
  auto names = process::list_folder(folder_);
  if (!names && names.error().code == Code::kNotFound) return std::vector<std::string>();
  return names;
}

Result<std::string> HistoryFolder::read(const std::string& name) {
  return process::read_text(folder_ + "/" + name, kLargestFile);
}

Result<void> HistoryFolder::append(const std::string& name, const std::string& bytes) {
  CARVE_TRY_VOID(process::make_folders(folder_, 0700));
  const std::string path = folder_ + "/" + name;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  const off_t end = ::lseek(fd.get(), 0, SEEK_END);
  const auto written = ::write(fd.get(), bytes.data(), bytes.size());
  if (written == static_cast<ssize_t>(bytes.size())) return {};
  const int error = written < 0 ? errno : ENOSPC;
  // A part of a record would hide all that follows it.
  if (written > 0 && end >= 0) static_cast<void>(!::ftruncate(fd.get(), end));
  return tl::unexpected(errno_error(error, "write " + path));
}

Result<void> HistoryFolder::remove(const std::string& name) {
  const std::string path = folder_ + "/" + name;
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return tl::unexpected(errno_error(errno, "remove " + path));
}

}  // namespace carve::files
