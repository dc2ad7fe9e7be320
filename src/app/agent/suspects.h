#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "core/model/card.h"

// Decides which slice holds unexplained memory of a card, from the processes that have the card's device file open.
namespace carve::agent {

/// A process that has the card's device file open.
struct CardHolder {
  std::int32_t pid = 0;
  std::string slice;       // empty: not in a slice
  bool listed = false;     // NVML lists it on this card: its memory is explained
  bool inherited = false;  // a fork of a listed process of its slice that has opened no device file of its own
  // The following fields describe a process outside slices.
  std::uint32_t uid = 0;  // the largest of its user IDs, as the host numbers them
  bool computes = false;  // has /dev/nvidia-uvm open: it has initialised CUDA
  bool trusted = false;   // the operator lists its program
  std::string program;    // its executable
  // The following field describes a process in a slice.
  std::uint32_t slice_uid = 0;  // the user of a slice of `carve run`; 0: root, or a slice of a pod
};

/// User IDs below it belong to the system's accounts, not to persons.
///   source  login.defs(5): SYS_UID_MAX, 999
inline constexpr std::uint32_t kFirstPersonalUid = 1000;

/// True for a process outside slices that cannot be the holder of unexplained memory: it belongs to root or to a
/// system account, and has not initialised CUDA (nvidia-persistenced, an exporter, Carve's own NVML process), or the
/// operator lists its program. A tenant can be none of these: the kernel shows the slice and the user of its processes.
[[nodiscard]] bool is_bystander(const CardHolder& holder);

/// The party to which a holder's memory is attributed: its slice, or the ordinary user of a process outside slices. Not
/// the process itself, because a tenant's process can pass its open files on to another one. For root and system
/// accounts, which have no reason to do so, it is the process.
[[nodiscard]] std::string party_of(const CardHolder& holder);

/// The parties that may hold memory that appeared just now: those of all unlisted holders.
[[nodiscard]] std::set<std::string> parties_at_growth(const std::vector<CardHolder>& holders);

struct Suspicion {
  std::vector<CardHolder> suspects;
  std::vector<CardHolder> others;  // unlisted too, but not suspects
  std::string slice;               // the only slice that can hold the memory; empty: not certain
};

/// The holders that may hold the unexplained memory: all unlisted ones, except
///   - a bystander;
///   - a holder of a party that had no unlisted holder when the memory appeared (`at_growth`);
///   - an `inherited` one, while there is any other suspect. Without another suspect it is named, and its slice is not
///     accused: each data loader of a training job looks like this;
///   - a process outside slices of the same ordinary user as the only slice among the suspects: otherwise a user could
///     use it to shield its slice.
/// With `strict` bystanders and inherited holders are suspects like all others. Pure.
[[nodiscard]] Suspicion suspicion_of(const std::vector<CardHolder>& holders, const std::set<std::string>& at_growth,
                                     bool strict);

struct AccusationBounds {
  /// The time that a driver takes to free the memory of a process that has ended.
  Clock::Duration frees_within = std::chrono::seconds(5);
  /// Memory that must have become free when the accused slice's processes are gone.
  Bytes least_freed = Bytes::mib(64);
  /// How long the strict rule applies after a slice was ended in error.
  Clock::Duration strict_for = std::chrono::minutes(10);
};

/// The accusations on one card, while memory is unexplained and after it. Each verdict is checked by its effect: if the
/// memory is still in use after the accused slice's processes have ended, the verdict was wrong, and no other slice is
/// ended for this memory. Pure: time is a parameter.
class Accusations {
 public:
  explicit Accusations(AccusationBounds bounds = {}) : bounds_(bounds) {}
  struct Verdict {
    std::string slice;    // the suspects of this slice are to be ended; empty: none
    bool whole = false;   // its processes were ended before, and it has new ones: end the whole slice
    std::string cleared;  // this slice was ended, and the memory is still in use; set in one round only
  };
  /// One round in which memory is unexplained; `now` grows.
  Verdict judge(const Suspicion& suspicion, Bytes unexplained, Clock::Time now);
  /// The memory is explained again.
  void over();
  [[nodiscard]] bool strict(Clock::Time now) const { return now < strict_until_; }

 private:
  AccusationBounds bounds_;
  std::string accused_;
  std::set<std::int32_t> ended_;  // its suspects when it was accused
  Bytes held_;                    // the maximum that was unexplained while it was accused
  Clock::Time last_seen_{};       // with a suspect
  bool gave_up_ = false;          // until the memory is explained again
  Clock::Time strict_until_{};
};

}  // namespace carve::agent
