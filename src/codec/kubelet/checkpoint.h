#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// One container's devices of one resource, as the kubelet noted them.
struct CheckpointEntry {
  std::string pod_uid;
  std::string container;
  std::string resource;
  std::vector<std::string> devices;
  std::string answer;  // the plugin's answer to Allocate, its bytes; empty when it cannot be read
  friend bool operator==(const CheckpointEntry&, const CheckpointEntry&) = default;
};

/// Reads the kubelet's kubelet_internal_checkpoint. The file is the kubelet's own affair and
/// changed its form before, so it is read tolerantly: members that are not needed may be anything
/// or missing, an entry that cannot be understood is left out, DeviceIDs may be grouped by NUMA
/// node or a plain list. Its checksum is not looked at (it covers Go's print of a struct).
///   errors  kInvalidArgument: no JSON (a file that is being written), or no Data.PodDeviceEntries
///   cost    O(text); nested at most 16 deep
///   source  spec 2.1, item 11: seen on kubelet 1.36.3
[[nodiscard]] Result<std::vector<CheckpointEntry>> parse_checkpoint(std::string_view text);

/// Of the same file: how many devices each resource has that a plugin is registered for.
///   errors  kInvalidArgument: no JSON
[[nodiscard]] Result<std::map<std::string, std::size_t>> parse_registered(std::string_view text);

}  // namespace carve::codec
