#include "preload/testing/sandbox.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace carve::preload::testing {

namespace {

namespace fs = std::filesystem;

std::string failed(const std::string& what) { return what + ": " + std::strerror(errno); }

void put(const std::string& from, const fs::path& to) {
  if (!from.empty()) {
    fs::create_directories(to.parent_path());
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
  }
}

}  // namespace

std::string enter_sandbox(const Places& places) {
  if (unshare(CLONE_NEWNS) != 0) {
    return failed("unshare");
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return failed("make mounts private");
  }
  // A scratch tmpfs over /mnt, which no tested program reads. The overlay below mounts its folders on /usr/lib.
  if (mount("tmpfs", "/mnt", "tmpfs", 0, "mode=0755") != 0) {
    return failed("tmpfs on /mnt");
  }
  const fs::path upper = "/mnt/upper";
  fs::create_directories(upper);
  fs::create_directories("/mnt/work");
  const fs::path usual = upper / "x86_64-linux-gnu";
  put(places.cuda_driver, upper / "carve/driver/libcuda.so.1");
  put(places.nvml_driver, upper / "carve/driver/libnvidia-ml.so.1");
  const std::string cuda = places.cuda_library.empty() ? places.cuda_driver : places.cuda_library;
  const std::string nvml = places.nvml_library.empty() ? places.nvml_driver : places.nvml_library;
  for (const char* name : {"libcuda.so", "libcuda.so.1"}) {
    put(cuda, usual / name);
  }
  for (const char* name : {"libnvidia-ml.so", "libnvidia-ml.so.1"}) {
    put(nvml, usual / name);
  }
  if (mount("overlay", "/usr/lib", "overlay", 0, "lowerdir=/usr/lib,upperdir=/mnt/upper,workdir=/mnt/work") != 0) {
    return failed("overlay on /usr/lib");
  }
  mkdir("/run/carve", 0755);
  if (mount("tmpfs", "/run/carve", "tmpfs", 0, "mode=0755") != 0) {
    return failed("tmpfs on /run/carve");
  }
  mkdir("/run/carve/slices", 0755);
  return "";
}

}  // namespace carve::preload::testing
