#pragma once

#include <string_view>

#include "port/agent_api.h"

namespace carve {

/// The container that holds a slice, for metrics. Empty: the slice was not prepared for the kubelet.
struct SliceNames {
  std::string_view namespace_name;
  std::string_view pod;
  std::string_view container;
};

/// Splits "namespace/pod/container", the name of such a slice. Refers to `slice`.
[[nodiscard]] inline SliceNames names_of(const SliceView& slice) {
  const std::string_view name = slice.name;
  const auto first = name.find('/');
  const auto last = name.rfind('/');
  if (first == std::string_view::npos || first == last) return {};
  return {name.substr(0, first), name.substr(first + 1, last - first - 1), name.substr(last + 1)};
}

}  // namespace carve
