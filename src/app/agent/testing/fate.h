#pragma once

#include <atomic>

// Simulates a death at a chosen step, like kill -9: completed steps stay.
namespace carve::agent::fakes {

struct Killed {};

/// Counts steps that change the world, and throws at one of them.
struct Fate {
  std::atomic<int> step = 0;
  int die_at = 0;  // 0: never
  void before() {
    if (++step == die_at) throw Killed{};
  }
};

}  // namespace carve::agent::fakes
