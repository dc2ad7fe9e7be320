#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// How a process ended.
struct ProcessEnd {
  int code = 0;    // of exit(); 0 when a signal ended it
  int signal = 0;  // 0: it ended by itself
};

/// The agent as its keeper has it (src/app/keeper): a child process with a line to it, one at a time. Not of any
/// thread: the keeper's own alone.
class KeptAgent {
 public:
  virtual ~KeptAgent() = default;
  /// Starts one; the last one has ended. `crashes`: how many died before it, for it to tell.
  ///   errors  of making a process
  virtual Result<void> start(std::uint64_t crashes) = 0;
  /// A packet to it. False: it was not taken, since there is no agent, or it does not read.
  virtual bool send(const std::string& packet) = 0;
  /// The next packet from it, or none now. What it sent before it ended can be received after.
  virtual std::optional<std::string> receive() = 0;
  /// Once, when it has ended.
  virtual std::optional<ProcessEnd> ended() = 0;
  virtual void signal(int number) = 0;
  /// Descriptors that are readable when receive() or ended() may have something.
  [[nodiscard]] virtual std::vector<int> handles() const = 0;
};

}  // namespace carve
