#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cmd/options.h"

namespace carve::cmd {

/// The configuration file when HostOptions::config is empty.
inline constexpr const char* kUsualConfig = "/etc/carve/carve.conf";

/// Reads the configuration's text into `options`. Flags override it; `set_by_flag` names them, without dashes.
///   errors  kInvalidArgument: every line that is wrong, with its number and `source`; an unknown key is wrong
[[nodiscard]] Result<void> parse_config(const std::string& text, const std::string& source,
                                        const std::vector<std::string>& set_by_flag, HostOptions* options);
/// The same for a file.
[[nodiscard]] Result<void> read_config(const std::string& path, const std::vector<std::string>& set_by_flag,
                                       HostOptions* options);
/// The group that own-devices-group names; nullopt: none.
///   errors  kInvalidArgument: there is no such group on this machine
[[nodiscard]] Result<std::optional<std::uint32_t>> device_group(const HostOptions& host);
/// Checks the folders and the device group that flags and configuration set.
///   errors  kInvalidArgument: a folder that is not an absolute path, or that is too long; those of device_group()
[[nodiscard]] Result<void> check_folders(const HostOptions& host);

}  // namespace carve::cmd
