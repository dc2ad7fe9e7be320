#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "tests/isolation/driver_calls.h"

namespace carve::isolation {

/// Calls `body(thread)` `rounds` times in each of `threads` new threads, strictly in turns, with the caller's context
/// current. Returns 0, or the first other result of `body`.
inline int in_turns(int threads, int rounds, const std::function<int(int)>& body) {
  CUcontext context = nullptr;
  if (call("cuCtxGetCurrent", &context) != 0) return -1;
  std::atomic<int> turn = 0;
  std::atomic<int> result = 0;
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      const bool ready = call("cuCtxSetCurrent", context) == 0;
      for (int round = 0; round < rounds; ++round) {
        while (turn != round * threads + thread) std::this_thread::yield();
        if (result == 0) result = ready ? body(thread) : -1;
        ++turn;
      }
    });
  }
  for (std::thread& each : running) each.join();
  return result;
}

}  // namespace carve::isolation
