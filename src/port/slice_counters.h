#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace carve {

/// The upper ends of the waits that SliceCounters::waits counts. The last count is of longer ones.
inline constexpr std::array kLeaseWaitEnds = {
    std::chrono::microseconds(100), std::chrono::microseconds(1'000),     std::chrono::microseconds(10'000),
    std::chrono::microseconds(100'000), std::chrono::microseconds(1'000'000), std::chrono::microseconds(10'000'000)};

/// What was counted of a slice on one card, since its pages were created or the arbiter started. All of it only grows.
struct SliceCounters {
  // By the arbiter.
  std::array<std::uint64_t, kLeaseWaitEnds.size() + 1> waits = {};  // for a lease, by their length
  std::uint64_t waited_ns = 0;  // the sum of these waits
  std::uint64_t capped_ns = 0;  // of a `fixed` slice: the part in which it had used up its rate
  // By the slice's processes, which can write any number.
  std::uint64_t gated_launches = 0;    // launches that waited for a lease
  std::uint64_t refused_requests = 0;  // requests for memory that the limit refused
  std::uint64_t refused_bytes = 0;
};

}  // namespace carve
