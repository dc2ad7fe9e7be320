#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// When a container runs: kInit one at a time before all others, kSidecar concurrently with them from the start, kMain
/// as one of them.
enum class ContainerKind : std::uint8_t { kInit, kSidecar, kMain };

/// The resources in the immutable spec of one container: the quantities as they are written.
struct ContainerAsk {
  std::string name;
  ContainerKind kind = ContainerKind::kMain;
  std::map<std::string, std::string> requests;
  std::map<std::string, std::string> limits;
};

/// The parts of a Pod that a dialect may read. Tenants write labels and annotations: these state preferences, or over
/// how many cards the amount of a container is spread. They never decide what is free, or which pod owns it.
struct PodAsk {
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::map<std::string, std::string> node_selector = {};  // of the spec: can only be narrowed later
  std::vector<ContainerAsk> containers;  // ordinary init containers and sidecars first, in spec order
};

/// Parses a Pod's JSON. Tolerant: what is missing is empty; a quantity may be a string or a number.
///   errors  kInvalidArgument: not a JSON object, or a container without a name
[[nodiscard]] Result<PodAsk> parse_pod_ask(std::string_view text);

}  // namespace carve::codec
