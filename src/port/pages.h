#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/slice.h"
#include "port/slice_counters.h"

namespace carve {

/// The pages that the arbiter provides for one slice folder: all cards of one (owner, part), in card order.
struct PageOrder {
  std::string id;                    // the folder's name
  std::vector<Slice> slices;         // one per card
  std::vector<Bytes> context_bytes;  // charged in advance per context; one value per card
  /// A container engine mounts the folder. Only root and the slice's user reach it by its path, which contains the
  /// folder's name twice.
  bool in_private_folder = false;
};

/// One process of a slice, as it registered over the slice's socket.
struct PageProcess {
  std::int32_t pid = 0;  // host PID, from peer credentials
};

/// One card of a slice as the pages show it: what its processes announced and measured.
struct PageCard {
  CardId card;
  Bytes announced;            // explicit allocations and contexts
  std::uint64_t busy_ns = 0;     // GPU time as its processes measured it; never decreases
  std::uint64_t charged_ns = 0;  // card time as the arbiter accounts it; also grows during a long kernel
  std::uint32_t contexts = 0;
  std::uint32_t rescues = 0;  // leases out of turn, because its work seemed to wait for a launch; never decreases
  /// Time in which the slice held the card's lease, ms modulo 2^32, never decreases; nullopt: the arbiter does not
  /// report it. A tenant cannot increase it beyond the turns of its slice.
  std::optional<std::uint32_t> granted_ms = std::nullopt;
  /// Time for which its work ran on after the end of a lease, as far as an honest long kernel explains it; unit as
  /// granted_ms.
  std::uint32_t drained_ms = 0;
  std::optional<SliceCounters> counters = std::nullopt;  // nullopt: an arbiter of an earlier release
};

struct PageSlice {
  std::string id;
  /// True: only files of it remain. The previous arbiter crashed while it handled the slice, or the slice had no
  /// process when the arbiter ended. It has no cards and no processes here. put() re-creates it, drop() deletes the
  /// files.
  bool remains = false;
  std::vector<PageCard> cards;
  std::vector<PageProcess> processes;
};

/// The arbiter: the process that owns the pages. Every call has a deadline (2 s). Safe from any thread.
///   errors  kUnavailable: the arbiter does not run; kDeadlineExceeded: it runs but does not answer
class Pages {
 public:
  virtual ~Pages() = default;
  /// Creates pages and socket for the slice, or leaves them unchanged when they exist with these limits.
  virtual Result<void> put(const PageOrder& order) = 0;
  /// Revokes and removes the slice, including remaining files. Success when it does not exist.
  virtual Result<void> drop(const std::string& id) = 0;
  virtual Result<std::vector<PageSlice>> list() = 0;
  /// Reports what the driver allocated beyond what was announced, on the card number `card_index` of the slice.
  virtual Result<void> set_overhead(const std::string& id, std::uint32_t card_index, Bytes overhead) = 0;
};

}  // namespace carve
