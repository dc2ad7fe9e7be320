#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "codec/node/gpu_object.h"

namespace carve::node {

/// The claims that hold cards of this node, as the agent last reported them to the cluster. Safe from any thread.
class ClaimHolders {
 public:
  struct Claim {
    std::string namespace_name;
    std::string name;
    std::string pod;  // that uses it; empty: none or several
  };
  using ByUid = std::map<std::string, Claim>;

  /// Replaces them by the claims among the holders of these cards. Claims without a known name are left out.
  void set(const std::vector<codec::GpuObject>& cards) EXCLUDES(mutex_);
  [[nodiscard]] ByUid all() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  ByUid claims_ GUARDED_BY(mutex_);
};

}  // namespace carve::node
