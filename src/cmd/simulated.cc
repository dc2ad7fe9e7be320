#include "cmd/simulated.h"

#include <unistd.h>

#include <array>

#include "adapter/process/text_file.h"

namespace carve::cmd {
namespace {

constexpr std::array<const char*, 2> kLibraries = {"libcuda.so.1", "libnvidia-ml.so.1"};

std::string first_existing(std::initializer_list<std::string> paths) {
  for (const auto& path : paths) {
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return *paths.begin();
}

}  // namespace

Result<SimulatedDriver> prepare_simulated(const HostOptions& options) {
  SimulatedDriver driver;
  const std::string here = own_folder();
  driver.program = first_existing({here + "/carve-simd", here + "/../lib/carve/carve-simd"});
  if (::access(driver.program.c_str(), X_OK) != 0) {
    return fail(Code::kNotFound, "--simulate: " + driver.program + " is missing (build target carve-simd)");
  }
  driver.mount = "/run/nvidia-sim";
  driver.socket = driver.mount + "/socket";
  driver.driver_root = options.state_dir + "/simulated-driver";
  CARVE_TRY_VOID(process::make_folders(driver.mount, 0755));  // the daemon binds its socket there
  const std::string from = here + "/../sim/lib";
  const std::string installed = here + "/../lib/carve/sim";
  CARVE_TRY_VOID(process::make_folders(driver.driver_root, 0755));
  for (const char* name : kLibraries) {
    const std::string source = process::real_path(first_existing({from + "/" + name, installed + "/" + name}));
    if (source.empty()) {
      return fail(Code::kNotFound, std::string("--simulate: ") + name + " is missing in " + from);
    }
    CARVE_TRY_VOID(process::copy_file(source, driver.driver_root + "/" + name, 0755));
    const std::string link = driver.driver_root + "/" + std::string(name, std::string(name).size() - 2);
    if (::access(link.c_str(), F_OK) != 0 && ::symlink(name, link.c_str()) != 0) {
      return tl::unexpected(errno_error(errno, "make link " + link));
    }
  }
  return driver;
}

}  // namespace carve::cmd
