#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// What the container runtime says of itself.
struct RuntimeFacts {
  std::string name;                   // "containerd"
  std::string version;                // "2.3.7" or "v2.3.7"
  std::optional<bool> cdi;            // its configuration's word; nullopt: it does not tell
  std::vector<std::string> cdi_dirs;  // where it looks for CDI files; empty: it does not tell
};

/// The container runtime of this node, asked over CRI.
class ContainerRuntime {
 public:
  virtual ~ContainerRuntime() = default;
  ///   errors  kNotFound: no socket at the usual places; kUnavailable, kDeadlineExceeded;
  ///   kPermissionDenied
  virtual Result<RuntimeFacts> ask() = 0;
};

}  // namespace carve
