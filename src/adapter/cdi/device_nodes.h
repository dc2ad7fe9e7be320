#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

// The vendor's device nodes on the host, which nothing but its own tools and udev rules makes.
namespace carve::cdi {

/// The character devices that the kernel has drivers for, name → major, out of /proc/devices.
///   source  proc(5); "Character devices:" then lines of "<major> <name>", a blank line, "Block devices:"
[[nodiscard]] std::map<std::string, std::uint32_t> character_devices(const std::string& proc_devices);

/// How the driver wants its nodes to be, out of /proc/driver/nvidia/params (decimal numbers).
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
/// The nodes of these cards and the ones that all cards share, as far as the kernel has their drivers: none without
/// them (a driver that plays the cards in user space brings its own files).
///   source  nvidia-modprobe: major 195, control node minor 255; nvidia-uvm has a dynamic major, minors 0 and 1
[[nodiscard]] std::vector<DeviceNode> wanted_nodes(const std::map<std::string, std::uint32_t>& drivers,
                                                   const std::vector<int>& minors);

/// Makes those that are missing below <host_root>/dev, before anything names them: a runtime that finds a node of its
/// list missing does not start the container. The paths that it made.
///   errors  kPermissionDenied: needs CAP_MKNOD; kFailedPrecondition: one is missing and the driver forbids to make it
[[nodiscard]] Result<std::vector<std::string>> make_missing_nodes(const std::string& host_root,
                                                                  const std::vector<int>& minors);

}  // namespace carve::cdi
