#include "adapter/cdi/device_nodes.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "adapter/process/text_file.h"

namespace carve::cdi {
namespace {

constexpr std::uint32_t kControlMinor = 255;

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

Result<void> make_node(const std::string& host_root, const DeviceNode& node, const NodeRules& rules) {
  const std::string path = host_root + node.path;
  if (::mknod(path.c_str(), S_IFCHR | 0600, makedev(node.major, node.minor)) != 0) {
    if (errno == EEXIST) return {};
    return tl::unexpected(errno_error(errno, "create device node " + node.path));
  }
  // Set owner and mode explicitly, because mknod applies the umask.
  if (::chown(path.c_str(), rules.uid, rules.gid) != 0 || ::chmod(path.c_str(), rules.mode & 0777) != 0) {
    return tl::unexpected(errno_error(errno, "set the mode of device node " + node.path));
  }
  return {};
}

}  // namespace

std::map<std::string, std::uint32_t> character_devices(const std::string& proc_devices) {
  std::map<std::string, std::uint32_t> drivers;
  std::istringstream lines(proc_devices);
  for (std::string line; std::getline(lines, line) && line.rfind("Block", 0) != 0;) {
    std::istringstream words(line);
    std::uint32_t number = 0;
    std::string name;
    if (words >> number >> name && number < (1U << 12U)) drivers.emplace(name, number);
  }
  return drivers;
}

NodeRules node_rules(const std::string& params) {
  NodeRules rules;
  std::istringstream lines(params);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 2));
    std::uint32_t value = 0;
    if (!(rest >> value)) continue;
    const std::string key = line.substr(0, colon);
    if (key == "ModifyDeviceFiles") rules.modify = value != 0;
    if (key == "DeviceFileMode") rules.mode = value;
    if (key == "DeviceFileUID") rules.uid = value;
    if (key == "DeviceFileGID") rules.gid = value;
  }
  return rules;
}

std::optional<std::uint32_t> cards_major(const std::map<std::string, std::uint32_t>& drivers) {
  auto cards = drivers.find("nvidia");
  if (cards == drivers.end()) cards = drivers.find("nvidia-frontend");  // before 530
  return cards == drivers.end() ? std::nullopt : std::optional(cards->second);
}

std::vector<DeviceNode> wanted_nodes(const std::map<std::string, std::uint32_t>& drivers,
                                     const std::vector<int>& minors) {
  std::vector<DeviceNode> nodes;
  if (const auto major = cards_major(drivers)) {
    for (const int minor : minors) {
      nodes.push_back({"/dev/nvidia" + std::to_string(minor), *major, static_cast<std::uint32_t>(minor)});
    }
    nodes.push_back({"/dev/nvidiactl", *major, kControlMinor});
  }
  if (const auto uvm = drivers.find("nvidia-uvm"); uvm != drivers.end()) {
    nodes.push_back({"/dev/nvidia-uvm", uvm->second, 0});
    nodes.push_back({"/dev/nvidia-uvm-tools", uvm->second, 1});
  }
  return nodes;
}

Result<std::vector<std::string>> make_missing_nodes(const std::string& host_root, const std::vector<int>& minors) {
  std::vector<std::string> made;
  const auto drivers = process::read_text(host_root + "/proc/devices");
  if (!drivers) return made;
  const auto params = process::read_text(host_root + "/proc/driver/nvidia/params");
  const NodeRules rules = node_rules(params ? *params : std::string());
  for (const auto& node : wanted_nodes(character_devices(*drivers), minors)) {
    if (exists(host_root + node.path)) continue;
    if (!rules.modify) {
      return fail(Code::kFailedPrecondition,
                  node.path +
                      ": missing, and the driver's parameter ModifyDeviceFiles is 0: create it as administrator "
                      "(nvidia-modprobe -u -c 0)");
    }
    CARVE_TRY_VOID(make_node(host_root, node, rules));
    made.push_back(node.path);
  }
  return made;
}

}  // namespace carve::cdi
