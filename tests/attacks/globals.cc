// Memory that no allocation call requests: a module's global variables, which the driver allocates when it loads the
// module.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "tests/attacks/attack.h"

namespace carve::attacks {

int module_globals(const Options& o) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return precondition_missing("module-globals", dlerror());
  return report_and_hold("module-globals", take_globals(in_handle(library), o.bytes), o);
}

/// Not an attack: an honest program with large globals. It waits until less free memory is reported (at most
/// `hold_ms`), then allocates all that is left with ordinary calls.
int module_globals_room(const Options& o) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return precondition_missing("module-globals-room", dlerror());
  const Find find = in_handle(library);
  if (take_memory(find, 0, o.step).refused_with != 0) return precondition_missing("module-globals-room", "no driver");
  const auto before = static_cast<unsigned long long>(free_memory(find));
  const Taken globals = take_globals(find, o.bytes);
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + std::chrono::milliseconds(o.hold_ms);
  auto now = static_cast<unsigned long long>(free_memory(find));
  while (now >= before && std::chrono::steady_clock::now() < end) {
    usleep(10'000);
    now = static_cast<unsigned long long>(free_memory(find));
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  const Taken rest = take_memory(find, ~0ULL, o.step);
  std::printf("{\"globals\":%llu,\"free_before\":%llu,\"free_after\":%llu,\"reported_after_ms\":%lld,\"then_got\":%llu,"
              "\"refused_with\":%d}\n",
              static_cast<unsigned long long>(globals.bytes), before, now, static_cast<long long>(took.count()),
              static_cast<unsigned long long>(rest.bytes), rest.refused_with);
  std::fflush(stdout);
  usleep(1'500'000);  // long enough for the second line to detect it
  return 0;
}

}  // namespace carve::attacks
