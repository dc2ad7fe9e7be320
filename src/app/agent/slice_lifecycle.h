#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/arbiter_pages.h"
#include "app/agent/node_cards.h"
#include "app/agent/owner_turns.h"
#include "app/agent/slice_store.h"
#include "base/mutex.h"
#include "core/model/share_policy.h"

namespace carve::agent {

/// The begin and end of slices: the order of the steps. Order of every change: ledger (reserved), journal (synced),
/// cgroup, device files, pages, CDI file, table. Order of every removal of a slice that ends with its cgroup: pages,
/// cgroup, ledger, journal. A device has no cgroup that shows its end, so its removal begins with the journal: journal,
/// CDI file, pages, ledger. Regardless of the step at which a process dies, the journal therefore covers all that runs,
/// and restore() removes what does not run. Safe from any thread: every change runs in its owner's turn, and no lock is
/// held during a step.
class SliceLifecycle {
 public:
  SliceLifecycle(const AgentConfig& config, const AgentWorld& world, SliceStore& store, OwnerTurns& turns,
                 ArbiterPages& pages, NodeCards& cards)
      : config_(config), world_(world), store_(store), turns_(turns), pages_(pages), cards_(cards) {}

  /// Brings up a slice that has its capacity reserved, all or nothing: on an error the reservation is freed.
  Result<void> start(const OwnerTurns::Turn& turn, LiveSlice slice);
  /// Requests the pages of a slice that exists, if this agent has not requested them yet.
  Result<void> request_pages(const OwnerTurns::Turn& turn, const LiveSlice& slice);
  Result<void> publish(const OwnerTurns::Turn& turn, const LiveSlice& slice);
  /// Ends the slice. Success if it does not exist.
  ///   errors  the journal cannot be written: a device still exists then; any other slice has ended, and its removal is
  ///           written later
  Result<void> finish(const OwnerTurns::Turn& turn, const std::string& id, const std::string& why);
  [[nodiscard]] Grant grant_of(const LiveSlice& slice) const;

  /// Creates the missing files of every living slice after the driver's files have become known or have changed.
  void publish_all();
  /// Removes pages of slices that do not exist, and requests missing ones. Skips a slice that is being changed now; the
  /// next call handles it.
  ///   present  the arbiter's list; slices that started later are not in it
  void reconcile(const std::vector<PageSlice>& present);
  /// Sets the node's policies for slices of class ShareClass::kNode. The next reconcile() changes these slices in the
  /// arbiter. Until the first call, reconcile() leaves such slices as an earlier agent requested them.
  void divide_by(const SharePolicies& policies) EXCLUDES(mutex_);
  /// The last ones; nullopt before the first call.
  [[nodiscard]] std::optional<SharePolicies> policies() const EXCLUDES(mutex_);
  /// At the start: removes cgroups, device files and CDI files without a slice, and kills processes without one.
  Result<void> remove_remains(EventLog& events);

 private:
  Result<void> bring_up(const LiveSlice& slice);
  void keep_back(const LiveSlice& slice);
  void take_down(const LiveSlice& slice);
  Result<void> adopt_cgroups(EventLog& events);
  void give_card_files();
  void reconcile_one(const std::string& id, bool there);
  [[nodiscard]] std::map<std::string, std::vector<Slice>> divided() const;
  [[nodiscard]] PageOrder order_of(const LiveSlice& slice) const;
  [[nodiscard]] SliceDevice device_of(const LiveSlice& slice) const;
  [[nodiscard]] std::string slice_folder_of(const LiveSlice& slice) const;

  const AgentConfig& config_;
  const AgentWorld& world_;
  SliceStore& store_;
  OwnerTurns& turns_;
  ArbiterPages& pages_;
  NodeCards& cards_;
  mutable Mutex mutex_;
  std::optional<SharePolicies> policies_ GUARDED_BY(mutex_);
};

}  // namespace carve::agent
