#pragma once

// Death at a chosen step, as kill -9 would: what was done before stays.
namespace carve::fakes {

struct Killed {};

/// Counts steps that change the world, and dies at one of them.
struct Fate {
  int step = 0;
  int die_at = 0;  // 0: never
  void before() {
    if (++step == die_at) throw Killed{};
  }
};

}  // namespace carve::fakes
