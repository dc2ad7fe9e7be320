#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "app/plugins/publish.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "port/kube_api.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// Keeps this node's ResourceSlices equal to its cards: watches the API server's objects, compares, and writes the
/// difference. The kubelet deletes the slices at its start, and people may edit them. Both are corrected immediately.
class SlicePublisher {
 public:
  /// `registered`: whether the kubelet has registered this driver. If slices appeared earlier, kube-scheduler would
  /// place pods, and the kubelet would refuse them ("driver not registered") and retry only a minute later.
  /// `limits`: what limits the offer; unset: nothing. Only the writer calls it.
  SlicePublisher(std::string node, NodeSlices& slices, KubeApi& api, Log& log,
                 std::function<bool()> registered, std::function<std::string()> shut = {},
                 std::function<OfferLimits()> limits = {})
      : node_(std::move(node)),
        slices_(slices),
        api_(api),
        log_(log),
        registered_(std::move(registered)),
        shut_(std::move(shut)),
        limits_(std::move(limits)) {}

  /// Runs the watch until `stop`. Call it on a thread of its own.
  void run_watch(const std::stop_token& stop);
  /// Runs the writer until `stop`: reconciles at every change, and once a second with the cards. After a write it
  /// pauses for 200 ms. Waits with `clock`.
  void run_writer(Clock& clock, const std::stop_token& stop);
  /// Compares once and writes the difference. A field that the API server drops, because its feature gate is off, is
  /// not written again until the wanted slices or the server's objects change.
  ///   returns the number of writes
  ///   errors  the API server's; kUnavailable: the server's slices are not known yet, or there are none and the
  ///           kubelet has not registered the driver, or the cards that slots use are not known yet
  Result<std::size_t> reconcile();
  /// Called by the watch, and by tests.
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);
  /// Requests an immediate reconcile() after a change that the watch does not deliver.
  void poke();
  /// The error of the last reconcile(); empty: the API server has the wanted slices.
  [[nodiscard]] std::string error() const;

 private:
  Result<void> write(const SliceWrite& write);
  bool learn(codec::PublishedSlice slice) REQUIRES(mutex_);
  bool remember_if_dropped(const codec::PublishedSlice& sent) REQUIRES(mutex_);
  Result<std::string> node_uid();

  std::string node_;
  NodeSlices& slices_;
  KubeApi& api_;
  Log& log_;
  std::function<bool()> registered_;
  std::function<std::string()> shut_;  // why no card is offered; empty: cards are offered
  std::function<OfferLimits()> limits_;
  mutable Mutex mutex_;
  StopCondition changed_;
  bool synced_ GUARDED_BY(mutex_) = false;
  bool dirty_ GUARDED_BY(mutex_) = true;
  std::map<std::string, codec::PublishedSlice> existing_ GUARDED_BY(mutex_);
  // As sent, where the server kept something else.
  std::map<std::string, codec::PublishedSlice> sent_ GUARDED_BY(mutex_);
  std::int64_t last_generation_ GUARDED_BY(mutex_) = 0;
  std::string error_ GUARDED_BY(mutex_);
};

}  // namespace carve::plugins
