#pragma once

#include <cstdint>
#include <string>

#include "port/container_runtime.h"

namespace carve::node {

/// Whether the runtime puts our devices into containers.
struct RuntimeVerdict {
  enum class Word : std::uint8_t { kWith, kWithout, kUnknown } word = Word::kUnknown;
  std::string reason;   // CamelCase
  std::string message;  // cause and fix
  friend bool operator==(const RuntimeVerdict&, const RuntimeVerdict&) = default;
};

/// From the runtime's own configuration where it tells; else by its version: containerd has CDI
/// since 1.7 (there only where the configuration says enable_cdi, on by default since 2.0), CRI-O
/// since 1.24. Pure.
///   node_runtime  "containerd://2.3.7", the kubelet's word; used when the runtime itself cannot be
///   asked cdi_dir       where our files are written source  the CDI project and both runtimes'
///   release notes
[[nodiscard]] RuntimeVerdict judge_runtime(const Result<RuntimeFacts>& facts,
                                           const std::string& node_runtime,
                                           const std::string& cdi_dir);

}  // namespace carve::node
