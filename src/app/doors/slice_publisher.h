#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>

#include "app/doors/publish.h"
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
  SlicePublisher(std::string node, NodeSlices& slices, KubeApi& api, Log& log,
                 std::function<bool()> registered, std::function<std::string()> shut = {})
      : node_(std::move(node)),
        slices_(slices),
        api_(api),
        log_(log),
        registered_(std::move(registered)),
        shut_(std::move(shut)) {}

  /// The watch's half; call it on a thread of its own, until `stop`.
  void run_watch(const std::stop_token& stop);
  /// The writer's half: at every change, and once a second against the cards. Waits with `clock`.
  void run_writer(Clock& clock, const std::stop_token& stop);
  /// One comparison and its writes.
  ///   errors  the API server's; kUnavailable: the server's slices are not known yet, or there are
  ///   none and
  ///           the kubelet does not know the driver
  Result<void> reconcile();
  /// What the watch delivers (and tests).
  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);
  /// Empty: the server has what it should have.
  [[nodiscard]] std::string error() const;

 private:
  Result<void> write(const SliceWrite& write);
  void learn(const std::string& object);
  Result<std::string> node_uid();

  std::string node_;
  NodeSlices& slices_;
  KubeApi& api_;
  Log& log_;
  std::function<bool()> registered_;
  std::function<std::string()> shut_;  // not empty: no card is offered
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool synced_ = false;
  bool dirty_ = true;
  std::map<std::string, codec::PublishedSlice> existing_;
  std::int64_t last_generation_ = 0;
  std::string error_;
  std::string node_uid_;  // the writer's own
};

}  // namespace carve::doors
