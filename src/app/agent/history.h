#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "codec/history/history_segment.h"
#include "core/history/history.h"
#include "port/agent_api.h"
#include "port/history_store.h"

namespace carve::agent {

/// Records what is promised and delivered on this node, every 10 s for 25 hours and every 5 min for 31 days, and
/// answers questions about it. A full disk stops the recording and nothing else.
///
/// Bounded: a frame takes at most kFineFrame or kCoarseFrame bytes. A file of fine frames covers an hour, one of coarse
/// frames a day, so that the oldest can be deleted. In all at most 25 × 2 MiB + 31 × 1 MiB = 81 MiB, enough for 8 cards
/// with 50 slices each; with 8 slices on each of 8 cards about 12 MiB.
class History {
 public:
  using View = std::function<AgentView()>;
  History(HistoryStore& store, View view, Log& log) : store_(store), view_(std::move(view)), log_(log) {}

  static constexpr std::size_t kFineFrame = (2UL << 20) / 360;
  static constexpr std::size_t kCoarseFrame = (1UL << 20) / 288;
  static constexpr std::size_t kMostFiles = 400;  // an agent that crashes often begins many

  /// Records one interval, which ends now.
  void record(Clock::WallTime now);
  /// Records every kHistoryFine until `stop`.
  void run(Clock& clock, const std::stop_token& stop);
  /// Safe from any thread.
  ///   errors  kUnavailable: the files cannot be read
  ///   cost    reads the files of the asked time: up to 50 MiB on a full node, 0.2 s
  [[nodiscard]] Result<HistoryAnswer> ask(const HistoryQuery& query, Clock::WallTime now) const;

 private:
  /// The files of one interval.
  struct Tier {
    std::string prefix;
    std::chrono::seconds file;  // the time that one file covers
    std::chrono::seconds kept;
    std::size_t most;  // bytes of a frame
    codec::HistoryWriter writer = {};
    std::string name = {};  // of the current file; empty: none
    std::int64_t since = 0;
  };
  void write(const HistoryFrame& frame, Tier* tier);
  void remove_old(std::int64_t now, const Tier& tier);
  [[nodiscard]] HistoryFrame frame_of(const AgentView& view, std::int64_t now);

  HistoryStore& store_;
  const View view_;
  Log& log_;
  Tier fine_{"fine-", std::chrono::hours(1), kHistoryFineKept, kFineFrame};
  Tier coarse_{"coarse-", std::chrono::hours(24), kHistoryCoarseKept, kCoarseFrame};
  HistoryRollup rollup_;
  std::int64_t rolled_ = 0;  // the number of the current coarse interval
  /// The GPU time of a slice on a card, and when it was read.
  struct Busy {
    std::uint64_t busy_ns = 0;
    std::int64_t at_ns = 0;
  };
  std::map<std::pair<std::string, std::string>, Busy> busy_;  // by slice and card, at the last record
  std::int64_t last_ = 0;
  bool failing_ = false;
};

}  // namespace carve::agent
