#pragma once

#include <cstdint>

#include "preload/driver_abi.h"
#include "preload/process.h"

// The gate in front of everything that takes time on a card, and what it learns about that time. The state
// machine is lease/gate; here are the waiting, the markers and the one helper thread.
namespace carve::preload {

/// Filled between asking and launching; says which segment the work belongs to.
struct Ticket {
  std::uint32_t card;
  std::uint32_t estimate_us;
  CUstream stream;
  bool metered;  // false: capturing, or no card of ours: nothing to end
};

/// Waits until the slice may put this work on its card. `key` is what its duration is remembered under. Not
/// CUDA_SUCCESS: the work must not be launched. Never waits while the stream is capturing.
CUresult begin_work(std::uint64_t key, CUstream stream, bool per_thread, Ticket& ticket);
/// After the driver's call: what was announced stands, or is withdrawn when the driver refused it.
void end_work(const Ticket& ticket, CUresult result);

/// The function or graph behind this key is another one now.
void forget_duration(std::uint64_t key);

void capture_began();
void capture_ended();

}  // namespace carve::preload
