#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/journal/slice_note.h"
#include "core/model/slice.h"
#include "port/pages.h"

namespace carve::agent {

inline constexpr char kPart[] = "main";  // the only part of a slice that this machine granted itself
inline constexpr char kDevicePrefix[] = "carve.elasticgpu.io/slice=";  // of a slice's CDI name; its ID follows

/// A slice as this agent knows it: its journal entry (record and note), and the latest figures of it. It is one part of
/// one owner, on all its cards.
struct LiveSlice {
  std::string id;  // the name of its folder, device and cgroup; for a local owner also the owner's UID
  Owner holder;
  std::string part = kPart;
  bool keep = false;    // true: it lives until it is released or unprepared; false: until its cgroup is empty
  bool in_private_folder = false;  // its folder is inside a folder of root; never changes after the slice was created
  bool ending = false;  // unprepared: nothing more of it starts, and it ends with its last process
  bool ending_noted = false;  // the journal says so
  std::vector<std::string> pods;  // UIDs of the pods that may hold it, as the kubelet names their cgroups; sorted
  std::uint32_t uid = 0;
  std::string name;
  std::map<std::string, std::string> environment;  // what its dialect sets inside the container
  std::uint64_t epoch = 0;  // of the record: the term in which it was decided; 0: by this machine, or for a claim
  std::vector<Slice> slices;  // one per card, sorted by UUID, which is also the order of its pages

  Clock::Time revoked_until{};  // its pages were removed for an offence, and are not re-created before this time
  bool joined = false;  // a process has been in its cgroup
  // Caller::gone of the caller that it was granted to, until that process joins; empty: unknown
  std::function<bool()> asker_gone;
  Clock::Time made{};
  bool restored = false;  // from an earlier agent
  std::string remark;  // the action of the watchdog, shown as the slice's state

  // The figures of the pages and their times, to compute the delivered compute.
  struct Sample {
    Clock::Time at;
    std::vector<std::uint64_t> busy_ns;     // per card
    std::vector<std::uint64_t> charged_ns;  // per card
    std::vector<std::optional<std::uint32_t>> granted_ms;  // per card; nullopt: not reported
    std::vector<std::uint32_t> drained_ms;                 // per card
  };
  std::deque<Sample> samples;
  std::vector<Bytes> announced;          // per card
  std::vector<std::uint32_t> rescues;    // per card: leases out of turn
  std::vector<std::optional<SliceCounters>> counters;  // per card
  std::vector<std::int32_t> registered;  // host PIDs that said hello
  std::vector<std::int32_t> members;     // host PIDs in its cgroup

  [[nodiscard]] const Owner& owner() const { return holder; }
  [[nodiscard]] bool local() const { return holder.kind == OwnerKind::kLocal; }
  [[nodiscard]] bool whole() const { return !slices.empty() && slices.front().whole; }
  /// Index of the card in `slices`; nullopt if it has no slice of that card.
  [[nodiscard]] std::optional<std::size_t> card_index(const CardId& card) const;
  /// Stores the current figures of the pages. Samples older than two seconds are deleted.
  void take(const PageSlice& pages, Clock::Time now);
  /// GPU time delivered on card `index` in the last second, in percent, computed from the pages.
  [[nodiscard]] double delivered_percent(std::size_t index) const;
  /// Card time by the arbiter's account between the last two samples, in percent. The slice's own page is ignored.
  [[nodiscard]] double charged_percent(std::size_t index) const;
  /// The part of that time in which the slice held the card's lease; nullopt: the arbiter does not report it.
  [[nodiscard]] std::optional<double> granted_percent(std::size_t index) const;
  /// The part of that time in which its work ran on past its leases, as far as an honest long kernel explains it.
  [[nodiscard]] double drained_percent(std::size_t index) const;
  /// Growth of a counter over the last second, in percent of the time.
  [[nodiscard]] double grown_percent(std::vector<std::uint64_t> Sample::*counter, std::size_t index) const;
};

/// The name under which offences of the slice are counted: the user of a local slice, the namespace of a pod or claim.
/// If no namespace is known: the owner's UID.
[[nodiscard]] std::string offender_of(const LiveSlice& slice);

/// What the journal keeps of the slice in addition to its record.
[[nodiscard]] SliceNote note_of(const LiveSlice& slice);
/// The slice with this ID and the fields of its note. Its record has the other fields.
[[nodiscard]] LiveSlice slice_of(const std::string& id, const SliceNote& note);

/// The program's name in a command line, which every user of the machine can see anyway:
/// "/opt/x/python job.py --token s" → "python".
[[nodiscard]] std::string program_in(const std::string& command_line);

/// Reduces the text to printable ASCII of at most 100 characters, which is safe in a note and on a terminal.
[[nodiscard]] std::string plain_name(const std::string& text);

}  // namespace carve::agent
