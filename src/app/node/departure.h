#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace carve::node {

/// An agent that was told to end goes on serving until what was sent to its node before is begun: between two agents
/// the kubelet takes all slots for unhealthy, and refuses for good (UnexpectedAdmissionError) whoever is bound there.
struct Departure {
  static constexpr Clock::Duration kLook = std::chrono::milliseconds(50);
  /// How long nothing may be unfinished, once the API server has the word: by then a control has it too, and what it
  /// had begun to write before is here (Binder::kWrite).
  static constexpr Clock::Duration kQuiet = std::chrono::milliseconds(2500);
  /// An API server that does not take the word is not waited for longer: where it is away it binds nobody either.
  static constexpr Clock::Duration kUnsaid = std::chrono::seconds(3);
  /// At the latest. With the API client's longest call after it this is well below the pod's
  /// terminationGracePeriodSeconds (deploy/agent.yaml), after which the kubelet kills.
  static constexpr Clock::Duration kMost = std::chrono::seconds(12);

  std::function<bool()> said;                                // the API server has the word
  std::function<std::vector<std::string>()> unfinished;      // what a departure now would break off, for people
  bool heeded = true;  // there is somebody who sends pods and reads the word: it is waited for, and its effect
  Clock::Duration most = kMost;

  /// Until the agent may end.
  ///   returns  what is broken off all the same, since the time is over; empty: nothing
  [[nodiscard]] std::vector<std::string> wait(Clock& clock) const;
};

}  // namespace carve::node
