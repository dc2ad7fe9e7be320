#pragma once

#include <csignal>

namespace carve::cmd {

/// Blocks SIGTERM and SIGINT for this thread and all threads that it starts, so that one thread waits for them. Ignores
/// SIGPIPE: a closed connection is an error of the write. Call it before any thread is started. Returns the blocked
/// set.
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
