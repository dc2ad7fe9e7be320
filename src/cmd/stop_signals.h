#pragma once

#include <csignal>

namespace carve::cmd {

/// Blocks SIGTERM and SIGINT for this thread and all that it starts, so that one place waits for them, and ignores
/// SIGPIPE: a peer that hung up is an error of a write. Call before any thread is started. Returns what was blocked.
[[nodiscard]] inline sigset_t block_stop_signals() {
  sigset_t stop_signals;
  ::sigemptyset(&stop_signals);
  ::sigaddset(&stop_signals, SIGTERM);
  ::sigaddset(&stop_signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &stop_signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return stop_signals;
}

}  // namespace carve::cmd
