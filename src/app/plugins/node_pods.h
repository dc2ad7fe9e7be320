#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "codec/kubelet/node_pod.h"
#include "port/kube_api.h"

namespace carve::plugins {

/// The pods of this node as last reported by the API server, by UID, never by name alone. Safe from any thread.
class NodePods {
 public:
  NodePods(std::string node, KubeApi& api) : node_(std::move(node)), api_(api) {}

  /// Lists and watches until `stop`. Calls `changed` after every change, on the calling thread.
  void run(const std::function<void()>& changed, const std::stop_token& stop);
  /// Reads this pod from the API server, or all pods of the node if the name is empty.
  ///   errors  the API server's
  Result<void> ask(const std::string& namespace_name, const std::string& name);

  /// The pod with this UID. For a static pod also by the UID that the kubelet uses.
  [[nodiscard]] std::optional<codec::NodePod> by_uid(const std::string& uid) const;
  /// The running pod with this name. nullopt if there is none, or if there are two (a deleted one is still known).
  [[nodiscard]] std::optional<codec::NodePod> by_name(const std::string& namespace_name, const std::string& name) const;
  /// Whether this pod was on the node and has been deleted.
  [[nodiscard]] bool was_deleted(const std::string& uid) const;
  /// All pods as last reported, and a number that changes with every change.
  [[nodiscard]] std::vector<codec::NodePod> all() const;
  [[nodiscard]] std::uint64_t revision() const;
  /// Whether the full list has arrived at least once.
  [[nodiscard]] bool synced() const;

  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);

 private:
  void learn(const std::string& object) REQUIRES(mutex_);
  void forget(const std::string& uid) REQUIRES(mutex_);
  std::string node_;
  KubeApi& api_;
  mutable Mutex mutex_;
  bool synced_ GUARDED_BY(mutex_) = false;
  std::uint64_t revision_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, codec::NodePod> pods_ GUARDED_BY(mutex_);  // by API UID
  std::set<std::string> deleted_ GUARDED_BY(mutex_);               // UIDs of deleted pods; bounded
};

}  // namespace carve::plugins
