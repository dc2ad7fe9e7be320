#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// The value of that key in a ConfigMap; empty: there is none.
[[nodiscard]] std::string config_map_value(std::string_view text, std::string_view key);

/// The identity of an object, for an event about it.
struct ObjectName {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string version;  // resourceVersion
};
/// Empty where the text is not JSON.
[[nodiscard]] ObjectName read_object_name(std::string_view text);

/// The last message of a scheduler among a pod's Events: the newest FailedScheduling or Scheduled; empty: none.
[[nodiscard]] std::string scheduler_word(const std::vector<std::string>& events);

}  // namespace carve::codec
