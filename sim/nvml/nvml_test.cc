// libnvidia-ml.so.1 as a program sees it, on its own daemon. The test allocates and runs through libcuda.so.1; the
// daemon's account is the truth.
#include "sim/nvml/nvml_abi.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sim/nvml/gpm_abi.h"
#include "sim/protocol/client.h"
#include "sim/testing/gtest_instance.h"

namespace carve::sim::nvml {
namespace {

constexpr char kPtx[] =
    ".version 7.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry carve_spin_2ms()\n{\n  ret;\n}\n";
constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kCardBytes = 143771 * kMiB;

const auto* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new InstanceEnvironment("h200x2"));

/// One opened library; `call("nvmlX", args…)` by its real name.
class Lib {
 public:
  explicit Lib(const char* name)
      : handle_(dlopen((Instance::library_folder() + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  bool is_open() const { return handle_ != nullptr; }
  template <class... A>
  int call(const char* name, A... args) const {
    auto f = reinterpret_cast<int (*)(A...)>(dlsym(handle_, name));
    return f == nullptr ? -1 : f(args...);
  }

 private:
  void* handle_;
};

class Nvml : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(lib.is_open()) << dlerror();
    ASSERT_EQ(lib.call("nvmlInit_v2"), kSuccess);
    ASSERT_EQ(lib.call("nvmlDeviceGetHandleByIndex_v2", 0U, &card0), kSuccess);
    ASSERT_EQ(lib.call("nvmlDeviceGetHandleByIndex_v2", 1U, &card1), kSuccess);
  }
  void TearDown() override { EXPECT_EQ(lib.call("nvmlShutdown"), kSuccess); }

  Lib lib{"libnvidia-ml.so.1"};
  Device card0 = nullptr, card1 = nullptr;
};

/// Runs `f` in a child and returns its exit code; -1 when it was killed.
int in_child(const std::function<int()>& f) {
  const pid_t pid = fork();
  if (pid == 0) _exit(f());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// A child process that holds `bytes` on card 0 and, if requested, keeps it busy, until the object is destroyed.
class Holder {
 public:
  Holder(std::uint64_t bytes, bool busy) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      run(bytes, busy, ready[1]);
      _exit(1);
    }
    close(ready[1]);
    char c = 0;
    up_ = read(ready[0], &c, 1) == 1;
    close(ready[0]);
  }
  ~Holder() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  bool up() const { return up_; }

 private:
  static void run(std::uint64_t bytes, bool busy, int ready) {
    const Lib cu("libcuda.so.1");
    void *context = nullptr, *module = nullptr, *kernel = nullptr;
    std::uint64_t pointer = 0;
    if (cu.call("cuInit", 0U) != 0) return;
    if (cu.call("cuDevicePrimaryCtxRetain", &context, 0) != 0) return;
    if (cu.call("cuCtxSetCurrent", context) != 0) return;
    if (cu.call("cuMemAlloc_v2", &pointer, std::size_t{bytes}) != 0) return;
    if (cu.call("cuModuleLoadData", &module, static_cast<const void*>(kPtx)) != 0) return;
    if (cu.call("cuModuleGetFunction", &kernel, module, "carve_spin_2ms") != 0) return;
    if (write(ready, "r", 1) != 1) return;
    void* none = nullptr;
    while (busy) {
      for (int i = 0; i < 8; ++i) {
        if (cu.call("cuLaunchKernel", kernel, 1U, 1U, 1U, 1U, 1U, 1U, 0U, none, none, none) != 0) return;
      }
      cu.call("cuCtxSynchronize");
    }
    for (;;) pause();
  }
  pid_t pid_ = -1;
  bool up_ = false;
};

TEST(NvmlLife, CountsItsUsersAndRefusesCallsBeforeAndAfter) {
  const Lib lib("libnvidia-ml.so.1");
  ASSERT_TRUE(lib.is_open());
  unsigned count = 0;
  EXPECT_EQ(lib.call("nvmlDeviceGetCount_v2", &count), kUninitialized);
  char text[80];
  EXPECT_EQ(lib.call("nvmlSystemGetNVMLVersion", text, 80U), kSuccess) << "works before init";
  EXPECT_EQ(lib.call("nvmlShutdown"), kUninitialized);
  EXPECT_EQ(lib.call("nvmlInitWithFlags", 8U), kInvalidArgument);
  EXPECT_EQ(lib.call("nvmlInit"), kSuccess);
  EXPECT_EQ(lib.call("nvmlInitWithFlags", 1U), kSuccess);
  EXPECT_EQ(lib.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceGetCount", &count), kSuccess) << "one user is left";
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(lib.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceGetCount", &count), kUninitialized);
}

TEST_F(Nvml, EveryKeyFindsTheSameCard) {
  char uuid[96] = {}, serial[30] = {};
  PciInfo pci = {};
  ASSERT_EQ(lib.call("nvmlDeviceGetUUID", card1, uuid, 96U), kSuccess);
  ASSERT_EQ(lib.call("nvmlDeviceGetSerial", card1, serial, 30U), kSuccess);
  ASSERT_EQ(lib.call("nvmlDeviceGetPciInfo_v3", card1, &pci), kSuccess);
  for (auto [name, key] : {std::pair{"nvmlDeviceGetHandleByUUID", uuid},
                           std::pair{"nvmlDeviceGetHandleBySerial", serial},
                           std::pair{"nvmlDeviceGetHandleByPciBusId", pci.bus_id},
                           std::pair{"nvmlDeviceGetHandleByPciBusId_v2", pci.bus_id_legacy}}) {
    Device found = nullptr;
    EXPECT_EQ(lib.call(name, static_cast<const char*>(key), &found), kSuccess) << name << " " << key;
    EXPECT_EQ(found, card1) << name;
  }
  Device none = nullptr;
  EXPECT_EQ(lib.call("nvmlDeviceGetHandleByUUID", "GPU-nobody", &none), kNotFound);
  EXPECT_EQ(lib.call("nvmlDeviceGetHandleByIndex_v2", 2U, &none), kInvalidArgument);
}

TEST_F(Nvml, TextNeedsALargeEnoughBuffer) {
  char name[96] = {};
  ASSERT_EQ(lib.call("nvmlDeviceGetName", card0, name, 96U), kSuccess);
  EXPECT_STREQ(name, "NVIDIA H200 (SIMULATED)");
  const auto exact = static_cast<unsigned>(std::strlen(name));
  EXPECT_EQ(lib.call("nvmlDeviceGetName", card0, name, exact), kInsufficientSize);
  EXPECT_EQ(lib.call("nvmlDeviceGetName", card0, name, exact + 1), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceGetName", card0, static_cast<char*>(nullptr), 96U), kInvalidArgument);
  EXPECT_EQ(lib.call("nvmlDeviceGetName", static_cast<Device>(nullptr), name, 96U), kInvalidArgument);
}

TEST_F(Nvml, UsedMemoryFollowsTheProcesses) {
  MemoryV2 before = {struct_version<MemoryV2>(2), 0, 0, 0, 0};
  ASSERT_EQ(lib.call("nvmlDeviceGetMemoryInfo_v2", card0, &before), kSuccess);
  EXPECT_EQ(before.total, kCardBytes);
  EXPECT_EQ(before.free + before.used + before.reserved, before.total);
  {
    const Holder holder(1024 * kMiB, false);
    ASSERT_TRUE(holder.up());
    MemoryV2 held = before;
    Memory first = {};
    ASSERT_EQ(lib.call("nvmlDeviceGetMemoryInfo_v2", card0, &held), kSuccess);
    ASSERT_EQ(lib.call("nvmlDeviceGetMemoryInfo", card0, &first), kSuccess);
    EXPECT_EQ(held.used - before.used, 1024 * kMiB + 528 * kMiB) << "the allocation and a context";
    EXPECT_EQ(first.free, held.free);
    EXPECT_EQ(first.free + first.used, first.total);
    MemoryV2 other = before;
    ASSERT_EQ(lib.call("nvmlDeviceGetMemoryInfo_v2", card1, &other), kSuccess);
    EXPECT_EQ(other.used, 0U) << "the other card is not affected";
  }
  MemoryV2 after = before;
  ASSERT_EQ(lib.call("nvmlDeviceGetMemoryInfo_v2", card0, &after), kSuccess);
  EXPECT_EQ(after.used, before.used) << "a killed process frees everything";
  MemoryV2 wrong = {sizeof(MemoryV2) | 1U << 24, 0, 0, 0, 0};
  EXPECT_EQ(lib.call("nvmlDeviceGetMemoryInfo_v2", card0, &wrong), kVersionMismatch);
}

TEST_F(Nvml, ReturnsProcessListsInBothRecordSizes) {
  const Holder a(64 * kMiB, false), b(128 * kMiB, false);
  ASSERT_TRUE(a.up() && b.up());
  unsigned count = 0;
  EXPECT_EQ(lib.call("nvmlDeviceGetComputeRunningProcesses_v3", card0, &count,
                     static_cast<ProcessV2*>(nullptr)), kInsufficientSize);
  EXPECT_EQ(count, 2U);
  ProcessV2 later[3];
  std::memset(later, 0x5A, sizeof later);
  count = 1;
  EXPECT_EQ(lib.call("nvmlDeviceGetComputeRunningProcesses_v3", card0, &count, later), kInsufficientSize);
  count = 3;
  ASSERT_EQ(lib.call("nvmlDeviceGetComputeRunningProcesses_v3", card0, &count, later), kSuccess);
  ASSERT_EQ(count, 2U);
  EXPECT_EQ(later[0].gpu_instance, kNoInstance);
  ProcessV1 first[3];
  std::memset(first, 0x5A, sizeof first);
  count = 3;
  ASSERT_EQ(lib.call("nvmlDeviceGetComputeRunningProcesses", card0, &count, first), kSuccess);
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(first[i].pid, later[i].pid) << "16-byte records";
    EXPECT_EQ(first[i].used, later[i].used);
    const std::uint64_t held = static_cast<pid_t>(first[i].pid) == a.pid() ? 64 : 128;
    EXPECT_EQ(first[i].used, (held + 528) * kMiB);
  }
  EXPECT_EQ(first[2].pid, 0x5A5A5A5AU) << "nothing past the second record";
}

TEST_F(Nvml, UtilisationIsWholePercentOfFinishedPeriods) {
  ProcessUtilizationSample samples[8];
  unsigned count = 8;
  EXPECT_EQ(lib.call("nvmlDeviceGetProcessUtilization", card1, samples, &count, 0ULL), kNotFound);
  const Holder busy(kMiB, true);
  ASSERT_TRUE(busy.up());
  // No fixed sleep: query until two whole periods were busy, at most 10 s.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::uint32_t best = 0;
  std::uint64_t last = 0;
  int changes = 0;
  while (std::chrono::steady_clock::now() < end && (changes < 3 || best < 80)) {
    count = 8;
    if (lib.call("nvmlDeviceGetProcessUtilization", card0, samples, &count, 1ULL * last) == kSuccess) {
      for (unsigned i = 0; i < count; ++i) {
        EXPECT_LE(samples[i].sm, 100U);
        if (static_cast<pid_t>(samples[i].pid) != busy.pid()) continue;
        EXPECT_GT(samples[i].time_us, last) << "newer than the last sample";
        best = std::max(best, samples[i].sm);
        last = samples[i].time_us;
        ++changes;
      }
    }
    usleep(20000);
  }
  EXPECT_GE(best, 80U) << "a process that always has work";
  Utilization rates = {};
  ASSERT_EQ(lib.call("nvmlDeviceGetUtilizationRates", card0, &rates), kSuccess);
  EXPECT_GE(rates.gpu, 60U);
  ASSERT_EQ(lib.call("nvmlDeviceGetUtilizationRates", card1, &rates), kSuccess);
  EXPECT_EQ(rates.gpu, 0U);
  unsigned warm = 0, cold = 0;
  ASSERT_EQ(lib.call("nvmlDeviceGetPowerUsage", card0, &warm), kSuccess);
  ASSERT_EQ(lib.call("nvmlDeviceGetPowerUsage", card1, &cold), kSuccess);
  EXPECT_GT(warm, cold);
}

// The card's periods and its processes' periods are two requests to the simulated driver. The test sends them without a
// pause, so that many periods end between the two.
TEST_F(Nvml, APeriodThatEndsBetweenTwoRequestsRaisesNoUtilisation) {
  const Holder busy(kMiB, true);
  ASSERT_TRUE(busy.up());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  std::uint32_t most = 0;
  while (std::chrono::steady_clock::now() < end) {
    ProcessUtilizationSample samples[8];
    unsigned count = 8;
    // The mean of all periods of the last second.
    if (lib.call("nvmlDeviceGetProcessUtilization", card0, samples, &count, 0ULL) != kSuccess) continue;
    for (unsigned i = 0; i < count; ++i) most = std::max(most, samples[i].sm);
  }
  EXPECT_GE(most, 1U) << "a process that always has work";
  EXPECT_LE(most, 100U);
}

// The counters of a Hopper card: two samples around half a second, in which one card works and the other does not.
TEST_F(Nvml, GpmCountsTheBusyTimeBetweenTwoSamples) {
  GpmSupport support = {2, 0};
  EXPECT_EQ(lib.call("nvmlGpmQueryDeviceSupport", card0, &support), kVersionMismatch);
  support = {kGpmVersion, 0};
  ASSERT_EQ(lib.call("nvmlGpmQueryDeviceSupport", card0, &support), kSuccess);
  EXPECT_EQ(support.supported, 1U);
  GpmSample* samples[4] = {};
  for (GpmSample*& sample : samples) ASSERT_EQ(lib.call("nvmlGpmSampleAlloc", &sample), kSuccess);
  GpmMetricsGet get = {};
  get.version = kGpmVersion;
  for (const std::uint32_t id : {kGpmGraphics, kGpmSm, kGpmAnyTensor, kGpmMemoryBandwidth})
    get.metrics[get.count++].id = id;
  get.first = samples[0];
  get.second = samples[1];
  EXPECT_EQ(lib.call("nvmlGpmMetricsGet", &get), kInvalidArgument) << "samples that were not taken";
  const Holder busy(kMiB, true);
  ASSERT_TRUE(busy.up());
  ASSERT_EQ(lib.call("nvmlGpmSampleGet", card0, samples[0]), kSuccess);
  ASSERT_EQ(lib.call("nvmlGpmSampleGet", card1, samples[2]), kSuccess);
  usleep(500000);
  ASSERT_EQ(lib.call("nvmlGpmSampleGet", card0, samples[1]), kSuccess);
  ASSERT_EQ(lib.call("nvmlGpmSampleGet", card1, samples[3]), kSuccess);
  ASSERT_EQ(lib.call("nvmlGpmMetricsGet", &get), kSuccess);
  EXPECT_GT(get.metrics[0].value, 1);
  EXPECT_LE(get.metrics[0].value, 100);
  EXPECT_EQ(get.metrics[1].value, get.metrics[0].value);
  EXPECT_EQ(get.metrics[2].result, kSuccess);
  EXPECT_EQ(get.metrics[2].value, 0) << "no simulated kernel uses tensor cores";
  EXPECT_EQ(get.metrics[3].result, kNotSupported) << "not modelled";
  get.first = samples[2];
  EXPECT_EQ(lib.call("nvmlGpmMetricsGet", &get), kInvalidArgument) << "samples of two cards";
  get.second = samples[3];
  ASSERT_EQ(lib.call("nvmlGpmMetricsGet", &get), kSuccess);
  EXPECT_EQ(get.metrics[0].value, 0) << "the idle card";
  std::swap(get.first, get.second);
  EXPECT_EQ(lib.call("nvmlGpmMetricsGet", &get), kInvalidArgument) << "the later sample first";
  for (GpmSample* sample : samples) EXPECT_EQ(lib.call("nvmlGpmSampleFree", sample), kSuccess);
  EXPECT_EQ(lib.call("nvmlGpmSampleFree", static_cast<GpmSample*>(nullptr)), kInvalidArgument);
}

TEST_F(Nvml, AForkedChildOpensItsOwnConnection) {
  unsigned count = 0;
  const Lib& library = lib;
  Device device = card0;
  EXPECT_EQ(in_child([&] {
    Memory m = {};
    for (int i = 0; i < 100; ++i) {
      if (library.call("nvmlDeviceGetMemoryInfo", device, &m) != kSuccess) return 1;
    }
    return m.total == kCardBytes ? 0 : 2;
  }), 0);
  EXPECT_EQ(lib.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 2U);
}

TEST_F(Nvml, ACardWhoseNodeCannotBeOpenedIsNotVisible) {
  EXPECT_EQ(in_child([] {
    if (unshare(CLONE_NEWNS) != 0) return 1;
    // A socket's inode over the node: open() returns ENXIO to every process, including root's.
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un at = {};
    at.sun_family = AF_UNIX;
    std::strcpy(at.sun_path, "/run/nvidia-sim/cover");
    if (bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) return 2;
    if (mount(at.sun_path, "/dev/nvidia0", nullptr, MS_BIND, nullptr) != 0) return 3;
    unlink(at.sun_path);
    const Lib fresh("libnvidia-ml.so.1");
    // The library is already loaded and has the parent's state; shut it down.
    while (fresh.call("nvmlShutdown") == kSuccess) {
    }
    unsigned count = 9, minor = 9;
    Device device = nullptr;
    if (fresh.call("nvmlInit_v2") != kSuccess) return 4;
    if (fresh.call("nvmlDeviceGetCount_v2", &count) != kSuccess || count != 1) return 5;
    if (fresh.call("nvmlDeviceGetHandleByIndex_v2", 0U, &device) != kSuccess) return 6;
    if (fresh.call("nvmlDeviceGetMinorNumber", device, &minor) != kSuccess || minor != 1) return 7;
    return 0;
  }), 0);
}

TEST_F(Nvml, ReportsTheTopologyOfTwoCardsOnTwoSockets) {
  unsigned level = 0, state = 0, p2p = 9;
  EXPECT_EQ(lib.call("nvmlDeviceGetTopologyCommonAncestor", card0, card1, &level), kSuccess);
  EXPECT_EQ(level, 50U) << "across the sockets";
  EXPECT_EQ(lib.call("nvmlDeviceGetTopologyCommonAncestor", card0, card0, &level), kSuccess);
  EXPECT_EQ(level, 0U);
  EXPECT_EQ(lib.call("nvmlDeviceGetNvLinkState", card0, 17U, &state), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceGetNvLinkState", card0, 18U, &state), kNotSupported);
  EXPECT_EQ(lib.call("nvmlDeviceGetNvLinkState", card0, 99U, &state), kInvalidArgument);
  EXPECT_EQ(lib.call("nvmlDeviceGetP2PStatus", card0, card1, 2U, &p2p), kSuccess);
  EXPECT_EQ(p2p, 0U);
  unsigned long cpus[4] = {};
  EXPECT_EQ(lib.call("nvmlDeviceGetCpuAffinity", card1, 4U, cpus), kSuccess);
  EXPECT_NE(cpus[0], 0UL) << "a program that pins itself there needs a processor";
}

TEST_F(Nvml, AnEventSetWaitsAndReturnsTimeout) {
  void* set = nullptr;
  ASSERT_EQ(lib.call("nvmlEventSetCreate", &set), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceRegisterEvents", card0, 8ULL, set), kSuccess);
  EXPECT_EQ(lib.call("nvmlDeviceRegisterEvents", card0, 1ULL << 40, set), kNotSupported);
  EventData data = {};
  EXPECT_EQ(lib.call("nvmlEventSetWait_v2", set, &data, 5U), kTimeout);
  EXPECT_EQ(lib.call("nvmlEventSetFree", set), kSuccess);
  EXPECT_EQ(lib.call("nvmlEventSetFree", set), kInvalidArgument);
}

TEST_F(Nvml, TheToolsTableSupportsOnlyTheLists) {
  const unsigned char tools[16] = {0xC4, 0xFE, 0x3E, 0x6C, 0xC9, 0x8F, 0x6C, 0x4E,
                                   0xA3, 0x27, 0xEE, 0x69, 0x6E, 0x12, 0xF7, 0xC4};
  const unsigned char unknown[16] = {};
  const std::uintptr_t* table = nullptr;
  EXPECT_EQ(lib.call("nvmlInternalGetExportTable", &table, static_cast<const void*>(unknown)), kInvalidArgument);
  ASSERT_EQ(lib.call("nvmlInternalGetExportTable", &table, static_cast<const void*>(tools)), kSuccess);
  ASSERT_EQ(table[0], 255 * sizeof table[0]);
  EXPECT_EQ(reinterpret_cast<Return (*)()>(table[26])(), kNotSupported);
  int path = -1;
  auto* between = reinterpret_cast<Return (*)(const char*, const char*, int*)>(table[23]);
  EXPECT_EQ(between("0000:18:00.0", "00000000:9A:00.0", &path), kSuccess);
  EXPECT_EQ(path, 4 + 18) << "NV18";
  EXPECT_EQ(between("0000:18:00.0", "0000:18:00.0", &path), kInvalidArgument);
  for (const int list : {213, 214, 215}) {
    unsigned count = 500;
    EXPECT_EQ(reinterpret_cast<Return (*)(Device, unsigned*, void*)>(table[list])(card0, &count, nullptr), kSuccess);
    EXPECT_EQ(count, 0U);
  }
}

TEST_F(Nvml, UnmodelledFunctionsReturnNotSupported) {
  EXPECT_EQ(lib.call("nvmlDeviceSetMigMode", card0, 1U, static_cast<int*>(nullptr)), kNotSupported);
  EXPECT_EQ(lib.call("nvmlDeviceGetFanSpeed", card0, static_cast<unsigned*>(nullptr)), kNotSupported);
}

}  // namespace
}  // namespace carve::sim::nvml
