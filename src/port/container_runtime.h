#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// What the container runtime reports about itself.
struct RuntimeFacts {
  std::string name;                   // "containerd"
  std::string version;                // "2.3.7" or "v2.3.7"
  std::optional<bool> cdi;            // from its configuration; nullopt: not reported
  std::vector<std::string> cdi_dirs;  // where it reads CDI files; empty: not reported
};

/// The container runtime of this node, queried over CRI.
class ContainerRuntime {
 public:
  virtual ~ContainerRuntime() = default;
  ///   errors  kNotFound: no socket at the usual places; kUnavailable, kDeadlineExceeded;
  ///   kPermissionDenied
  virtual Result<RuntimeFacts> ask() = 0;
};

}  // namespace carve
