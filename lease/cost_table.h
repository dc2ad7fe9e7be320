#pragma once

#include <cstdint>

// Remembers the recent duration of each kind of work (function and grid, or graph). Each entry is one word, which is
// read and written as a whole, so threads need no lock. A lost update only loses one sample. Freestanding.
namespace carve::lease {

class CostTable {
 public:
  static constexpr std::uint32_t kEntries = 1024;
  /// The assumed duration of unknown work. It is rather too long, so that a new process cannot flood the card.
  static constexpr std::uint64_t kColdNs = 2'000'000;
  /// The longest assumed duration, for when other processes have measured that the same work takes longer.
  static constexpr std::uint64_t kColdestNs = 20'000'000;

  /// Returns the estimated duration in ns, at least 1. Cost: one load.
  [[nodiscard]] std::uint64_t estimate_ns(std::uint64_t key) const {
    const std::uint64_t word = __atomic_load_n(&entries_[index(key)], __ATOMIC_RELAXED);
    return tag_of(word) == tag(key) ? duration_of(word) : kColdNs + __atomic_load_n(&colder_by_ns_, __ATOMIC_RELAXED);
  }
  /// Sets the assumed duration of unknown work to `ns`, but at least kColdNs and at most kColdestNs.
  void expect_of_unknown(std::uint64_t ns) {
    const std::uint64_t most = ns > kColdestNs ? kColdestNs : ns;
    __atomic_store_n(&colder_by_ns_, most > kColdNs ? most - kColdNs : 0, __ATOMIC_RELAXED);
  }
  [[nodiscard]] bool knows(std::uint64_t key) const {
    return tag_of(__atomic_load_n(&entries_[index(key)], __ATOMIC_RELAXED)) == tag(key);
  }

  /// Adds a measured duration. The first one replaces the assumption. A duration of more than twice the known one
  /// replaces it too, because it is another kind of work with the same key. Any other one changes the known duration by
  /// a quarter of the difference.
  void learn(std::uint64_t key, std::uint64_t measured_ns) {
    const std::uint64_t before = estimate_ns(key);
    const bool other = !knows(key) || measured_ns / 2 > before;
    const std::uint64_t after = other ? measured_ns : before - before / 4 + measured_ns / 4;
    put(key, after);
  }

  /// Forgets the key, which now identifies other work (an updated graph, an unloaded module).
  void forget(std::uint64_t key) {
    if (knows(key)) __atomic_store_n(&entries_[index(key)], 0, __ATOMIC_RELAXED);
  }

 private:
  // An entry has 24 bits of tag and 40 bits of ns (18 minutes). An empty entry is 0: no key has tag 0.
  static constexpr std::uint64_t kMaxDuration = (1ULL << 40) - 1;
  static std::uint64_t mix(std::uint64_t key) {
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    return key ^ (key >> 32);
  }
  static std::uint32_t index(std::uint64_t key) { return static_cast<std::uint32_t>(mix(key) % kEntries); }
  static std::uint64_t tag(std::uint64_t key) { return (mix(key) >> 40) | 1; }
  static std::uint64_t tag_of(std::uint64_t word) { return word >> 40; }
  static std::uint64_t duration_of(std::uint64_t word) { return word & kMaxDuration; }
  void put(std::uint64_t key, std::uint64_t ns) {
    const std::uint64_t duration = ns < 1 ? 1 : ns > kMaxDuration ? kMaxDuration : ns;
    __atomic_store_n(&entries_[index(key)], tag(key) << 40 | duration, __ATOMIC_RELAXED);
  }

  std::uint64_t colder_by_ns_ = 0;
  std::uint64_t entries_[kEntries] = {};
};

}  // namespace carve::lease
