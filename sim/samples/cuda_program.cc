#include "sim/samples/cuda_program.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace carve::sample {
namespace {

Cuda load() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  Cuda c = {};
#define CARVE_FIND(name)                                              \
  c.name = reinterpret_cast<decltype(c.name)>(dlsym(library, #name)); \
  if (c.name == nullptr) {                                            \
    std::fprintf(stderr, "libcuda.so.1 has no %s\n", #name);          \
    std::exit(1);                                                     \
  }
  CARVE_FIND(cuInit)
  CARVE_FIND(cuDeviceGet)
  CARVE_FIND(cuDeviceGetCount)
  CARVE_FIND(cuDeviceGetName)
  CARVE_FIND(cuDevicePrimaryCtxRetain)
  CARVE_FIND(cuCtxSetCurrent)
  CARVE_FIND(cuCtxSynchronize)
  CARVE_FIND(cuModuleLoadData)
  CARVE_FIND(cuModuleGetFunction)
  CARVE_FIND(cuStreamCreate)
  CARVE_FIND(cuStreamSynchronize)
  CARVE_FIND(cuStreamBeginCapture_v2)
  CARVE_FIND(cuStreamEndCapture)
  CARVE_FIND(cuGraphInstantiateWithFlags)
  CARVE_FIND(cuGraphLaunch)
  CARVE_FIND(cuEventCreate)
  CARVE_FIND(cuEventRecord)
  CARVE_FIND(cuEventSynchronize)
  CARVE_FIND(cuLaunchKernel)
  CARVE_FIND(cuMemAlloc_v2)
  CARVE_FIND(cuMemFree_v2)
  CARVE_FIND(cuMemGetInfo_v2)
  CARVE_FIND(cuMemsetD8_v2)
  CARVE_FIND(cuGetErrorName)
#undef CARVE_FIND
  return c;
}

}  // namespace

const Cuda& cuda() {
  static const Cuda loaded = load();
  return loaded;
}

void must(int rc, const char* what) {
  if (rc == 0) return;
  const char* name = nullptr;
  cuda().cuGetErrorName(rc, &name);
  std::fprintf(stderr, "%s: %s (%d)\n", what, name == nullptr ? "?" : name, rc);
  std::exit(1);
}

std::string spin_name(std::uint64_t us) { return "carve_spin_" + std::to_string(us) + "us"; }

std::string spin_ptx(std::uint64_t us) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n// carve.duration_us=" +
         std::to_string(us) + "\n.visible .entry " + spin_name(us) + "()\n{\n  ret;\n}\n";
}

bool parse_size(const char* text, std::uint64_t* bytes) {
  char* end = nullptr;
  if (*text < '0' || *text > '9') return false;
  const std::uint64_t n = std::strtoull(text, &end, 10);
  const std::string unit = end;
  std::uint64_t factor = 0;
  if (unit.empty()) factor = 1;
  if (unit == "Ki") factor = 1ULL << 10;
  if (unit == "Mi") factor = 1ULL << 20;
  if (unit == "Gi") factor = 1ULL << 30;
  if (unit == "k") factor = 1000;
  if (unit == "M") factor = 1'000'000;
  if (unit == "G") factor = 1'000'000'000;
  return factor != 0 && !__builtin_mul_overflow(n, factor, bytes);
}

std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace carve::sample
