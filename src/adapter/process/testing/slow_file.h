#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"

namespace carve::process {

/// A file of a file system in user space: each close() of it waits until this object is destroyed, as a tenant's own
/// file system may let it wait. Not even SIGKILL ends the wait. Needs root and /dev/fuse.
class SlowFile {
 public:
  explicit SlowFile(const std::string& folder);
  ~SlowFile();
  SlowFile(const SlowFile&) = delete;
  SlowFile& operator=(const SlowFile&) = delete;
  /// False: the file system could not be mounted here.
  [[nodiscard]] bool mounted() const { return server_ > 0; }
  [[nodiscard]] std::string path() const { return folder_ + "/file"; }
  /// Returns when a process is in close().
  bool wait_for_close();

 private:
  std::string folder_;
  Fd closing_;  // one byte per close
  pid_t server_ = -1;
};

}  // namespace carve::process
