#include "adapter/kubelet/folder_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adapter/process/text_file.h"

namespace carve::kubelet {

Result<FolderWatch> FolderWatch::open(const std::vector<std::string>& folders) {
  Fd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!fd) return tl::unexpected(errno_error(errno, "inotify"));
  for (const auto& folder : folders) {
    CARVE_TRY_VOID(process::make_folders(folder, 0750));
    if (::inotify_add_watch(fd.get(), folder.c_str(),
                            IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF) < 0)
      return tl::unexpected(errno_error(errno, "watch " + folder));
  }
  return FolderWatch(std::move(fd));
}

bool FolderWatch::drain() const {
  bool lost = false;
  alignas(inotify_event) char buffer[4096];
  for (;;) {
    const auto got = ::read(fd_.get(), buffer, sizeof(buffer));
    if (got <= 0) return lost;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(got);) {
      inotify_event event = {};
      std::memcpy(&event, buffer + at, sizeof(event));
      lost = lost || (event.mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0;
      at += sizeof(event) + event.len;
    }
  }
}

}  // namespace carve::kubelet
