#pragma once

#include <cstdint>
#include <string>

#include "port/container_runtime.h"

namespace carve::node {

/// Whether the container runtime injects CDI devices into containers.
struct RuntimeVerdict {
  enum class Cdi : std::uint8_t { kWith, kWithout, kUnknown } cdi = Cdi::kUnknown;
  std::string reason;   // CamelCase
  std::string message;  // cause and fix
  friend bool operator==(const RuntimeVerdict&, const RuntimeVerdict&) = default;
};

/// Judges the runtime by its own configuration if it reports that, else by its version: containerd supports CDI since
/// 1.7 (with enable_cdi in its configuration, which is the default since 2.0), CRI-O since 1.24. Pure.
///   node_runtime  "containerd://2.3.7", as the kubelet reports it; used if the runtime does not answer
///   cdi_dir       the folder of the agent's CDI files
///   source        the CDI project and both runtimes' release notes
[[nodiscard]] RuntimeVerdict judge_runtime(const Result<RuntimeFacts>& facts,
                                           const std::string& node_runtime,
                                           const std::string& cdi_dir);

}  // namespace carve::node
