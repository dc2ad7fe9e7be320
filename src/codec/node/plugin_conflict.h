#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// The condition by which an agent says that somebody else's device plugin serves names on its Node in which Carve's
/// pods ask. Its message is one conflict_words() per name, and then what to do.
inline constexpr std::string_view kConflictingPlugin = "ConflictingPlugin";

/// One name's part of the message; `devices`: how many that plugin has; 0: it went, and the kubelet still waits for it.
[[nodiscard]] std::string conflict_words(std::string_view name, std::size_t devices);

/// The names of which a message speaks, in its order; empty: of none.
[[nodiscard]] std::vector<std::string> names_in_conflict(std::string_view message);

}  // namespace carve::codec
