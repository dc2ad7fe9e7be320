#include <unistd.h>

#include "adapter/nvml/wire.h"
#include "adapter/nvml/worker.h"
#include "cmd/options.h"

namespace carve::cmd {

int run_worker(const std::string& driver_root) { return nvml::run_worker(nvml::kWorkerSocket, driver_root); }

}  // namespace carve::cmd
