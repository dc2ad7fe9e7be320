#pragma once

#include <vector>

#include "base/units.h"

// How far a slice may be above its limit, because drivers take memory that no call requests.
namespace carve::agent {

struct ToleranceBounds {
  /// The most that one slice may be above its limit, regardless of its number of processes.
  Bytes most = Bytes::mib(256);
  /// Memory of an honest slice that its library cannot know in advance: what drivers round up, a module. A slice with
  /// a smaller tolerance keeps the difference back from its own limit.
  Bytes unannounced = Bytes::mib(64);
  /// The part of its limit that a slice keeps back at most.
  std::uint64_t kept_back_part = 16;
};

/// The tolerances of all slices of one card, in the order of `excess`. Their sum is at most `spare`, so they are never
/// taken from memory that a slice was promised: the promises, all tolerances included, fit on the card.
///   in      spare: what the card has promised to no slice; excess: per slice, what it holds above its limit now
///   out     each slice gets an equal part of the spare memory, and what the others do not need of theirs (max-min
///           fairness by `excess`). What is left is divided equally. No tolerance is above `most`. If the sum of the
///           excesses does not fit, only the largest are above their tolerances.
///   cost    O(n log n); pure
[[nodiscard]] std::vector<Bytes> tolerances(Bytes spare, const std::vector<Bytes>& excess,
                                            const ToleranceBounds& bounds);

/// What a slice with this tolerance keeps back from its own limit for memory that no call announces. Without it, an
/// honest slice that used its limit to the last byte would be above it by the driver's rounding.
[[nodiscard]] Bytes kept_back(Bytes tolerance, Bytes limit, const ToleranceBounds& bounds);

/// How far one slice may be above its limit on one card, and what it keeps back from it.
struct Margin {
  Bytes tolerance;
  Bytes kept_back;
};

/// tolerances() and kept_back() of all slices of one card, in the order of `excess`. A slice that is alone on its card
/// keeps nothing back, because no other slice was promised the memory next to it.
///   in  limits: per slice
[[nodiscard]] std::vector<Margin> margins(Bytes spare, const std::vector<Bytes>& excess,
                                          const std::vector<Bytes>& limits, const ToleranceBounds& bounds);

}  // namespace carve::agent
