#pragma once

#include <cstddef>
#include <cstdint>

namespace carve::control {

/// Figures of a ClusterModel for metrics.
struct ClusterStats {
  std::size_t nodes = 0;  // with cards
  std::size_t cards = 0;
  std::size_t closed = 0;            // cards that are closed to new slices
  std::size_t leaving = 0;           // nodes on which the agent is being replaced
  std::size_t conflicting = 0;       // nodes that are closed to a dialect
  std::size_t holding = 0;           // pods, see PodEntry::holds()
  std::size_t waiting = 0;           // pods, see PodEntry::waits()
  std::size_t unplaced = 0;          // pods, see PodEntry::unplaced()
  std::size_t reserved = 0;          // rooms set aside by reserve()
  std::size_t nominated = 0;         // pods with a nominated reservation
  std::size_t conflicts = 0;         // now
  std::uint64_t conflicts_seen = 0;  // since the start
  std::uint64_t unreadable = 0;      // objects, since the start
  std::uint64_t rebuilt = 0;         // ledgers, since the start
};

}  // namespace carve::control
