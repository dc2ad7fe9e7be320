#include "arbiter/own_groups.h"

#include <sys/stat.h>

#include <fstream>
#include <utility>

namespace carve::arbiter {
namespace {

/// The path on the unified hierarchy; empty if the process has ended.
std::string group_of(const std::string& proc, pid_t pid) {
  std::ifstream lines(proc + "/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::", 0) == 0) return line.substr(3);
  }
  return {};
}

}  // namespace

OwnGroups::OwnGroups(std::string folder, std::string path, std::string proc)
    : folder_(std::move(folder)), path_(std::move(path)), proc_(std::move(proc)) {}

bool OwnGroups::may_join(const std::string& slice, pid_t pid) const {
  struct stat info = {};
  if (folder_.empty() || ::stat((folder_ + "/" + slice).c_str(), &info) != 0) return true;
  const std::string own = path_ + "/" + slice;
  const std::string group = group_of(proc_, pid);
  return group == own || group.rfind(own + "/", 0) == 0;
}

}  // namespace carve::arbiter
