// Memory that a check of the process lists does not find: memory without a context, a little in each of many processes,
// and memory that is freed before the next check.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/attacks/attack.h"

namespace carve::attacks {
namespace {

constexpr char kPrivateFile[] = "/usr/lib/carve/driver/libcuda.so.1";
constexpr int kManyProcesses = 10;
constexpr std::uint64_t kGlobals = 250ULL << 20;

}  // namespace

/// Uses cuMemCreate of the driver's own file. It needs no context, and NVML lists only processes with a context.
/// Outside slices the loader finds the driver's file itself.
int no_context_memory(const Options& o) {
  void* driver = dlopen(kPrivateFile, RTLD_NOW);
  if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return precondition_missing("no-context-memory", dlerror());
  return report_and_hold("no-context-memory", take_without_context(in_handle(driver), o.bytes, o.step), o);
}

/// Each process looks honest: it loads a module with some globals through the library.
int many_globals(const Options& o) {
  pid_t children[kManyProcesses] = {};
  for (pid_t& child : children) {
    child = fork();
    if (child != 0) continue;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) _exit(3);
    _exit(report_and_hold("many-globals", take_globals(in_handle(library), kGlobals), o));
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}

/// Sends a hello, then allocates memory past the library for 150 ms, fifty times.
int memory_bursts(const Options& o) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || take_memory(in_handle(library), o.step, o.step).bytes == 0)
    return precondition_missing("memory-bursts", "no driver");
  void* const driver = dlopen(kPrivateFile, RTLD_NOW);
  if (!driver) return precondition_missing("memory-bursts", dlerror());
  for (int burst = 1; burst <= 50; ++burst) {
    const std::uint64_t got = burst_of_memory(in_handle(driver), o.bytes, 150);
    std::printf("{\"attack\":\"memory-bursts\",\"burst\":%d,\"got_bytes\":%llu}\n", burst,
                static_cast<unsigned long long>(got));
    std::fflush(stdout);
    usleep(250'000);
  }
  return 0;
}

}  // namespace carve::attacks
