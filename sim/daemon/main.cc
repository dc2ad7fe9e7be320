#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/thread.h"
#include "sim/daemon/device_nodes.h"
#include "sim/daemon/kernel.h"
#include "sim/daemon/server.h"
#include "sim/protocol/client.h"

// carve-simd: the kernel side of the simulated driver, one instance per socket.
namespace carve::sim {
namespace {

constexpr char kUsage[] =
    "usage: carve-simd --profile <model>x<cards> [options]\n"
    "  --profile h200x2       the machine to simulate\n"
    "  --socket PATH          where clients find it (default /run/nvidia-sim/socket)\n"
    "  --instance NAME        gives this instance its own card UUIDs (default: the profile)\n"
    "  --dev FOLDER           create the device nodes there (default /dev; \"none\": create none)\n"
    "  --ready-fd N           write one byte to this descriptor when clients can connect\n"
    "  --die-with-parent      exit when the parent process exits\n"
    "Runs until SIGTERM or SIGINT, then removes its socket and the nodes that it created.\n";

struct Options {
  std::string profile;
  std::string socket = kSocketPath;
  std::string instance;
  std::string dev = "/dev";
  int ready_fd = -1;
  bool die_with_parent = false;
};

int usage_error(const std::string& what) {
  std::fprintf(stderr, "carve-simd: %s\n%s", what.c_str(), kUsage);
  return 2;
}

/// 0: continue; otherwise the exit code + 1.
int read_options(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kUsage, stdout);
      return 1;
    }
    if (flag == "--die-with-parent") {
      options->die_with_parent = true;
      continue;
    }
    if (i + 1 == argc) return 1 + usage_error(flag + ": unknown flag, or its value is missing");
    const std::string value = argv[++i];
    if (flag == "--profile") {
      options->profile = value;
    } else if (flag == "--socket") {
      options->socket = value;
    } else if (flag == "--instance") {
      options->instance = value;
    } else if (flag == "--dev") {
      options->dev = value;
    } else if (flag == "--ready-fd") {
      if (value.empty() || value.size() > 6 ||
          value.find_first_not_of("0123456789") != std::string::npos)
        return 1 + usage_error("--ready-fd " + value + ": not a descriptor number");
      options->ready_fd = std::stoi(value);
    } else {
      return 1 + usage_error(flag + ": unknown flag");
    }
  }
  if (options->instance.empty()) options->instance = options->profile;
  return 0;
}

/// Real hardware does not wait for the host's scheduler. Where real-time priority is not allowed, the timeline stays
/// exact, because it runs from time stamps; only the completions are published later.
void set_real_time_priority(int priority) {
  sched_param param = {};
  param.sched_priority = priority;
  if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) != 0)
    setpriority(PRIO_PROCESS, 0, -20);
  prctl(PR_SET_TIMERSLACK, 1UL);
}

void sleep_until(Bell* bell, std::uint32_t word, std::uint64_t wake) {
  timespec at = {};
  at.tv_sec = static_cast<time_t>(wake / 1'000'000'000U);
  at.tv_nsec = static_cast<long>(wake % 1'000'000'000U);
  syscall(SYS_futex, &bell->word, FUTEX_WAIT_BITSET, word, wake == ~0ULL ? nullptr : &at, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

// A timer and a wake-up take about 20 µs on an idle virtual machine. For work that is long enough, the daemon wakes
// that much earlier and polls the clock.
constexpr std::uint64_t kEarlyNs = 20'000;
constexpr std::uint64_t kWorthItNs = 200'000;

void play_cards(Kernel& kernel, Bell* bell, const std::atomic<bool>& stop) {
  set_real_time_priority(11);
  while (!stop.load()) {
    const std::uint32_t word = bell->word.load();
    std::uint64_t now = 0, wake = 0;
    bool awaited = false;
    {
      const Kernel::Lock lock(kernel);
      now = monotonic_ns();
      kernel.advance(now);
      bell->armed.store(1);
      // A client that appends after this line sees `armed`; a command appended before it is seen here.
      wake = kernel.anything_new() ? now : kernel.next_wake(now, &awaited);
    }
    const bool early = awaited && wake != ~0ULL && wake >= now + kWorthItNs;
    if (wake > monotonic_ns()) sleep_until(bell, word, early ? wake - kEarlyNs : wake);
    bell->armed.store(0);
    while (early && bell->word.load() == word && monotonic_ns() < wake) {
    }
  }
}

Bell* make_bell(int* fd) {
  *fd = memfd_create("carve-sim-bell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0 || ftruncate(*fd, 4096) != 0) return nullptr;
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Bell*>(at);
}

int stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_CLOEXEC);
}

int serve(const Options& options, const Machine& machine) {
  int bell_fd = -1;
  Bell* bell = make_bell(&bell_fd);
  if (bell == nullptr) {
    std::perror("carve-simd: shared memory");
    return 1;
  }
  Kernel kernel(machine, monotonic_ns());
  Server server(kernel, options.profile, options.instance, bell, bell_fd);
  if (!server.listen_at(options.socket)) {
    std::fprintf(stderr, "carve-simd: socket %s: %s\n", options.socket.c_str(),
                 std::strerror(errno));
    return 1;
  }
  // Only after the socket is bound: a second instance must not treat the nodes of a running instance as left over.
  DeviceNodes nodes;
  if (options.dev != "none" && !nodes.make(options.dev, machine.count)) {
    std::fprintf(stderr, "carve-simd: device nodes in %s: %s (--dev none creates none)\n",
                 options.dev.c_str(), std::strerror(errno));
    unlink(options.socket.c_str());
    return 1;
  }
  const int stop_fd = stop_signals();
  std::atomic<bool> stop{false};
  Thread cards("simd-cards", [&] { play_cards(kernel, bell, stop); });
  if (options.ready_fd >= 0) {
    if (write(options.ready_fd, "r", 1) != 1) std::perror("carve-simd: --ready-fd");
    close(options.ready_fd);
  }
  set_real_time_priority(10);
  server.run(stop_fd);
  stop.store(true);
  bell->word.fetch_add(1);
  syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  cards.join();
  unlink(options.socket.c_str());
  return 0;
}

}  // namespace
}  // namespace carve::sim

int main(int argc, char** argv) {
  using namespace carve::sim;
  Options options;
  if (const int rc = read_options(argc, argv, &options); rc != 0) return rc - 1;
  Machine machine;
  std::string error;
  if (!parse_machine(options.profile, options.instance, &machine, &error))
    return usage_error("--profile: " + error);
  if (options.die_with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
  return serve(options, machine);
}
