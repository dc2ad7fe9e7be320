#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

// The vendor's device nodes on the host. Only the vendor's own tools and udev rules create them.
namespace carve::cdi {

/// The character devices for which the kernel has drivers, name → major, from /proc/devices.
///   source  proc(5); "Character devices:" then lines of "<major> <name>", a blank line, "Block devices:"
[[nodiscard]] std::map<std::string, std::uint32_t> character_devices(const std::string& proc_devices);

/// The major number of the vendor's cards among these; nullopt: the kernel has no driver for them.
[[nodiscard]] std::optional<std::uint32_t> cards_major(const std::map<std::string, std::uint32_t>& drivers);

/// Owner and mode that the driver requests for its nodes, from /proc/driver/nvidia/params (decimal numbers).
struct NodeRules {
  bool modify = true;         // ModifyDeviceFiles: 0 leaves them to the administrator
  std::uint32_t mode = 0666;  // DeviceFileMode
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};
[[nodiscard]] NodeRules node_rules(const std::string& params);

struct DeviceNode {
  std::string path;  // on the host
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
};
/// The nodes of these cards and the nodes that all cards share, for the drivers that the kernel has. Without a driver
/// in the kernel the list is empty (a driver that simulates the cards in user space has its own files).
///   source  nvidia-modprobe: major 195, control node minor 255; nvidia-uvm has a dynamic major, minors 0 and 1
[[nodiscard]] std::vector<DeviceNode> wanted_nodes(const std::map<std::string, std::uint32_t>& drivers,
                                                   const std::vector<int>& minors);

/// Creates the missing nodes below <host_root>/dev. Call it before a spec names them: a runtime does not start a
/// container with a missing node.
///   returns  the paths that it created
///   errors   kPermissionDenied: the process lacks CAP_MKNOD; kFailedPrecondition: a node is missing and the driver
///            forbids to create it
[[nodiscard]] Result<std::vector<std::string>> make_missing_nodes(const std::string& host_root,
                                                                  const std::vector<int>& minors);

}  // namespace carve::cdi
