#pragma once

#include <cstdint>

namespace carve::lease {

/// Measures the time that a growing set of intervals covers and counts each moment once. The intervals arrive roughly
/// in order, from streams that overlap. Only a bounded number of gaps is remembered, and all time before the oldest
/// remembered interval counts as covered. Freestanding; cost: O(kIntervals).
class Coverage {
 public:
  static constexpr std::uint32_t kIntervals = 32;

  /// Adds [begin, end) and returns how much of it was not covered before.
  std::uint64_t add(std::uint64_t begin, std::uint64_t end) {
    if (begin < forgotten_) begin = forgotten_;
    if (end <= begin) return 0;
    std::uint64_t fresh = end - begin;
    // Remove every interval that touches the new one and merge it into the new one.
    Interval merged{begin, end};
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      const Interval held = intervals_[i];
      if (held.end < begin || held.begin > end) {
        intervals_[kept++] = held;
        continue;
      }
      fresh -= overlap(held, begin, end);
      if (held.begin < merged.begin) merged.begin = held.begin;
      if (held.end > merged.end) merged.end = held.end;
    }
    count_ = kept;
    insert(merged);
    return fresh;
  }

 private:
  struct Interval {
    std::uint64_t begin;
    std::uint64_t end;
  };
  // The part of [begin, end) that `held` covers. Held intervals are disjoint, so parts of several never overlap.
  static std::uint64_t overlap(const Interval& held, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t from = held.begin > begin ? held.begin : begin;
    const std::uint64_t to = held.end < end ? held.end : end;
    return to > from ? to - from : 0;
  }
  void insert(const Interval& merged) {
    if (count_ == kIntervals) {  // forget the oldest interval and all time before its end
      std::uint32_t oldest = 0;
      for (std::uint32_t i = 1; i < count_; ++i) {
        if (intervals_[i].end < intervals_[oldest].end) oldest = i;
      }
      forgotten_ = intervals_[oldest].end;
      intervals_[oldest] = intervals_[--count_];
    }
    intervals_[count_++] = merged;
  }

  Interval intervals_[kIntervals] = {};
  std::uint32_t count_ = 0;
  std::uint64_t forgotten_ = 0;
};

}  // namespace carve::lease
