#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/slice.h"

namespace carve {

/// What the arbiter is to hold for one slice folder: all cards of one (owner, part), in card order.
struct PageOrder {
  std::string id;                    // the folder's name
  std::vector<Slice> slices;         // one per card
  std::vector<Bytes> context_bytes;  // charged in advance per context, one per card
  /// A container engine mounts it: only root and its user reach it by its path, which has the folder's name twice.
  bool gated = false;
};

/// One process of a slice, as it registered itself over the slice's socket.
struct PageProcess {
  std::int32_t pid = 0;  // host PID, from peer credentials
};

/// One card of a slice as the pages tell: what its processes announced, what they measured.
struct PageCard {
  CardId card;
  Bytes announced;            // explicit allocations and contexts
  std::uint64_t busy_ns = 0;     // GPU time as its processes measured it, ever growing
  std::uint64_t charged_ns = 0;  // card time as the arbiter accounts it: grows during a long kernel too
  std::uint32_t contexts = 0;
  std::uint32_t rescues = 0;  // leases out of turn, because its work seemed to wait for a launch; ever growing
  /// Time in which the slice held the card's lease, ms, ever growing modulo 2^32; nullopt: an arbiter that does not
  /// tell. No store of a tenant makes it larger than the slice's turns.
  std::optional<std::uint32_t> granted_ms = std::nullopt;
  /// Time in which its work ran on after a lease's end, as far as an honest long kernel explains it; as granted_ms.
  std::uint32_t drained_ms = 0;
};

struct PageSlice {
  std::string id;
  /// Only files are left of it: the arbiter before this one died over it, or nobody lived there when it died. It has
  /// no cards and no processes here; put() makes it anew, drop() takes the files away.
  bool remains = false;
  std::vector<PageCard> cards;
  std::vector<PageProcess> processes;
};

/// The arbiter: the process that owns the pages. Every call has a deadline (2 s). Safe from any thread.
///   errors  kUnavailable: nobody answers; kDeadlineExceeded: it is there but stopped
class Pages {
 public:
  virtual ~Pages() = default;
  /// Makes pages and socket for the slice, or leaves them as they are when they exist with these limits.
  virtual Result<void> put(const PageOrder& order) = 0;
  /// Revokes and removes, remains too. Success when there is none.
  virtual Result<void> drop(const std::string& id) = 0;
  virtual Result<std::vector<PageSlice>> list() = 0;
  /// What the driver took beyond what was announced, on the slice's card number `card_index`.
  virtual Result<void> set_overhead(const std::string& id, std::uint32_t card_index, Bytes overhead) = 0;
};

}  // namespace carve
