#pragma once

#include <string>

#include "port/processes.h"

namespace carve::process {

/// Processes through /proc.
class ProcFs final : public Processes {
 public:
  [[nodiscard]] std::string command(std::int32_t pid) const override;
  [[nodiscard]] std::vector<std::string> slices_seen_by(std::int32_t pid) const override;
  [[nodiscard]] std::vector<std::int32_t> holders_of_card(int minor) const override;
  [[nodiscard]] DeviceUser device_user(std::int32_t pid) const override;
  [[nodiscard]] bool only_inherited(std::int32_t pid, std::int32_t from) const override;
  Result<bool> kill(std::int32_t pid, const std::function<bool()>& still) override;
};

/// The slices that a /proc/<pid>/mountinfo shows: folders below the slices' folder where the folder of that very
/// name is mounted. A plain folder, or another folder mounted under a slice's name, is not a slice.
///   source  proc(5): the fourth field is the mounted folder within its file system, the fifth is its mount point
[[nodiscard]] std::vector<std::string> slices_in_mounts(const std::string& mountinfo);

}  // namespace carve::process
