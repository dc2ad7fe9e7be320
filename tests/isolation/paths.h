#pragma once

#include <cstdint>
#include <span>

#include "preload/driver_abi.h"

namespace carve::isolation {

/// One way in which a program allocates device memory and frees it. `take` stores in `held` what `drop` needs.
struct Held {
  std::uint64_t a, b, c;
};
struct Path {
  const char* name;
  CUresult (*take)(std::uint64_t bytes, Held* held);
  CUresult (*drop)(Held held);
};

/// All paths of the simulated driver.
std::span<const Path> paths();

}  // namespace carve::isolation
