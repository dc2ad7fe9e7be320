#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// A ConfigMap's value of that key; empty: there is none.
[[nodiscard]] std::string config_map_value(std::string_view text, std::string_view key);

/// Which object a text is, for an event about it.
struct ObjectName {
  std::string space;
  std::string name;
  std::string uid;
  std::string version;  // resourceVersion
};
/// Empty where it is no JSON.
[[nodiscard]] ObjectName read_object_name(std::string_view text);

/// What a scheduler said last among a pod's Events: the newest FailedScheduling or Scheduled; empty: nothing.
[[nodiscard]] std::string scheduler_word(const std::vector<std::string>& events);

}  // namespace carve::codec
