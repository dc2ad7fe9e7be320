#include <unistd.h>

#include <cstdlib>
#include <string>

#include "adapter/nvml/wire.h"
#include "adapter/nvml/worker.h"
#include "adapter/process/host_root.h"
#include "cmd/options.h"

namespace carve::cmd {

namespace {

// A driver that a container installed has its files below this folder, the container's /.
constexpr char kDriverContainer[] = "/run/nvidia/driver";

/// The driver root after this process has entered the host's /. The loader of this process does not use the host's
/// loader cache, so the usual folders are searched by name.
std::string driver_of_host() {
  return ::access((std::string(kDriverContainer) + "/usr").c_str(), F_OK) == 0 ? kDriverContainer : "/";
}

}  // namespace

int run_worker(const std::string& driver_root, const std::string& host_root) {
  const auto serve = [](const std::string& root) {
    std::_Exit(nvml::run_worker(nvml::kWorkerSocket, nvml::kWorkerEvents, root));
  };
  if (host_root.empty()) serve(driver_root);
  if (const auto entered = process::enter_host_root(host_root); !entered) return report(entered.error());
  serve(driver_root.empty() ? driver_of_host() : driver_root);
  return 0;
}

}  // namespace carve::cmd
