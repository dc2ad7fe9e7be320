#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "sim/samples/cuda_program.h"

// carve-sample-alloc: allocates device memory in steps up to a target or until the driver refuses. Prints one JSON
// line.
namespace {

constexpr char kUsage[] =
    "usage: carve-sample-alloc [options]\n"
    "  --step SIZE      bytes per allocation (default 64Mi)\n"
    "  --target SIZE    stop there (default: continue until out of memory)\n"
    "  --hold S         hold the memory for S seconds (default 0)\n"
    "  --card N         ordinal of the card (default 0)\n"
    "Exit code 0: the target was reached, or no target was given; 3: out of memory before the target.\n";
constexpr int kOutOfMemory = 2;

struct Options {
  std::uint64_t step = 64ULL << 20, target = 0;
  double hold = 0;
  int card = 0;
};

int read(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    std::uint64_t n = 0;
    const bool has = i + 1 < argc;
    if (has && flag == "--hold") {
      o->hold = std::atof(argv[i + 1]);
    } else if (has && carve::sample::parse_size(argv[i + 1], &n) && flag == "--step" && n > 0) {
      o->step = n;
    } else if (has && n > 0 && flag == "--target") {
      o->target = n;
    } else if (has && flag == "--card") {
      o->card = static_cast<int>(n);
    } else {
      std::fprintf(stderr, "carve-sample-alloc: %s: unknown flag or bad value\n%s", flag.c_str(),
                   kUsage);
      return 2;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace carve::sample;
  Options options;
  if (const int rc = read(argc, argv, &options); rc != 0) return rc;
  const Cuda& cu = cuda();
  void* context = nullptr;
  Device device = 0;
  must(cu.cuInit(0), "cuInit");
  must(cu.cuDeviceGet(&device, options.card), "cuDeviceGet");
  must(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  std::uint64_t taken = 0, blocks = 0;
  int rc = 0;
  while (options.target == 0 || taken < options.target) {
    const std::uint64_t left = options.target == 0 ? options.step : options.target - taken;
    const std::uint64_t size = left < options.step ? left : options.step;
    DevicePtr at = 0;
    rc = cu.cuMemAlloc_v2(&at, size);
    if (rc != 0) break;
    taken += size;
    ++blocks;
  }
  if (rc != 0 && rc != kOutOfMemory) must(rc, "cuMemAlloc");
  std::size_t free = 0, total = 0;
  must(cu.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  std::printf(
      "{\"pid\":%d,\"bytes\":%llu,\"allocations\":%llu,\"out_of_memory\":%s,\"free\":%zu,\"total\":"
      "%zu}\n",
      getpid(), static_cast<unsigned long long>(taken), static_cast<unsigned long long>(blocks),
      rc == kOutOfMemory ? "true" : "false", free, total);
  std::fflush(stdout);
  if (options.hold > 0) usleep(static_cast<useconds_t>(options.hold * 1e6));
  return rc == kOutOfMemory && options.target != 0 ? 3 : 0;
}
