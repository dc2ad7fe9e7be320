// Card time without leases: a process sends a hello and then uses its own copy of the driver, with and without false
// values in its own pages.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "abi/page.h"
#include "tests/attacks/attack.h"

namespace carve::attacks {
namespace {

constexpr char kPrivateFile[] = "/usr/lib/carve/driver/libcuda.so.1";
constexpr int kFew = 16;  // kernels of 500 us
constexpr int kTwoSeconds = 4000;

using Lie = std::function<void(abi::AccountEntry& own, std::uint64_t passed_ns)>;

/// Calls `lie` for each account entry of this process every half millisecond.
void keep_lying(const Lie& lie, const std::atomic<bool>& stop) {
  const auto pages = mapped_accounts();
  auto last = std::chrono::steady_clock::now();
  while (!stop) {
    usleep(500);
    const auto now = std::chrono::steady_clock::now();
    const auto passed = static_cast<std::uint64_t>(std::chrono::nanoseconds(now - last).count());
    last = now;
    for (abi::AccountPage* page : pages) {
      for (auto& entry : page->entries) {
        if (entry.host_pid.load_relaxed() == static_cast<std::uint64_t>(getpid())) lie(entry, passed);
      }
    }
  }
}

/// Sends a hello and allocates a little through the library, then computes with the driver's own file in `o.processes`
/// processes.
int compute_past(const char* name, const Options& o, int queued, const Lie& lie) {
  for (unsigned i = 1; i < o.processes; ++i) {
    if (fork() == 0) break;
  }
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library || take_memory(in_handle(library), o.step, o.step).bytes == 0)
    return precondition_missing(name, "no library");
  void* const driver = dlopen(kPrivateFile, RTLD_NOW);
  if (!driver) return precondition_missing(name, "the driver's file cannot be opened");
  if (lie && mapped_accounts().empty()) return precondition_missing(name, "no account page is mapped in this process");
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  std::printf("{\"attack\":\"%s\",\"pid\":%d,\"began_ms\":%lld}\n", name, getpid(),
              static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(wall).count()));
  std::fflush(stdout);
  std::atomic<bool> stop = false;
  std::thread liar;
  if (lie) liar = std::thread([&] { keep_lying(lie, stop); });
  const int status = compute_for(in_handle(driver), o.hold_ms, o.busy, queued);
  stop = true;
  if (liar.joinable()) liar.join();
  return status == 0 ? 0 : 3;
}

}  // namespace

int registered_compute(const Options& o) { return compute_past("registered-compute", o, kFew, nullptr); }

/// Queues two seconds of work at a time, which runs on while the process is frozen.
int queued_compute(const Options& o) { return compute_past("queued-compute", o, kTwoSeconds, nullptr); }

/// Adds all the time that it takes to its own busy_ns.
int compute_lied(const Options& o) {
  return compute_past("compute-lied", o, kFew, [](abi::AccountEntry& own, std::uint64_t passed_ns) {
    __atomic_fetch_add(&own.busy_ns.raw, passed_ns, __ATOMIC_RELEASE);
  });
}

/// Pretends in its own page that it runs one long kernel after the other and waits for its next lease.
int compute_pretended(const Options& o) {
  return compute_past("compute-pretended", o, kFew, [](abi::AccountEntry& own, std::uint64_t passed_ns) {
    own.want.store_release(1);
    own.busy.store_release(1);
    own.inflight_ns.store_relaxed(50'000'000);
    __atomic_fetch_add(&own.busy_ns.raw, passed_ns, __ATOMIC_RELEASE);
  });
}

}  // namespace carve::attacks
