// Card time by ordinary calls through the library: many processes, work with an end that cannot be recorded, and
// kernels that become longer.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/attacks/attack.h"
#include "tests/isolation/driver_calls.h"

namespace carve::attacks {
namespace {

using isolation::call;
using isolation::start_driver;

/// A kernel of `us` microseconds; 0: its duration depends on grid and block, as the simulated driver estimates it.
CUfunction kernel(unsigned us) {
  const std::string name = us == 0 ? "carve_attack_work" : "carve_spin_" + std::to_string(us) + "us";
  const std::string ptx =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name + "()\n{\n  ret;\n}\n";
  void* module = nullptr;
  CUfunction function = nullptr;
  if (call("cuModuleLoadData", &module, ptx.c_str()) != 0) return nullptr;
  return call("cuModuleGetFunction", &function, module, name.c_str()) == 0 ? function : nullptr;
}

CUstream new_stream() {
  CUstream stream = nullptr;
  call("cuStreamCreate", &stream, 1U);
  return stream;
}

CUresult launch(CUfunction function, CUstream on, unsigned blocks = 1, unsigned threads = 1) {
  void** none = nullptr;
  return call("cuLaunchKernel", function, blocks, 1U, 1U, threads, 1U, 1U, 0U, on, none, none);
}

/// Prints that the first kernel runs: the share of the neighbour is judged from now on.
void report_begin(const char* name) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("{\"attack\":\"%s\",\"pid\":%d,\"began_ns\":%lld}\n", name, getpid(),
              static_cast<long long>(std::chrono::nanoseconds(now).count()));
  std::fflush(stdout);
}

/// Launches without a pause, with at most `ahead` kernels in flight, until the time has passed.
int launch_for(const Options& o, CUfunction function, CUstream on, int ahead, unsigned blocks = 1,
               unsigned threads = 1) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(o.hold_ms);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < ahead; ++i) {
      if (launch(function, on, blocks, threads) != 0) return 3;
    }
    if (call("cuStreamSynchronize", on) != 0) return 3;
  }
  return 0;
}

}  // namespace

/// Honest processes in one slice. Each has kernels of 20 ms in flight.
int many_processes(const Options& o) {
  constexpr unsigned kProcesses = 16;
  int ready[2];
  if (pipe(ready) != 0) return precondition_missing("many-processes", "no pipe");
  std::vector<pid_t> children;
  for (unsigned i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    if (start_driver() != 0) _exit(3);
    const CUfunction function = kernel(20'000);
    const CUstream stream = new_stream();
    if (launch(function, stream) != 0 || call("cuStreamSynchronize", stream) != 0) _exit(3);
    if (write(ready[1], "x", 1) != 1) _exit(3);
    _exit(launch_for(o, function, stream, 2));
  }
  close(ready[1]);
  char byte = 0;
  for (unsigned i = 0; i < kProcesses; ++i) {
    if (read(ready[0], &byte, 1) != 1) return precondition_missing("many-processes", "a process did not start");
  }
  report_begin("many-processes");
  usleep(static_cast<useconds_t>(o.hold_ms * 1000));
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}

/// Keeps a capture open on a stream that does nothing, so that the end of other streams' work cannot be recorded.
int open_capture(const Options& o) {
  if (start_driver() != 0) return precondition_missing("open-capture", "no driver");
  const CUfunction function = kernel(500);
  const CUstream works = new_stream();
  if (call("cuStreamBeginCapture_v2", new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED) != 0)
    return precondition_missing("open-capture", "no capture");
  report_begin("open-capture");
  return launch_for(o, function, works, 64);
}

/// Launches the same function and grid first with one thread per block (22 us), then with 1024 (20 ms).
int changing_block(const Options& o) {
  constexpr unsigned kBlocks = 800'000;
  if (start_driver() != 0) return precondition_missing("changing-block", "no driver");
  const CUfunction function = kernel(0);
  const CUstream stream = new_stream();
  for (int i = 0; i < 400; ++i) {
    if (launch(function, stream, kBlocks, 1) != 0) return 3;
  }
  if (call("cuStreamSynchronize", stream) != 0) return 3;
  report_begin("changing-block");
  return launch_for(o, function, stream, 4, kBlocks, 1024);
}

}  // namespace carve::attacks
