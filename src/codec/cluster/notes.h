#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// A ConfigMap's value of that key; empty: there is none.
[[nodiscard]] std::string config_map_value(std::string_view text, std::string_view key);

/// What a scheduler said last among a pod's Events: the newest FailedScheduling or Scheduled; empty: nothing.
[[nodiscard]] std::string scheduler_word(const std::vector<std::string>& events);

}  // namespace carve::codec
