// Memory by ordinary calls through the library, in cases in which its account differed from the driver's in earlier
// versions.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/attacks/attack.h"
#include "tests/isolation/driver_calls.h"

namespace carve::attacks {
namespace {

using isolation::call;
using isolation::start_driver;

constexpr std::uint64_t kPiece = 64ULL << 20;

/// Allocates pieces in the current context until `target` is held or the driver refuses.
Taken take_pieces(std::uint64_t target) {
  Taken taken;
  taken.reached_driver = true;
  while (taken.bytes < target) {
    CUdeviceptr address = 0;
    taken.refused_with = call("cuMemAlloc_v2", &address, static_cast<std::size_t>(kPiece));
    if (taken.refused_with != 0) break;
    taken.bytes += kPiece;
  }
  return taken;
}

CUstream new_stream() {
  CUstream stream = nullptr;
  call("cuStreamCreate", &stream, 1U);
  return stream;
}

std::string note_of(const char* what, std::uint64_t bytes) { return what + std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

/// One thread begins and ends captures on a stream, and another allocates in that stream: memory, or a node of a graph.
int racing_capture(const Options& o) {
  if (start_driver() != 0) return precondition_missing("racing-capture", "no driver");
  const CUstream stream = new_stream();
  std::atomic<bool> stop{false};
  std::thread captures([&] {
    CUcontext context = nullptr;
    call("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
    call("cuCtxSetCurrent", context);
    CUgraph graph = nullptr;
    int status = 0;
    for (int round = 0; !stop.load(); ++round) {
      if (call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED) != 0) continue;
      for (int i = 0; i < round % 64; ++i) call("cuStreamIsCapturing", stream, &status);
      if (call("cuStreamEndCapture", stream, &graph) == 0) call("cuGraphDestroy", graph);
    }
  });
  Taken taken;
  int refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(o.hold_ms);
  while (std::chrono::steady_clock::now() < end) {
    CUdeviceptr address = 0;
    const CUresult result = call("cuMemAllocAsync", &address, std::size_t{16ULL << 20}, stream);
    refused += result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
  }
  stop.store(true);
  captures.join();
  taken.refused_with = refused != 0 ? CUDA_ERROR_OUT_OF_MEMORY : 0;
  return report_and_hold("racing-capture", taken, o, "refused " + std::to_string(refused));
}

/// In a slice of two cards: streams, pools and handles of card 1 while card 0 is current.
int other_card(const Options& o) {
  CUcontext context[2] = {};
  if (call("cuInit", 0U) != 0 || call("cuDevicePrimaryCtxRetain", &context[0], CUdevice{0}) != 0 ||
      call("cuDevicePrimaryCtxRetain", &context[1], CUdevice{1}) != 0) {
    return precondition_missing("other-card", "the slice has not two cards");
  }
  call("cuCtxSetCurrent", context[1]);
  const CUstream stream = new_stream();
  call("cuCtxSetCurrent", context[0]);
  CUmemoryPool pool = nullptr;
  if (call("cuDeviceGetDefaultMemPool", &pool, CUdevice{1}) != 0) return precondition_missing("other-card", "no pool");
  const CUmemAllocationProp where{1, 0, {1, 1}, nullptr, {}};
  Taken taken;
  int ways = 3;  // the ways that still succeed
  while (ways != 0 && taken.bytes < o.bytes) {
    ways = 0;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    ways += call("cuMemAllocAsync", &address, static_cast<std::size_t>(kPiece), stream) == 0;
    ways += call("cuMemAllocFromPoolAsync", &address, static_cast<std::size_t>(kPiece), pool, CUstream{}) == 0;
    ways += call("cuMemCreate", &handle, static_cast<std::size_t>(kPiece), &where, 0ULL) == 0;
    taken.bytes += static_cast<std::uint64_t>(ways) * kPiece;
  }
  taken.refused_with = ways == 0 ? CUDA_ERROR_OUT_OF_MEMORY : 0;
  return report_and_hold("other-card", taken, o);
}

/// Sends a second hello by hand, which gives a second account entry and a second mapping of the pages, and releases
/// both.
int second_hello(const Options& o) {
  if (start_driver() != 0) return precondition_missing("second-hello", "no driver");
  const Taken first = take_pieces(o.bytes);
  const std::vector<int> fds = ask_for_pages();
  if (fds.empty()) return precondition_missing("second-hello", "the slice's socket answers no second hello");
  for (std::size_t i = 1; i < fds.size(); i += 2) {
    void* const page = mmap(nullptr, sizeof(abi::AccountPage), PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
    if (page != MAP_FAILED) munmap(page, sizeof(abi::AccountPage));
  }
  for (const int fd : fds) close(fd);
  usleep(3'000'000);  // in earlier versions the arbiter freed the entries of a process after 2 s
  Taken taken = take_pieces(o.bytes);
  const std::string note = note_of("then ", taken.bytes);
  taken.bytes += first.bytes;
  return report_and_hold("second-hello", taken, o, note);
}

/// cuCtxDetach does not destroy a context that has another user.
int detached_context(const Options& o) {
  if (call("cuInit", 0U) != 0) return precondition_missing("detached-context", "no driver");
  CUcontext own = nullptr;
  CUcontext again = nullptr;
  if (call("cuCtxCreate_v2", &own, 0U, CUdevice{0}) != 0) return precondition_missing("detached-context", "no context");
  Taken taken = take_pieces(o.bytes);
  if (call("cuCtxAttach", &again, 0U) != 0 || call("cuCtxDetach", own) != 0)
    return precondition_missing("detached-context", "no cuCtxAttach");
  const Taken more = take_pieces(o.bytes);
  taken.bytes += more.bytes;
  return report_and_hold("detached-context", taken, o, note_of("then ", more.bytes));
}

/// Imports the memory of several exporters, one after the other, and maps 2 MiB of each. The exporters die.
int imported_handles(const Options& o) {
  constexpr std::uint64_t kShared = 512ULL << 20;
  constexpr CUmemAllocationProp kShareable{1, 1, {1, 0}, nullptr, {}};
  int paths[2];
  int answers[2];
  if (pipe(paths) != 0 || pipe(answers) != 0) return precondition_missing("imported-handles", "no pipe");
  const pid_t importer = fork();
  if (importer == 0) {
    char path[64] = {};
    bool ok = start_driver() == 0;
    while (read(paths[0], path, sizeof path) == sizeof path) {
      const int shared = open(path, O_RDWR | O_CLOEXEC);
      CUmemGenericAllocationHandle handle = 0;
      CUdeviceptr base = 0;
      ok = ok &&
           call("cuMemImportFromShareableHandle", &handle, reinterpret_cast<void*>(std::intptr_t{shared}), 1) == 0 &&
           call("cuMemAddressReserve", &base, std::size_t{kShared}, std::size_t{0}, CUdeviceptr{0}, 0ULL) == 0 &&
           call("cuMemMap", base, std::size_t{2ULL << 20}, std::size_t{0}, handle, 0ULL) == 0;
      if (write(answers[1], ok ? "y" : "n", 1) != 1) break;
    }
    _exit(0);
  }
  Taken taken;
  char answer = 'y';
  while (answer == 'y' && taken.bytes < o.bytes) {
    int numbers[2];
    if (pipe(numbers) != 0) break;
    const pid_t exporter = fork();
    if (exporter == 0) {
      CUmemGenericAllocationHandle handle = 0;
      int shared = -1;
      if (start_driver() != 0 || call("cuMemCreate", &handle, std::size_t{kShared}, &kShareable, 0ULL) != 0 ||
          call("cuMemExportToShareableHandle", static_cast<void*>(&shared), handle, 1, 0ULL) != 0) {
        _exit(1);
      }
      (void)!write(numbers[1], &shared, sizeof shared);
      for (;;) pause();
    }
    close(numbers[1]);
    int shared = -1;
    char path[64] = {};
    answer = 'n';
    if (read(numbers[0], &shared, sizeof shared) == sizeof shared) {
      std::snprintf(path, sizeof path, "/proc/%d/fd/%d", exporter, shared);
      if (write(paths[1], path, sizeof path) != sizeof path || read(answers[0], &answer, 1) != 1) answer = 'n';
    }
    close(numbers[0]);
    kill(exporter, SIGKILL);
    waitpid(exporter, nullptr, 0);
    taken.bytes += answer == 'y' ? kShared : 0;
  }
  taken.refused_with = answer == 'y' ? 0 : CUDA_ERROR_OUT_OF_MEMORY;
  report_and_hold("imported-handles", taken, o);
  kill(importer, SIGKILL);
  waitpid(importer, nullptr, 0);
  return 0;
}

/// Destroys a pool while its frees wait behind a host function: the driver keeps the memory until they are done.
int destroyed_pool(const Options& o) {
  if (start_driver() != 0) return precondition_missing("destroyed-pool", "no driver");
  CUmemPoolProps properties{};
  properties.alloc_type = 1;
  properties.location = {1, 0};
  CUmemoryPool pool = nullptr;
  if (call("cuMemPoolCreate", &pool, &properties) != 0) return precondition_missing("destroyed-pool", "no pool");
  const CUstream held = new_stream();
  const auto never = +[](void*) { pause(); };
  call("cuLaunchHostFunc", held, never, static_cast<void*>(nullptr));
  Taken taken;
  for (CUdeviceptr address = 0; taken.bytes < o.bytes; taken.bytes += kPiece) {
    if (call("cuMemAllocFromPoolAsync", &address, static_cast<std::size_t>(kPiece), pool, CUstream{}) != 0) break;
    call("cuMemFreeAsync", address, held);
  }
  call("cuMemPoolDestroy", pool);
  const Taken more = take_pieces(o.bytes);
  taken.bytes += more.bytes;
  taken.refused_with = more.refused_with;
  report_and_hold("destroyed-pool", taken, o, note_of("then ", more.bytes));
  _exit(0);  // the stream never ends
}

/// The parent dies. The driver keeps its memory while a forked child has its descriptors.
int childs_inheritance(const Options& o) {
  int numbers[2];
  if (pipe(numbers) != 0) return precondition_missing("childs-inheritance", "no pipe");
  const pid_t parent = fork();
  if (parent == 0) {
    if (start_driver() != 0) _exit(3);
    const Taken taken = take_pieces(o.bytes);
    usleep(1'000'000);  // meanwhile the arbiter reads which process has the pages
    const pid_t heir = fork();
    if (heir == 0) {
      prctl(PR_SET_PDEATHSIG, 0);
      for (;;) pause();
    }
    (void)!write(numbers[1], &heir, sizeof heir);
    (void)!write(numbers[1], &taken.bytes, sizeof taken.bytes);
    for (;;) pause();
  }
  pid_t heir = -1;
  std::uint64_t inherited = 0;
  if (read(numbers[0], &heir, sizeof heir) != sizeof heir ||
      read(numbers[0], &inherited, sizeof inherited) != sizeof inherited) {
    return precondition_missing("childs-inheritance", "no memory");
  }
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  usleep(1'000'000);
  Taken taken;
  if (start_driver() == 0) taken = take_pieces(o.bytes);
  const std::string note = note_of("then ", taken.bytes);
  taken.bytes += inherited;
  report_and_hold("childs-inheritance", taken, o, note);
  kill(heir, SIGKILL);
  return 0;
}

/// Not an attack, but it cost the slice its own memory in earlier versions: contexts with memory are destroyed while
/// another thread allocates there. `lost` is the memory that is no longer available afterwards.
int destroyed_contexts(const Options& o) {
  if (start_driver() != 0) return precondition_missing("destroyed-contexts", "no driver");
  const std::size_t before = isolation::free_memory();
  for (int round = 0; round < 10; ++round) {
    CUcontext own = nullptr;
    if (call("cuCtxCreate_v2", &own, 0U, CUdevice{0}) != 0) break;
    std::atomic<int> works{0};
    std::thread other([&] {
      call("cuCtxSetCurrent", own);
      for (CUdeviceptr one = 0; call("cuMemAlloc_v2", &one, std::size_t{2ULL << 20}) == 0;) {
        if (works.fetch_add(1) > 200) call("cuMemFree_v2", one);
      }
    });
    while (works.load() < 20 + round) std::this_thread::yield();
    call("cuCtxDestroy_v2", own);
    other.join();
    start_driver();
  }
  const std::size_t after = isolation::free_memory();
  const std::uint64_t lost = before > after ? before - after : 0;
  return report_and_hold("destroyed-contexts", take_pieces(o.bytes), o, "lost " + std::to_string(lost));
}

/// Not an attack either: in earlier versions the program after exec found the previous program's memory charged for 2
/// s.
int exec_again(const Options& o) {
  if (start_driver() != 0) return precondition_missing("exec-again", "no driver");
  const Taken first = take_pieces(o.bytes);
  const std::string bytes = std::to_string(o.bytes);
  const std::string hold = std::to_string(o.hold_ms);
  const std::string had = std::to_string(first.bytes);
  execl("/proc/self/exe", o.self.c_str(), "after-exec", "--bytes", bytes.c_str(), "--hold-ms", hold.c_str(), "--step",
        had.c_str(), nullptr);
  return 3;
}

/// The program that exec_again() becomes. `step` is the memory that the previous program had.
int after_exec(const Options& o) {
  if (start_driver() != 0) return precondition_missing("exec-again", "no driver after exec");
  const Taken taken = take_pieces(o.bytes);
  const std::uint64_t lost = o.step > taken.bytes ? o.step - taken.bytes : 0;
  return report_and_hold("exec-again", taken, o, "lost " + std::to_string(lost));
}

}  // namespace carve::attacks
