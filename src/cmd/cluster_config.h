#pragma once

#include <string>

#include "codec/settings/cluster_config.h"

namespace carve::cmd {

using codec::ClusterConfig;
using codec::legal_lines;
using codec::NvidiaPlugin;
using codec::parse_cluster_config;

/// parse_cluster_config() of a file. kNotFound: there is none.
[[nodiscard]] Result<ClusterConfig> read_cluster_config(const std::string& path);

}  // namespace carve::cmd
