#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace carve::node {

/// The end of an agent. After a stop signal it serves until the pods that were bound to its node have started. Between
/// two agents the kubelet treats all slots as unhealthy, and permanently fails pods that are bound there
/// (UnexpectedAdmissionError).
struct Departure {
  static constexpr Clock::Duration kLook = std::chrono::milliseconds(50);
  /// The time without unfinished pods after the API server has accepted the condition GPUAgentLeaving. By then control
  /// has seen it, and the Bindings that it had begun to write before have arrived (Binder::kWrite).
  static constexpr Clock::Duration kQuiet = std::chrono::milliseconds(2500);
  /// The longest wait for the API server to accept the condition. A server that does not answer binds no pods either.
  static constexpr Clock::Duration kUnsaid = std::chrono::seconds(3);
  /// The longest wait in all. Together with the API client's longest call it is well below the pod's
  /// terminationGracePeriodSeconds (deploy/agent.yaml), after which the kubelet kills the agent.
  static constexpr Clock::Duration kMost = std::chrono::seconds(12);

  std::function<bool()> said;                            // whether the API server has accepted the condition
  std::function<std::vector<std::string>()> unfinished;  // starts that an end now would interrupt, as text
  bool heeded = true;  // control reads the condition: wait until it is accepted and has taken effect
  Clock::Duration most = kMost;

  /// Waits until the agent may end.
  ///   returns  the starts that are interrupted because the time is over; empty: none
  [[nodiscard]] std::vector<std::string> wait(Clock& clock) const;
};

}  // namespace carve::node
