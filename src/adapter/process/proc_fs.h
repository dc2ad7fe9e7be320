#pragma once

#include <string>

#include "port/processes.h"

namespace carve {

/// Processes through /proc.
class ProcFs final : public Processes {
 public:
  [[nodiscard]] std::string command(std::int32_t pid) const override;
  [[nodiscard]] std::string slice_seen_by(std::int32_t pid) const override;
  void kill(std::int32_t pid) override;
};

}  // namespace carve
