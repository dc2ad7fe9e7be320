#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace carve::kubelet {

/// Tells that something appeared in, or went from, a few folders. Which is looked up afterwards: an event may
/// be lost, a look cannot. Folders that do not exist yet are made.
class FolderWatch {
 public:
  static Result<FolderWatch> open(const std::vector<std::string>& folders);
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Takes what is queued. True: a folder itself was removed or replaced, and this watch is of no use.
  [[nodiscard]] bool drain() const;

 private:
  explicit FolderWatch(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

/// Removes the sockets in `folder` whose names begin and end so and that nobody listens on.
void remove_dead_sockets(const std::string& folder, std::string_view begin, std::string_view end = "");

}  // namespace carve::kubelet
