#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/model/slice.h"
#include "port/pages.h"

namespace carve {

inline constexpr char kPart[] = "main";  // the one part of what this machine gave itself

/// A slice folder's life as this agent knows it: what stands in the journal (record and note), and what was
/// last seen of it. One part of one owner, on all its cards.
struct LiveSlice {
  std::string id;  // the folder's, the device's and the cgroup's name; of a local owner also its UID
  Owner holder;
  std::string part = kPart;
  bool keep = false;    // until it is released or unprepared; else until its cgroup is empty
  bool gated = false;   // its folder lies behind one that is root's alone; as it was made, so it stays
  bool ending = false;  // unprepared: nothing of it starts any more, it ends with its last process
  std::vector<std::string> pods;  // UIDs of those that may hold it, as the kubelet names their cgroups; sorted
  std::uint32_t uid = 0;
  std::string name;
  std::map<std::string, std::string> environment;  // what its dialect promises inside the container
  std::uint64_t epoch = 0;  // of the record: whose decision this is; 0: this machine's own, or a claim's
  std::vector<Slice> slices;  // one per card, sorted by UUID: the order in which its pages are handed over

  Clock::Time revoked_until{};  // its pages were removed for an offence, and are not re-created before this time
  bool joined = false;  // a process was in its cgroup
  std::function<bool()> asker_gone;  // Caller::gone of whom it was granted to, until he joined; empty: not known
  Clock::Time made{};
  bool restored = false;  // by an agent before this one
  std::string remark;  // what the watchdog did, shown as its state

  // What the pages last said, and when: for delivered compute.
  struct Sample {
    Clock::Time at;
    std::vector<std::uint64_t> busy_ns;     // per card
    std::vector<std::uint64_t> charged_ns;  // per card
    std::vector<std::optional<std::uint32_t>> granted_ms;  // per card; nullopt: not reported
    std::vector<std::uint32_t> drained_ms;                 // per card
  };
  std::deque<Sample> samples;
  std::vector<Bytes> announced;          // per card
  std::vector<std::int32_t> registered;  // host PIDs that said hello
  std::vector<std::int32_t> members;     // host PIDs in its cgroup

  [[nodiscard]] const Owner& owner() const { return holder; }
  [[nodiscard]] bool local() const { return holder.kind == OwnerKind::kLocal; }
  [[nodiscard]] bool whole() const { return !slices.empty() && slices.front().whole; }
  /// Index of the card in `slices`; nullopt when it has nothing there.
  [[nodiscard]] std::optional<std::size_t> card_index(const CardId& card) const;
  /// Takes in what the pages say now; samples older than two seconds go.
  void take(const PageSlice& pages, Clock::Time now);
  /// GPU time delivered on card `index` in the last second, in per cent, by the pages.
  [[nodiscard]] double delivered_percent(std::size_t index) const;
  /// Card time by the arbiter's account between the last two samples, in percent. The slice's own page is ignored.
  [[nodiscard]] double charged_percent(std::size_t index) const;
  /// The part of that time in which the slice held the card's lease; nullopt: the arbiter does not report it.
  [[nodiscard]] std::optional<double> granted_percent(std::size_t index) const;
  /// The part of that time in which its work ran on past its leases, as far as an honest long kernel explains it.
  [[nodiscard]] double drained_percent(std::size_t index) const;
  /// Growth of a counter over the last second, in per cent of the time.
  [[nodiscard]] double grown_percent(std::vector<std::uint64_t> Sample::*counter, std::size_t index) const;
};

/// The name under which offences of the slice are counted: the user of a local slice, the namespace of a pod or claim.
/// If no namespace is known: the owner's UID.
[[nodiscard]] std::string offender_of(const LiveSlice& slice);

/// The note that stands in the journal beside the record: "keep=0 uid=1000 name=train.py", with gated=1
/// where it is; what came through a door of Kubernetes also names its owner: "keep=1 uid=0 owner=claim/<UID>
/// part=<part> pods=<UID>,<UID> env=<key>=<value>;… ending=1 name=…"; pods, env and ending only where there is
/// something to say.
[[nodiscard]] std::string note_of(const LiveSlice& slice);
/// Reads it back; what is missing keeps its default.
void read_note(const std::string& text, LiveSlice* slice);

/// Printable ASCII, at most 100 characters: what may stand in a note and on a terminal.
[[nodiscard]] std::string plain_name(const std::string& text);

}  // namespace carve
