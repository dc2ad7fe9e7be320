#include "sim/daemon/device_nodes.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

namespace carve::sim {
namespace {

/// A node with /dev/null's numbers under a driver's name. No real driver creates such a node.
bool left_behind(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && S_ISCHR(status.st_mode) &&
         status.st_rdev == makedev(1, 3);
}

}  // namespace

DeviceNodes::~DeviceNodes() {
  for (const std::string& path : made_) unlink(path.c_str());
}

bool DeviceNodes::make(const std::string& folder, std::uint32_t cards) {
  std::vector<std::string> names = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
  for (std::uint32_t i = 0; i < cards; ++i) names.push_back("nvidia" + std::to_string(i));
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (mknod(path.c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0) {
      made_.push_back(path);
      chmod(path.c_str(), 0666);
    } else if (errno != EEXIST) {
      return false;
    } else if (left_behind(path)) {
      made_.push_back(path);  // left by an instance that was killed: this instance removes it
    }
  }
  return true;
}

}  // namespace carve::sim
