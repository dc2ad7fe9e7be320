#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// When a container runs: one at a time before all others, beside them from the start, or as one of
/// them.
enum class ContainerKind : std::uint8_t { kInit, kSidecar, kMain };

/// One container, what its immutable spec says of resources: the quantities as they are written.
struct ContainerAsk {
  std::string name;
  ContainerKind kind = ContainerKind::kMain;
  std::map<std::string, std::string> requests;
  std::map<std::string, std::string> limits;
};

/// A Pod, what a dialect may read. Labels and annotations are a tenant's: they state preferences,
/// or how many cards the amount of a container is spread over; they never say what is free or
/// whose.
struct PodAsk {
  std::string space;
  std::string name;
  std::string uid;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<ContainerAsk>
      containers;  // ordinary init containers and sidecars first, as the spec lists them
};

/// A Pod's JSON. Tolerant: what is missing is empty; a quantity may be a string or a number.
///   errors  kInvalidArgument: no JSON object, or a container without a name
[[nodiscard]] Result<PodAsk> parse_pod_ask(std::string_view text);

}  // namespace carve::codec
