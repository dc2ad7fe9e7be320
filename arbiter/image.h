#pragma once

#include <cstdint>

#include "base/fd.h"

namespace carve::arbiter {

/// The memory that a process runs in, as it was when this object was created. execve() ends the memory while the
/// process continues. Only the kernel decides when the memory is gone: the process itself cannot imitate that by
/// mapping, unmapping or writing.
class Image {
 public:
  Image() = default;
  /// The image of a living process. If the first thread of the process has ended, another thread is read. The image is
  /// unknown if no descriptor is left or if the process may not be read.
  static Image of(std::int32_t pid);

  /// False: nothing is known about the image, and gone() never returns true.
  [[nodiscard]] bool known() const { return static_cast<bool>(maps_); }
  /// True if every thread that ran in it has ended or runs another program. Cost: one system call.
  [[nodiscard]] bool gone() const;

 private:
  Fd maps_;  // refers to this memory, also after execve(); reads as empty once the memory is gone
};

}  // namespace carve::arbiter
