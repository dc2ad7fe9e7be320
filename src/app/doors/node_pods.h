#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "codec/kubelet/node_pod.h"
#include "port/kube_api.h"

namespace carve::doors {

/// The pods of this node as the API server last told: by UID, never by name alone. Safe from any thread.
class NodePods {
 public:
  NodePods(std::string node, KubeApi& api) : node_(std::move(node)), api_(api) {}

  /// Lists and watches until `stop`; `changed` is called after every change, on this thread.
  void run(const std::function<void()>& changed, const std::stop_token& stop);
  /// Asks the server now, once: this pod, or all of the node when its name is not known.
  ///   errors  the API server's
  Result<void> ask(const std::string& space, const std::string& name);

  /// The pod of that UID, also by the one that the kubelet knows a static pod by.
  [[nodiscard]] std::optional<codec::NodePod> by_uid(const std::string& uid) const;
  /// The one living pod of that name; none when there is none or two (an old one that is not yet forgotten).
  [[nodiscard]] std::optional<codec::NodePod> by_name(const std::string& space,
                                                      const std::string& name) const;
  /// It was here and was deleted since.
  [[nodiscard]] bool was_deleted(const std::string& uid) const;
  /// All of them, as last told; and a number that is another one after every change.
  [[nodiscard]] std::vector<codec::NodePod> all() const;
  [[nodiscard]] std::uint64_t revision() const;
  /// The whole list was heard at least once.
  [[nodiscard]] bool synced() const;

  void replace(const std::vector<std::string>& objects);
  void change(const KubeChange& change);

 private:
  void learn(const std::string& object);
  void forget(const std::string& uid);
  std::string node_;
  KubeApi& api_;
  mutable std::mutex mutex_;
  bool synced_ = false;
  std::uint64_t revision_ = 0;
  std::map<std::string, codec::NodePod> pods_;  // by API UID
  std::set<std::string> deleted_;               // a bounded memory of UIDs that went
};

}  // namespace carve::doors
