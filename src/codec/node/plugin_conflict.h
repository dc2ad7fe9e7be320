#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// The condition by which an agent reports that another device plugin serves resource names on its Node that Carve's
/// pods request. Its message has one conflict_words() per name, followed by the fix.
inline constexpr std::string_view kConflictingPlugin = "ConflictingPlugin";

/// The part of the message for one name. `devices`: the number of devices of that plugin; 0: the plugin is gone, and
/// the kubelet still waits for it.
[[nodiscard]] std::string conflict_words(std::string_view name, std::size_t devices);

/// The names in a message, in its order; may be empty.
[[nodiscard]] std::vector<std::string> names_in_conflict(std::string_view message);

}  // namespace carve::codec
