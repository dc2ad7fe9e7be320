#pragma once

#include <string>
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

}  // namespace carve::kubelet
