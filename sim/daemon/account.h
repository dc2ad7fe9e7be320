#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// The truth account: what each process held and got on each card. Only the simulated kernel side writes it. Times are
// CLOCK_MONOTONIC nanoseconds. Not thread-safe: the kernel's lock covers it.
namespace carve::sim {

inline constexpr std::uint64_t kBucketNs = 10'000'000;
inline constexpr std::uint32_t kBuckets = 13'000;  // 130 s

/// The amount of activity in each 10 ms of the last 130 s.
class History {
 public:
  /// Distributes activity over the buckets that [begin, end) covers; end − begin ≤ one second.
  void add(std::uint64_t begin, std::uint64_t end);
  /// Activity in [begin, end), both multiples of kBucketNs. Activity older than 130 s reads as 0.
  [[nodiscard]] std::uint64_t sum(std::uint64_t begin, std::uint64_t end) const;
  /// Call when nothing more will be added: keeps only the buckets with activity.
  void close();

 private:
  struct Bucket {
    std::uint32_t number;
    std::uint32_t ns;
  };
  std::vector<Bucket> buckets_;  // allocated at first use: most processes never run on most cards
  bool closed_ = false;          // then only the used buckets, sorted by number
};

/// All processes of one cgroup on one card.
struct Group {
  std::string cgroup;
  std::uint32_t card = 0;
  std::uint32_t processes = 0;
  std::uint64_t explicit_bytes = 0;
  std::uint64_t explicit_high = 0;
  std::uint64_t context_bytes = 0;
  std::uint64_t gpu_ns = 0;
  std::uint64_t grants = 0;
};

/// One connection (in practice a process) on one card. Kept for a while after the process dies.
struct Account : std::enable_shared_from_this<Account> {
  std::int32_t pid = 0;
  std::uint32_t card = 0;
  std::string name;
  Group* group = nullptr;
  std::uint32_t contexts = 0;
  std::uint64_t explicit_bytes = 0;
  std::uint64_t explicit_high = 0;
  std::uint64_t small_bytes = 0;    // allocations under 1 MiB share granules
  std::uint64_t granule_bytes = 0;  // large allocations, rounded up to granules
  std::uint64_t context_bytes = 0;
  std::uint64_t module_bytes = 0;  // the global variables of loaded modules
  std::uint64_t gpu_ns = 0;
  std::uint64_t copy_ns = 0;
  std::uint64_t launches = 0;
  std::uint64_t allocations = 0;
  std::uint64_t refused = 0;
  std::uint64_t started_ns = 0;
  std::uint64_t ended_ns = 0;
  bool used = false;  // has had a context or an allocation here at least once
  History history;

  /// The memory that the card loses to this process, without contexts.
  [[nodiscard]] std::uint64_t physical_bytes() const;
};

inline constexpr std::uint64_t kGranule = 2ULL << 20;
inline constexpr std::uint64_t kSmallLimit = 1ULL << 20;
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace carve::sim
