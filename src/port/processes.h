#pragma once

#include <cstdint>
#include <string>

namespace carve {

/// Any process of this machine, by its host PID. Everything may be gone the moment after.
class Processes {
 public:
  virtual ~Processes() = default;
  /// Its name, "?" when it is gone.
  [[nodiscard]] virtual std::string command(std::int32_t pid) const = 0;
  /// The one slice whose folder its mount namespace shows; empty when it sees the host's folders, none or
  /// many. This is how a container's process is told that does not say hello.
  [[nodiscard]] virtual std::string slice_seen_by(std::int32_t pid) const = 0;
  virtual void kill(std::int32_t pid) = 0;
};

}  // namespace carve
