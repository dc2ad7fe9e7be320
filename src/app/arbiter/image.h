#pragma once

#include <cstdint>

#include "base/fd.h"

namespace carve::arbiter {

/// The memory that a process runs in, as it was when this was made: what execve() ends while the process lives on. The
/// kernel alone says when it is gone. Whatever a process maps, unmaps or writes itself does not look like its end.
class Image {
 public:
  Image() = default;
  /// Of a living process; one whose first thread has ended is asked through another one. Without a descriptor, or when
  /// the process may not be looked at, it is unknown.
  static Image of(std::int32_t pid);

  /// False: nothing can be told of it, and it is never gone.
  [[nodiscard]] bool known() const { return static_cast<bool>(maps_); }
  /// Every thread that ran in it has ended or runs another program. Cost: one system call.
  [[nodiscard]] bool gone() const;

 private:
  Fd maps_;  // stays with this memory, whatever the process does; reads as empty once it is gone
};

}  // namespace carve::arbiter
