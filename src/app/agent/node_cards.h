#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/card_watch.h"
#include "app/agent/event_log.h"
#include "app/agent/library_links.h"
#include "app/agent/slice_store.h"
#include "base/mutex.h"
#include "port/node_slices.h"

namespace carve::agent {

/// The cards of this node: what the driver lists, and the health of each card. Verdicts are entered in the ledger,
/// where the kubelet plugins, the views and the placement read them. Safe from any thread, except where noted.
class NodeCards {
 public:
  NodeCards(const AgentConfig& config, const AgentWorld& world, SliceStore& store, LibraryLinks& links,
            EventLog& events)
      : config_(config), world_(world), store_(store), links_(links), events_(events), watch_(config.xid_policy) {}

  /// At the start, before the first call of the driver: the cards that an earlier agent knew. The driver may be away,
  /// and the node still has its cards.
  void recall() EXCLUDES(mutex_);
  /// At the start: adds an unhealthy card in the place of an unknown card on which the journal has a slice.
  ///   size  the sum of the slices on it
  Result<void> put_stand_in(const CardId& card, Bytes size) EXCLUDES(mutex_);
  /// Reads the driver's list. At the start, and in refresh().
  ///   errors  those of Gpu::inventory(); nothing has changed then
  Result<void> adopt() EXCLUDES(mutex_);
  /// Reads the driver's list if it may have changed. For the watch thread. True: a list was read.
  bool refresh() EXCLUDES(mutex_);
  /// Takes the driver's reports and its state, and updates the verdicts. Never waits for the driver. Saves the state of
  /// the cards if it has changed. One caller at a time: restore(), then the health thread.
  void judge(const std::vector<GpuEvent>& events) EXCLUDES(mutex_);
  /// The driver's answers of one round.
  void used(const std::vector<GpuUsage>& usage) EXCLUDES(mutex_);

  /// The inventory as last listed, with lost cards.
  [[nodiscard]] GpuInventory inventory() const EXCLUDES(mutex_);
  /// The same with the cards' health, without cards that are known only from a slice.
  [[nodiscard]] GpuInventory offered() const EXCLUDES(mutex_);
  /// True if the inventory is from the driver and not remembered.
  [[nodiscard]] bool driver_known() const EXCLUDES(mutex_);
  /// True if the driver has not answered for so long that its cards are unknown.
  [[nodiscard]] bool driver_is_away() const EXCLUDES(mutex_);
  [[nodiscard]] std::map<CardId, CardXids> xids() const EXCLUDES(mutex_);
  [[nodiscard]] std::vector<ProgramError> take_program_errors() EXCLUDES(mutex_);
  /// Minors of the cards that have a device file.
  [[nodiscard]] std::vector<int> minors() const;

 private:
  void look_for_lost() EXCLUDES(mutex_);
  bool apply_verdicts() REQUIRES(mutex_);  // true: a card is healthy again
  [[nodiscard]] GpuInventory with_missing(GpuInventory fresh) REQUIRES(mutex_);
  void remember() EXCLUDES(mutex_);

  const AgentConfig& config_;
  const AgentWorld& world_;
  SliceStore& store_;
  LibraryLinks& links_;
  EventLog& events_;

  mutable Mutex mutex_;  // taken before the store's
  CardWatch watch_ GUARDED_BY(mutex_);
  GpuInventory inventory_ GUARDED_BY(mutex_);
  std::deque<ProgramError> program_errors_ GUARDED_BY(mutex_);  // not taken yet
  bool driver_known_ GUARDED_BY(mutex_) = false;
  std::set<CardId> from_other_boot_ GUARDED_BY(mutex_);  // remembered, not listed in this boot
  std::set<CardId> stand_ins_ GUARDED_BY(mutex_);        // known only from a slice; not published
  Clock::Time save_not_before_ GUARDED_BY(mutex_){};
  Clock::Time listed_at_ GUARDED_BY(mutex_){};
  KnownCards saved_;   // used by the callers of recall() and judge() only
  bool stale_ = true;  // used by the callers of adopt() and refresh() only, like the next
  Clock::Time renewed_at_{};
};

}  // namespace carve::agent
