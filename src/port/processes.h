#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// Any process of this machine, by its host PID. Everything may be gone the moment after.
class Processes {
 public:
  virtual ~Processes() = default;
  /// Its name, "?" when it is gone.
  [[nodiscard]] virtual std::string command(std::int32_t pid) const = 0;
  /// The slices that were mounted for it: one per claim request or container, empty on the host. This is how a
  /// container's process is told that does not say hello. What it puts beside them counts for nothing.
  [[nodiscard]] virtual std::vector<std::string> slices_seen_by(std::int32_t pid) const = 0;
  /// Host PIDs of those that hold the device file of NVIDIA's card `minor` open, in whatever container. One look at
  /// each descriptor of the machine: some 10 ms where thousands of processes live. Who cannot be read is left out.
  [[nodiscard]] virtual std::vector<std::int32_t> holders_of_card(int minor) const = 0;
  /// SIGKILL to the process that has this number now, when `still` then says that it is the one that is meant: in
  /// between the number cannot become another's. False: it is gone, or another one.
  ///   errors  kResourceExhausted: there is no descriptor or memory to hold it by; nothing was sent to it
  virtual Result<bool> kill(std::int32_t pid, const std::function<bool()>& still) = 0;
};

}  // namespace carve
