#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// A process that has a card's device file open, as the kernel shows it.
struct DeviceUser {
  std::uint32_t uid = 0;  // the largest of its real, effective, saved and file system user IDs, in the host's numbers
  bool computes = false;  // has /dev/nvidia-uvm open, as every process that has initialised CUDA
  std::string program;    // its executable, as the process itself sees the path; "?" when it cannot be read
};

/// Any process of this machine, by its host PID. A process may end at any moment.
class Processes {
 public:
  virtual ~Processes() = default;
  /// Its name; "?" when the process is gone.
  [[nodiscard]] virtual std::string command(std::int32_t pid) const = 0;
  /// The slices that are mounted for the process: one per claim request or container, none on the host. This identifies
  /// a container's process that does not say hello. Folders that the process itself creates next to them do not count.
  [[nodiscard]] virtual std::vector<std::string> slices_seen_by(std::int32_t pid) const = 0;
  /// Host PIDs of the processes that have the device file of NVIDIA's card `minor` open, in any container. Reads each
  /// descriptor of the machine once: about 10 ms where thousands of processes live. A process whose descriptors cannot
  /// be read within 200 ms is in the list if it is in a slice: its user may block it in the kernel to hide them.
  [[nodiscard]] virtual std::vector<std::int32_t> holders_of_card(int minor) const = 0;
  /// A process that is gone has the largest user ID and uses the driver.
  [[nodiscard]] virtual DeviceUser device_user(std::int32_t pid) const = 0;
  /// True if each of NVIDIA's device files that `pid` has open is the same open file in `from`: `pid` is a fork that
  /// has opened none of its own. False if it has none, or the kernel cannot compare (no kcmp(2)).
  [[nodiscard]] virtual bool only_inherited(std::int32_t pid, std::int32_t from) const = 0;
  /// Pins the process that has this PID now, calls `still` to check that it is the intended one, and sends SIGKILL. The
  /// PID cannot be reused in between. False: the process is gone, or is another one.
  ///   errors  kResourceExhausted: no descriptor or memory is left to pin the process; no signal was sent
  virtual Result<bool> kill(std::int32_t pid, const std::function<bool()>& still) = 0;
};

}  // namespace carve
