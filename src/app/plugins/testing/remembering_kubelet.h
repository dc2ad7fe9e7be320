#pragma once

#include <string>
#include <vector>

#include "port/kubelet.h"

namespace carve::plugins {

/// A kubelet that remembers what was allocated.
class RememberingKubelet final : public PodResources {
 public:
  Result<std::vector<SlotHolder>> holders(const std::string&) override { return std::vector<SlotHolder>(); }
  Result<std::vector<SlotEntry>> checkpoint(const std::string&) override { return entries; }
  std::vector<SlotEntry> entries;
};

}  // namespace carve::plugins
