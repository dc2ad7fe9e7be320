#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// The devices of one resource of one container, as the kubelet recorded them.
struct CheckpointEntry {
  std::string pod_uid;
  std::string container;
  std::string resource;
  std::vector<std::string> devices;
  std::string answer;  // the bytes of the plugin's answer to Allocate; empty when it cannot be read
  friend bool operator==(const CheckpointEntry&, const CheckpointEntry&) = default;
};

/// Reads the kubelet's kubelet_internal_checkpoint. The file is internal to the kubelet and its format has changed
/// before, so it is read tolerantly: members that are not needed may be missing or have any value, an entry that cannot
/// be understood is left out, and DeviceIDs may be grouped by NUMA node or a plain list. Its checksum is not checked
/// (it covers Go's print of a struct).
///   errors  kInvalidArgument: not JSON (the file is being written), or no Data.PodDeviceEntries
///   cost    O(text); nested at most 16 deep
///   source  spec 2.1, item 11: observed on kubelet 1.36.3
[[nodiscard]] Result<std::vector<CheckpointEntry>> parse_checkpoint(std::string_view text);

/// From the same file: the number of devices of each resource with a registered plugin.
///   errors  kInvalidArgument: not JSON
[[nodiscard]] Result<std::map<std::string, std::size_t>> parse_registered(std::string_view text);

}  // namespace carve::codec
