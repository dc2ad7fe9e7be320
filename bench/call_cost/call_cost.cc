// The cost of one driver call through the library, compared with the same call on the bare driver. Both run in one
// process and alternate, so that disturbances of the machine affect both. A figure is the median of nine differences
// (--rounds N: of N). The driver underneath is a stub that returns immediately: on a real driver the same nanoseconds
// are added to microseconds. Prints one line per figure; --check fails beyond 1.5 times the budget. --budget-scale X
// multiplies the budgets by X, to prove that --check can fail. --processes N measures only that number of processes.
#include <dlfcn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "preload/driver_abi.h"
#include "preload/testing/sandbox.h"
#include "preload/testing/slice_server.h"

using carve::preload::testing::CardSpec;
using carve::preload::testing::SliceServer;

namespace {

constexpr char kUuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
constexpr std::size_t kBlock = 4U << 20;

/// The calls under test, from one library.
struct Calls {
  CUresult (*init)(unsigned);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                     void**, void**);
  CUresult (*alloc)(CUdeviceptr*, std::size_t);
  CUresult (*free)(CUdeviceptr);
  CUresult (*info)(std::size_t*, std::size_t*);
  CUresult (*get_proc)(const char*, void**, int, std::uint64_t, int*);
};

template <class Function>
void find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  if (out == nullptr) {
    std::fprintf(stderr, "no %s: %s\n", name, dlerror());
    std::exit(2);
  }
}

Calls calls_of(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  }
  Calls calls{};
  find(library, "cuInit", calls.init);
  find(library, "cuDevicePrimaryCtxRetain", calls.retain);
  find(library, "cuCtxSetCurrent", calls.set_current);
  find(library, "cuLaunchKernel", calls.launch);
  find(library, "cuMemAlloc_v2", calls.alloc);
  find(library, "cuMemFree_v2", calls.free);
  find(library, "cuMemGetInfo_v2", calls.info);
  find(library, "cuGetProcAddress_v2", calls.get_proc);
  return calls;
}

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void ready(const Calls& calls) {
  CUcontext context = nullptr;
  if (calls.init(0) != CUDA_SUCCESS || calls.retain(&context, 0) != CUDA_SUCCESS ||
      calls.set_current(context) != CUDA_SUCCESS) {
    std::fprintf(stderr, "the driver does not start\n");
    std::exit(2);
  }
}

void must(CUresult result) {
  if (result != CUDA_SUCCESS) {
    std::fprintf(stderr, "a call failed with %d\n", result);
    std::exit(2);
  }
}

double launch_ns(const Calls& calls, int count) {
  const double start = thread_ns();
  for (int i = 0; i < count; ++i) {
    must(calls.launch(reinterpret_cast<CUfunction>(0x10), 64, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr));
  }
  return (thread_ns() - start) / count;
}

double pair_ns(const Calls& calls, int count) {
  const double start = thread_ns();
  for (int i = 0; i < count; ++i) {
    CUdeviceptr address = 0;
    must(calls.alloc(&address, kBlock));
    must(calls.free(address));
  }
  return (thread_ns() - start) / count;
}

double info_ns(const Calls& calls, int count) {
  const double start = thread_ns();
  for (int i = 0; i < count; ++i) {
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    must(calls.info(&free_bytes, &total));
  }
  return (thread_ns() - start) / count;
}

double get_proc_ns(const Calls& calls, int count) {
  constexpr const char* kNames[] = {"cuLaunchKernel", "cuMemAlloc", "cuCtxGetDevice", "cuStreamSynchronize"};
  const double start = thread_ns();
  for (int i = 0; i < count; ++i) {
    void* function = nullptr;
    must(calls.get_proc(kNames[i & 3], &function, 12000, 0, nullptr));
  }
  return (thread_ns() - start) / count;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Figure {
  double bare;
  double difference;
};

int rounds = 9;

/// `rounds` of bare and through. `threads` run concurrently; the slowest one counts.
template <class Measure>
Figure compare(const Calls& bare, const Calls& through, int count, int threads, Measure measure) {
  std::vector<double> bares;
  std::vector<double> differences;
  const auto run = [&](const Calls& calls) {
    std::vector<double> each(static_cast<std::size_t>(threads));
    std::vector<std::thread> others;
    for (std::size_t t = 1; t < each.size(); ++t) {
      others.emplace_back([&, t] {
        ready(calls);
        each[t] = measure(calls, count);
      });
    }
    each[0] = measure(calls, count);
    for (std::thread& other : others) {
      other.join();
    }
    return *std::max_element(each.begin(), each.end());
  };
  run(bare);
  run(through);
  for (int round = 0; round < rounds; ++round) {
    const double one = run(bare);
    const double other = run(through);
    bares.push_back(one);
    differences.push_back(other - one);
  }
  return {median(bares), median(differences)};
}

bool failed = false;
bool checking = false;
double budget_scale = 1;
int only_processes = 0;  // 0: all numbers

/// `budget_ns` 0: the figure is printed but not judged.
void print(const char* what, const char* slice, int threads, int processes, int live, Figure figure,
           double budget_ns) {
  const bool over = budget_ns > 0 && figure.difference > 1.5 * budget_ns * budget_scale;
  std::printf("%-18s %-9s %7d %9d %10d %9.1f %+9.1f %9s%s\n", what, slice, threads, processes, live, figure.bare,
              figure.difference, budget_ns > 0 ? std::to_string(static_cast<int>(budget_ns)).c_str() : "-",
              over ? "  OVER" : "");
  failed = failed || (over && checking);
}

double budget_of_pair(int processes, int live, int threads) {
  if (processes > 8 || threads > 2) {
    return 0;
  }
  const double first = live == 0 ? 60 : 150;
  return (threads == 1 ? first : std::max(first, 100.0)) + 12.0 * (processes - 1);
}

/// Starts idle processes that occupy an account entry each. They exit with this process.
std::vector<pid_t> start_others(int count) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) {
      std::exit(2);
    }
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Calls calls = calls_of("libcuda.so.1");
      ready(calls);
      CUdeviceptr address = 0;
      must(calls.alloc(&address, kBlock));
      (void)!write(pipe_ends[1], "r", 1);
      pause();
      _exit(0);
    }
    char byte = 0;
    (void)!read(pipe_ends[0], &byte, 1);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    pids.push_back(pid);
  }
  return pids;
}

void stop(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

/// The time of the first cuInit, measured in a separate process.
double init_ns(const char* path) {
  int ends[2];
  if (pipe(ends) != 0) {
    std::exit(2);
  }
  const pid_t pid = fork();
  if (pid == 0) {
    const Calls calls = calls_of(path);
    timespec a{};
    timespec b{};
    clock_gettime(CLOCK_MONOTONIC, &a);
    must(calls.init(0));
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double ns = static_cast<double>(b.tv_sec - a.tv_sec) * 1e9 + static_cast<double>(b.tv_nsec - a.tv_nsec);
    (void)!write(ends[1], &ns, sizeof ns);
    _exit(0);
  }
  double ns = 0;
  (void)!read(ends[0], &ns, sizeof ns);
  close(ends[0]);
  close(ends[1]);
  waitpid(pid, nullptr, 0);
  return ns;
}

constexpr char kDriverPath[] = "/usr/lib/carve/driver/libcuda.so.1";

void measure_init(const char* slice, int processes) {
  std::vector<double> bares;
  std::vector<double> differences;
  for (int round = 0; round < rounds; ++round) {
    const double one = init_ns(kDriverPath);
    bares.push_back(one);
    differences.push_back(init_ns("libcuda.so.1") - one);
  }
  print("cuInit", slice, 1, processes, 0, {median(bares), median(differences)}, 200'000);
}

void measure_calls(const char* slice, bool limited, int processes) {
  // The order matters: a driver file that is opened first takes its SONAME for itself.
  const Calls through = calls_of("libcuda.so.1");
  const Calls bare = calls_of(kDriverPath);
  if (through.launch == bare.launch) {
    std::fprintf(stderr, "both are the same library: nothing would be measured\n");
    std::exit(2);
  }
  ready(bare);
  ready(through);
  for (const int threads : {1, 2}) {
    const double budget = limited ? (threads == 1 ? 15 : 20) : 1;
    print("launch", slice, threads, processes, 0, compare(bare, through, 500'000, threads, launch_ns),
          processes == 1 ? budget : 0);
  }
  for (const int live : {0, 10'000}) {
    std::vector<CUdeviceptr> held(static_cast<std::size_t>(live));
    for (CUdeviceptr& address : held) {
      must(through.alloc(&address, kBlock));
    }
    for (const int threads : {1, 2, 4}) {
      print("alloc+free", slice, threads, processes, live, compare(bare, through, 200'000, threads, pair_ns),
            budget_of_pair(processes, live, threads));
    }
    for (const CUdeviceptr address : held) {
      must(through.free(address));
    }
  }
  print("cuMemGetInfo", slice, 1, processes, 0, compare(bare, through, 500'000, 1, info_ns),
        processes <= 8 ? 20 + 12.0 * (processes - 1) : 0);
  print("cuGetProcAddress", slice, 1, processes, 0, compare(bare, through, 500'000, 1, get_proc_ns), 50);
}

/// Measures one slice and one number of processes in a separate process, because a library connects only once.
void measure(bool limited, int processes) {
  const pid_t pid = fork();
  if (pid == 0) {
    CardSpec card;
    card.uuid = kUuid;
    if (limited) {
      card.memory_limit = std::uint64_t{64} << 30;
      card.compute_limit = 30;
    }
    // The server runs in a third process: its threads in this one would be counted as the library's.
    const pid_t server = fork();
    if (server == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      SliceServer slice("/run/carve/slices/bench", {card});
      while (slice.account(0).stock_wanted.load_acquire() == 0) {
        usleep(10'000);
      }
      slice.provide_stock();
      pause();
    }
    while (access("/run/carve/slices/bench/s", F_OK) != 0) {
      usleep(1000);
    }
    const char* name = limited ? "limited" : "unlimited";
    const std::vector<pid_t> others = start_others(processes - 1);
    measure_init(name, processes);
    measure_calls(name, limited, processes);
    stop(others);
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    unlink("/run/carve/slices/bench/s");
    std::fflush(stdout);
    _exit(failed ? 1 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  failed = failed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/// False: an argument is unknown, or a scale or number is not above 0.
bool read_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      checking = true;
    } else if (std::strcmp(argv[i], "--budget-scale") == 0 && i + 1 < argc) {
      budget_scale = std::strtod(argv[++i], nullptr);
    } else if (std::strcmp(argv[i], "--processes") == 0 && i + 1 < argc) {
      only_processes = std::atoi(argv[++i]);
      if (only_processes != 1 && only_processes != 4 && only_processes != 64) return false;
    } else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = std::atoi(argv[++i]);
      if (rounds < 1) return false;
    } else {
      return false;
    }
  }
  return budget_scale > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (!read_arguments(argc, argv)) {
    std::fprintf(stderr, "usage: carve-bench-calls [--check] [--budget-scale X] [--processes N] [--rounds N]\n");
    return 2;
  }
  const std::string problem =
      carve::preload::testing::enter_sandbox({CARVE_LIBRARY, CARVE_STUB, CARVE_STUB, CARVE_STUB});
  if (!problem.empty()) {
    std::fprintf(stderr, "cannot set the bench up (needs root): %s\n", problem.c_str());
    return 2;
  }
  std::printf("driver: a stub that does no work; ns per call, CPU time of the thread; median of %d differences\n",
              rounds);
  std::printf("%-18s %-9s %7s %9s %10s %9s %9s %9s\n", "call", "slice", "threads", "processes", "live", "bare",
              "library", "budget");
  std::fflush(stdout);
  for (const bool limited : {false, true}) {
    for (const int processes : {1, 4, 64}) {
      if (only_processes == 0 || only_processes == processes) {
        measure(limited, processes);
      }
    }
  }
  if (checking) {
    std::printf("%s\n", failed ? "over budget" : "within 1.5 x the budgets");
  }
  return failed ? 1 : 0;
}
