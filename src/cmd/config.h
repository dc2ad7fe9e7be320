#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/options.h"

namespace carve::cmd {

/// Where HostOptions::config is looked for when it is empty.
inline constexpr const char* kUsualConfig = "/etc/carve/carve.conf";

/// The configuration's text into `options` (what flags set wins, by `set_by_flag`: names without dashes).
///   errors  kInvalidArgument: every line that is wrong, with its number and `source`; unknown keys are wrong
[[nodiscard]] Result<void> parse_config(const std::string& text, const std::string& source,
                                        const std::vector<std::string>& set_by_flag, HostOptions* options);
/// The same of a file.
[[nodiscard]] Result<void> read_config(const std::string& path, const std::vector<std::string>& set_by_flag,
                                       HostOptions* options);
/// The group that own-devices-group names; nullopt: none.
///   errors  kInvalidArgument: there is no such group on this machine
[[nodiscard]] Result<std::optional<std::uint32_t>> device_group(const HostOptions& host);
/// What flags and configuration come to.
///   errors  kInvalidArgument: a folder that is no absolute path, or too long; as device_group()
[[nodiscard]] Result<void> check_folders(const HostOptions& host);

}  // namespace carve::cmd
