#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// The exit code of an agent that ends only to be started again at once, because its settings changed. Its slices and
/// the kubelet's calls wait for the next agent, as after a crash.
inline constexpr int kSettingsChanged = 75;

/// How a process ended.
struct ProcessEnd {
  int code = 0;    // for exit(); 0 when a signal ended the process
  int signal = 0;  // 0: the process exited by itself
};

/// The agent from the view of its keeper (src/app/keeper): a child process with a connection to it, one at a time. Not
/// thread-safe: only the keeper's thread may use it.
class KeptAgent {
 public:
  virtual ~KeptAgent() = default;
  /// Starts an agent; the previous one must have ended. `crashes`: the number of agents that crashed before it, which
  /// it reports.
  ///   errors  those of process creation
  virtual Result<void> start(std::uint64_t crashes) = 0;
  /// Sends a packet to the agent. False: it was not sent, because there is no agent or because it does not read.
  virtual bool send(const std::string& packet) = 0;
  /// The next packet from the agent, or nullopt if there is none now. Packets that it sent before it ended can still be
  /// received.
  virtual std::optional<std::string> receive() = 0;
  /// The end of the agent, once after it has ended.
  virtual std::optional<ProcessEnd> ended() = 0;
  virtual void signal(int number) = 0;
  /// Descriptors that become readable when receive() or ended() may have a result.
  [[nodiscard]] virtual std::vector<int> handles() const = 0;
};

}  // namespace carve
