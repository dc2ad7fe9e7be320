#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/samples/cuda_program.h"

// carve-sample-spin: keeps a card busy with kernels of known length and prints what it did as one JSON line.
namespace {

constexpr char kUsage[] =
    "usage: carve-sample-spin [options]\n"
    "  --kernel-us N    length of one kernel in microseconds (default 500)\n"
    "  --seconds S      duration of the run (default 5; decimals allowed)\n"
    "  --sync           wait for every kernel before the next launch\n"
    "  --graph          launch a graph of --depth kernels at a time (one captured stream)\n"
    "  --depth N        kernels in flight (default 32), or in the graph\n"
    "  --memory SIZE    hold this much device memory meanwhile (1Gi, 512Mi, 1G)\n"
    "  --card N         ordinal of the card (default 0)\n"
    "  --pause-us N     sleep after every wait\n";

struct Options {
  std::uint64_t kernel_us = 500, depth = 32, memory = 0, pause_us = 0;
  double seconds = 5;
  int card = 0;
  bool sync = false, graph = false;
};

int bad(const std::string& what) {
  std::fprintf(stderr, "carve-sample-spin: %s\n%s", what.c_str(), kUsage);
  return 2;
}

int read(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--sync") {
      o->sync = true;
      continue;
    }
    if (flag == "--graph") {
      o->graph = true;
      continue;
    }
    if (i + 1 == argc) return bad(flag + ": unknown flag, or its value is missing");
    const char* value = argv[++i];
    std::uint64_t n = 0;
    const bool size = carve::sample::parse_size(value, &n);
    if (flag == "--seconds") {
      o->seconds = std::atof(value);
    } else if (!size) {
      return bad(flag + " " + value + ": not a number");
    } else if (flag == "--kernel-us") {
      o->kernel_us = n;
    } else if (flag == "--depth" && n > 0 && n <= 512) {
      o->depth = n;
    } else if (flag == "--memory") {
      o->memory = n;
    } else if (flag == "--card") {
      o->card = static_cast<int>(n);
    } else if (flag == "--pause-us") {
      o->pause_us = n;
    } else {
      return bad(flag + " " + value + ": unknown flag, or out of range");
    }
  }
  return 0;
}

struct Run {
  void* stream = nullptr;
  void* function = nullptr;
  void* graph = nullptr;
};

void launch_one(const Run& run) {
  carve::sample::must(carve::sample::cuda().cuLaunchKernel(run.function, 132, 1, 1, 128, 1, 1, 0,
                                                           run.stream, nullptr, nullptr),
                      "cuLaunchKernel");
}

Run prepare(const Options& o) {
  using namespace carve::sample;
  const Cuda& cu = cuda();
  void* context = nullptr;
  void* module = nullptr;
  Run run;
  Device device = 0;
  must(cu.cuInit(0), "cuInit");
  must(cu.cuDeviceGet(&device, o.card), "cuDeviceGet");
  must(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  must(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  must(cu.cuModuleLoadData(&module, spin_ptx(o.kernel_us).c_str()), "cuModuleLoadData");
  must(cu.cuModuleGetFunction(&run.function, module, spin_name(o.kernel_us).c_str()),
       "cuModuleGetFunction");
  must(cu.cuStreamCreate(&run.stream, 1), "cuStreamCreate");
  if (o.memory > 0) {
    DevicePtr memory = 0;
    must(cu.cuMemAlloc_v2(&memory, o.memory), "cuMemAlloc");
  }
  if (!o.graph) return run;
  void* graph = nullptr;
  must(cu.cuStreamBeginCapture_v2(run.stream, 0), "cuStreamBeginCapture");
  for (std::uint64_t i = 0; i < o.depth; ++i) launch_one(run);
  must(cu.cuStreamEndCapture(run.stream, &graph), "cuStreamEndCapture");
  must(cu.cuGraphInstantiateWithFlags(&run.graph, graph, 0), "cuGraphInstantiate");
  return run;
}

/// Two batches are in flight: the loop waits for the batch before the last, so that the card always has work.
std::uint64_t spin(const Options& o, const Run& run, std::uint64_t end) {
  using namespace carve::sample;
  const Cuda& cu = cuda();
  void* events[2];
  for (void*& event : events) must(cu.cuEventCreate(&event, 2), "cuEventCreate");
  const std::uint64_t batch = o.graph ? o.depth : o.sync ? 1 : (o.depth + 1) / 2;
  std::uint64_t launched = 0;
  for (std::uint64_t round = 0; now_ns() < end; ++round) {
    if (o.graph) {
      must(cu.cuGraphLaunch(run.graph, run.stream), "cuGraphLaunch");
    } else {
      for (std::uint64_t i = 0; i < batch; ++i) launch_one(run);
    }
    launched += batch;
    if (o.sync) {
      must(cu.cuStreamSynchronize(run.stream), "cuStreamSynchronize");
    } else {
      must(cu.cuEventRecord(events[round % 2], run.stream), "cuEventRecord");
      if (round > 0) must(cu.cuEventSynchronize(events[(round + 1) % 2]), "cuEventSynchronize");
    }
    if (o.pause_us > 0) usleep(static_cast<useconds_t>(o.pause_us));
  }
  must(cu.cuStreamSynchronize(run.stream), "cuStreamSynchronize");
  return launched;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const int rc = read(argc, argv, &options); rc != 0) return rc;
  const Run run = prepare(options);
  const std::uint64_t begin = carve::sample::now_ns();
  const std::uint64_t launched =
      spin(options, run, begin + static_cast<std::uint64_t>(options.seconds * 1e9));
  const double wall = static_cast<double>(carve::sample::now_ns() - begin) / 1e9;
  const double gpu = static_cast<double>(launched) * static_cast<double>(options.kernel_us) / 1e6;
  std::printf(
      "{\"pid\":%d,\"kernels\":%llu,\"kernel_us\":%llu,\"seconds\":%.3f,\"gpu_seconds\":%.3f,"
      "\"share_percent\":%.2f}\n",
      getpid(), static_cast<unsigned long long>(launched),
      static_cast<unsigned long long>(options.kernel_us), wall, gpu, 100 * gpu / wall);
  return 0;
}
