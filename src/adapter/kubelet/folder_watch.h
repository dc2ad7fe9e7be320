#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace carve::kubelet {

/// Reports that a file was created in, or removed from, one of several folders. The caller then examines the folders
/// itself, because events may be lost. Creates folders that do not exist.
class FolderWatch {
 public:
  static Result<FolderWatch> open(const std::vector<std::string>& folders);
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Consumes the queued events. True: a folder itself was removed or replaced, and this watch no longer works.
  [[nodiscard]] bool drain() const;

 private:
  explicit FolderWatch(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace carve::kubelet
