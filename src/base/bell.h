#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/result.h"

namespace carve {

/// Wakes a polling thread. The thread polls fd() for input along with its other descriptors. Several rings before the
/// thread wakes count as one. ring() is safe from any thread.
class Bell {
 public:
  ///   errors  errno's: no file descriptor is left
  static Result<Bell> make() {
    Fd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd) return tl::unexpected(errno_error(errno, "eventfd"));
    return Bell(std::move(fd));
  }
  [[nodiscard]] int fd() const { return fd_.get(); }
  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof(one));
  }
  /// Clears the bell. Call it before the check of what the bell was rung for: a ring between the check and hush() is
  /// lost.
  void hush() const {
    std::uint64_t rings = 0;
    [[maybe_unused]] const auto got = ::read(fd_.get(), &rings, sizeof(rings));
  }

 private:
  explicit Bell(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace carve
