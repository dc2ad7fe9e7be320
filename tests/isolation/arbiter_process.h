#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "abi/control.h"
#include "base/fd.h"

namespace carve::isolation {

/// The real arbiter in a separate process, and the agent's side of its control socket.
class ArbiterProcess {
 public:
  /// Starts the arbiter on /run/carve; `trace` as in arbiter::Options. Call it while this process has one thread.
  explicit ArbiterProcess(const std::string& trace = "");
  ~ArbiterProcess();
  ArbiterProcess(const ArbiterProcess&) = delete;
  ArbiterProcess& operator=(const ArbiterProcess&) = delete;

  /// SIGTERM, as the kubelet ends a container. Waits until the arbiter has ended.
  void stop();
  /// Starts the next arbiter. It finds the slices by their processes. Call it while this process has one thread.
  void start();

  /// Returns "" or the arbiter's error.
  std::string put(const std::string& id, const abi::ControlCard& card);
  std::string drop(const std::string& id);
  /// The bytes that the slice's processes announce now; ~0 when there is no such slice.
  std::uint64_t announced_bytes(const std::string& id);
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  std::string ask(const abi::ControlRequest& request, abi::ControlReply* reply);

  const std::string trace_;
  pid_t pid_ = -1;
  Fd socket_;
  std::vector<Fd> kept_;  // the descriptors that an agent keeps for a restarted arbiter
};

/// A card of a slice, with this machine's first card's UUID.
abi::ControlCard card_of(std::uint64_t memory, std::uint32_t compute, abi::ShareClass share,
                         abi::PriorityClass priority = abi::PriorityClass::kStandard);

/// Moves the calling process to a mount namespace in which only this slice is visible, as in its container.
void see_only(const std::string& id);

/// Starts the simulated driver's sample program in a slice. It keeps the card busy until it is killed.
pid_t spin_in(const std::string& slice, const std::vector<std::string>& flags);

}  // namespace carve::isolation
