#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>

#include "app/doors/publish.h"
#include "app/doors/slot_cards.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/kube_api.h"
#include "port/node_slices.h"

namespace carve::doors {

/// Keeps this node's ResourceSlices as the cards are: watches what the server has, compares, writes
/// the difference. The kubelet deletes them at its start; somebody may edit them; both are put
/// right at once.
class SlicePublisher {
 public:
  /// `registered`: the kubelet knows this driver. Slices that appear before it does let the
  /// scheduler place pods whose prepare the kubelet refuses ("driver not registered") and tries
  /// again only a minute later.
  /// `by_slots`: the cards that are kept from new claims since slots use them; unset: none. Asked by the writer
  /// alone.
  SlicePublisher(std::string node, NodeSlices& slices, KubeApi& api, Log& log,
                 std::function<bool()> registered, std::function<std::string()> shut = {},
                 std::function<SlotUse()> by_slots = {})
      : node_(std::move(node)),
        slices_(slices),
        api_(api),
        log_(log),
        registered_(std::move(registered)),
        shut_(std::move(shut)),
        by_slots_(std::move(by_slots)) {}

  /// The watch's half; call it on a thread of its own, until `stop`.
  void run_watch(const std::stop_token& stop);
  /// The writer's half: at every change, but after a write not for a fifth of a second, and once a second against the
  /// cards. Waits with `clock`.
  void run_writer(Clock& clock, const std::stop_token& stop);
  /// One comparison and its writes; how many. What the server does not keep of them (a field whose feature is off
  /// there) is not written again until something else is wanted or the server's objects change.
  ///   errors  the API server's; kUnavailable: the server's slices are not known yet, or there are none and the
  ///           kubelet does not know the driver, or what slots use is still awaited
  Result<std::size_t> reconcile();
  /// What the watch delivers (and tests).
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);
  /// Something changed that was not heard by the watch: it is compared at once.
  void poke();
  /// Empty: the server has what it should have.
  [[nodiscard]] std::string error() const;

 private:
  Result<void> write(const SliceWrite& write);
  bool learn(codec::PublishedSlice slice);
  bool kept(const codec::PublishedSlice& sent);
  Result<std::string> node_uid();

  std::string node_;
  NodeSlices& slices_;
  KubeApi& api_;
  Log& log_;
  std::function<bool()> registered_;
  std::function<std::string()> shut_;  // not empty: no card is offered
  std::function<SlotUse()> by_slots_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool synced_ = false;
  bool dirty_ = true;
  std::map<std::string, codec::PublishedSlice> existing_;
  std::map<std::string, codec::PublishedSlice> told_;  // what the server was asked for, where its answer was another
  std::int64_t last_generation_ = 0;
  std::string error_;
};

}  // namespace carve::doors
