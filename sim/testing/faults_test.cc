#include <poll.h>

#include <chrono>
#include <future>
#include <thread>

#include "sim/nvml/nvml_abi.h"
#include "sim/protocol/client.h"
#include "sim/testing/child.h"
#include "sim/testing/gtest_instance.h"

// Faults injected with carve-simctl, as a program sees them through libcuda.so.1 and libnvidia-ml.so.1 only.
namespace carve::sim {
namespace {

const auto* const kSim =
    ::testing::AddGlobalTestEnvironment(new InstanceEnvironment("h200x2"));

using nvml::Device;
using nvml::EventData;
enum : int { kOk = 0, kIllegalAddress = 700, kEcc = 214, kLaunchFailed = 719, kUnknown = 999 };
constexpr unsigned long long kXidEvent = 8;

int ctl(const std::string& words) {
  const int status = system((Instance::simctl_path() + " " + words + " 2>/dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// An entry point of this process's libnvidia-ml.so.1.
template <class... A>
int ml(const char* name, A... arguments) {
  static void* library = dlopen((Instance::library_folder() + "/libnvidia-ml.so.1").c_str(), RTLD_NOW);
  auto* function = reinterpret_cast<int (*)(A...)>(dlsym(library, name));
  return function == nullptr ? -1 : function(arguments...);
}

std::uint64_t gpu_ns(pid_t pid) {
  Connection query;
  std::vector<AccountRecord> records;
  if (query.open(ClientKind::kControl) == Status::kOk) query.list(Op::kAccount, 0, 0, 0, &records);
  for (const AccountRecord& r : records)
    if (r.pid == pid && r.card == 0) return r.gpu_ns;
  return 0;
}
void until_it_runs(pid_t child) {
  while (gpu_ns(child) == 0) std::this_thread::yield();
}

class Faults : public ::testing::Test {
 protected:
  void TearDown() override {
    ctl("hang off");
    ctl("driver back");
    EXPECT_EQ(ctl("return 0") + ctl("return 1"), 0);
  }
};

/// Starts a program with a long kernel, which must end with `expected`.
pid_t program_that_gets(int expected, int card = 0) {
  return start_child([expected, card] {
    use_card(card);
    void* spin = kernel("carve_spin_999999ms");
    ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), expected);
    // The error is permanent: allocation, launch and query all return it.
    Ptr p = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &p, std::size_t{1} << 20), expected);
    EXPECT_EQ(launch(spin, nullptr), expected);
  });
}

TEST_F(Faults, AnUncorrectableErrorEndsAllContextsOfItsCardOnly) {
  const pid_t one = program_that_gets(kEcc);
  const pid_t two = program_that_gets(kEcc);
  until_it_runs(one);
  until_it_runs(two);
  const pid_t other = start_child([] {
    use_card(1);
    void* spin = kernel("carve_spin_500ms");
    ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), kOk);
  });
  EXPECT_EQ(ctl("xid 0 48"), 0);
  EXPECT_EQ(wait_child(one) + wait_child(two) + wait_child(other), 0);
  // The card needs a reset and accepts no new context before it.
  in_child([] {
    void* context = nullptr;
    ASSERT_EQ(cu("cuInit", 0U), kOk);
    EXPECT_EQ(cu("cuDevicePrimaryCtxRetain", &context, 0), kUnknown);
    EXPECT_EQ(cu("cuDevicePrimaryCtxRetain", &context, 1), kOk);
  });
  EXPECT_EQ(ctl("reset 0"), 0);
  in_child([] { use_card(); });
}

TEST_F(Faults, AProgramsOwnErrorEndsOnlyItsContexts) {
  const pid_t guilty = program_that_gets(kIllegalAddress);
  until_it_runs(guilty);
  const pid_t other = start_child([] {
    use_card();
    void* spin = kernel("carve_spin_200ms");
    for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), kOk);
  });
  until_it_runs(other);
  EXPECT_EQ(ctl("xid 0 31 --pid " + std::to_string(guilty)), 0);
  EXPECT_EQ(wait_child(guilty) + wait_child(other), 0);
  in_child([] { use_card(); });
}

TEST_F(Faults, AHarmlessXidEndsNoContext) {
  const pid_t child = start_child([] {
    use_card();
    void* spin = kernel("carve_spin_300ms");
    ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), kOk);
  });
  until_it_runs(child);
  EXPECT_EQ(ctl("xid 0 64"), 0);
  EXPECT_EQ(ctl("reset 0"), 1) << "the card is in use";
  EXPECT_EQ(wait_child(child), 0);
  EXPECT_EQ(ctl("reset 0"), 0);
}

TEST_F(Faults, EventsReachOnlyTheSetsThatRegisteredTheCard) {
  in_child([] {
    Device cards[2] = {};
    ASSERT_EQ(ml("nvmlInit_v2"), nvml::kSuccess);
    for (unsigned i = 0; i < 2; ++i) ASSERT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", i, &cards[i]), 0);
    void* second = nullptr;
    void* both = nullptr;
    ASSERT_EQ(ml("nvmlEventSetCreate", &second), 0);
    ASSERT_EQ(ml("nvmlEventSetCreate", &both), 0);
    ASSERT_EQ(ml("nvmlDeviceRegisterEvents", cards[1], kXidEvent, second), 0);
    for (Device card : cards) ASSERT_EQ(ml("nvmlDeviceRegisterEvents", card, kXidEvent, both), 0);
    EXPECT_EQ(ctl("xid 0 63"), 0);
    EXPECT_EQ(ctl("xid 1 74"), 0);
    EventData event = {};
    ASSERT_EQ(ml("nvmlEventSetWait_v2", second, &event, 2000U), nvml::kSuccess);
    EXPECT_EQ(event.device, cards[1]);
    EXPECT_EQ(event.type, kXidEvent);
    EXPECT_EQ(event.data, 74U);
    EXPECT_EQ(event.gpu_instance, 0xFFFFFFFFU);
    EXPECT_EQ(ml("nvmlEventSetWait_v2", second, &event, 10U), nvml::kTimeout);
    ASSERT_EQ(ml("nvmlEventSetWait_v2", both, &event, 2000U), nvml::kSuccess);
    EXPECT_EQ(event.data, 63U) << "events arrive in order";
    EXPECT_EQ(event.device, cards[0]);
    ASSERT_EQ(ml("nvmlEventSetWait", both, &event, 2000U), nvml::kSuccess);
    EXPECT_EQ(event.data, 74U);
    // Events are kept while no thread waits. Events before the creation of the set are not delivered.
    ASSERT_EQ(ml("nvmlEventSetFree", both), 0);
    ASSERT_EQ(ml("nvmlEventSetCreate", &both), 0);
    ASSERT_EQ(ml("nvmlDeviceRegisterEvents", cards[0], kXidEvent, both), 0);
    EXPECT_EQ(ml("nvmlEventSetWait_v2", both, &event, 10U), nvml::kTimeout);
  });
}

TEST_F(Faults, AWaiterIsWokenByTheEventNotByItsTimeout) {
  in_child([] {
    Device card = nullptr;
    ASSERT_EQ(ml("nvmlInit_v2"), 0);
    ASSERT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", 0U, &card), 0);
    void* set = nullptr;
    ASSERT_EQ(ml("nvmlEventSetCreate", &set), 0);
    ASSERT_EQ(ml("nvmlDeviceRegisterEvents", card, kXidEvent, set), 0);
    const auto before = std::chrono::steady_clock::now();
    auto waiting = std::async(std::launch::async, [&] {
      EventData event = {};
      return ml("nvmlEventSetWait_v2", set, &event, 60'000U);
    });
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    EXPECT_EQ(ctl("xid 0 61"), 0);
    EXPECT_EQ(waiting.get(), nvml::kSuccess);
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  });
}

TEST_F(Faults, EveryCallOnALostCardReportsItAndOtherCardsWork) {
  const pid_t running = program_that_gets(kUnknown);
  until_it_runs(running);
  in_child([] {
    Device cards[2] = {}, again = nullptr;
    unsigned count = 0, watts = 0;
    char text[96];
    ASSERT_EQ(ml("nvmlInit_v2"), 0);
    for (unsigned i = 0; i < 2; ++i) ASSERT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", i, &cards[i]), 0);
    ASSERT_EQ(ctl("lose 0"), 0);
    EXPECT_EQ(ml("nvmlDeviceGetCount_v2", &count), 0);
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(ml("nvmlDeviceGetUUID", cards[0], text, 96U), nvml::kGpuIsLost);
    EXPECT_EQ(ml("nvmlDeviceGetPowerUsage", cards[0], &watts), nvml::kGpuIsLost);
    EXPECT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", 0U, &again), nvml::kGpuIsLost);
    EXPECT_EQ(ml("nvmlDeviceGetPowerUsage", cards[1], &watts), nvml::kSuccess);
    EXPECT_EQ(ctl("return 0"), 0);
    EXPECT_EQ(ml("nvmlDeviceGetUUID", cards[0], text, 96U), nvml::kSuccess);
  });
  EXPECT_EQ(wait_child(running), 0);
}

TEST_F(Faults, AHangingLibraryAnswersNoCallUntilTheHangEnds) {
  in_child([] {
    Device card = nullptr;
    ASSERT_EQ(ml("nvmlInit_v2"), 0);
    ASSERT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", 0U, &card), 0);
    ASSERT_EQ(ctl("hang on"), 0);
    auto asked = std::async(std::launch::async, [&] {
      unsigned watts = 0;
      return ml("nvmlDeviceGetPowerUsage", card, &watts);
    });
    EXPECT_EQ(asked.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    ASSERT_EQ(ctl("hang off"), 0);
    EXPECT_EQ(asked.get(), nvml::kSuccess);
  });
  ASSERT_EQ(ctl("hang on"), 0);
  const pid_t starting = start_child([] { EXPECT_EQ(ml("nvmlInit_v2"), 0); });
  in_child([] { use_card(); });  // programs on the cards do not use the management library
  EXPECT_EQ(ctl("cards >/dev/null"), 0) << "the simulator itself still answers";
  // A hang produces no signal to wait for. A simulator that fails to hang has 100 ms to show it.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  int status = 0;
  EXPECT_EQ(waitpid(starting, &status, WNOHANG), 0) << "initialisation hangs too";
  ASSERT_EQ(ctl("hang off"), 0);
  EXPECT_EQ(wait_child(starting), 0);
}

TEST_F(Faults, AGoneDriverCannotBeOpenedAndRunningProgramsContinue) {
  const pid_t running = start_child([] {
    use_card();
    void* spin = kernel("carve_spin_500ms");
    ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), kOk);
  });
  until_it_runs(running);
  in_child([] {
    Device card = nullptr;
    unsigned watts = 0;
    ASSERT_EQ(ml("nvmlInit_v2"), 0);
    ASSERT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", 0U, &card), 0);
    void* set = nullptr;
    ASSERT_EQ(ml("nvmlEventSetCreate", &set), 0);
    ASSERT_EQ(ctl("driver gone"), 0);
    EXPECT_EQ(ml("nvmlDeviceGetPowerUsage", card, &watts), nvml::kDriverNotLoaded);
    EventData event = {};
    EXPECT_NE(ml("nvmlEventSetWait_v2", set, &event, 10'000U), nvml::kTimeout);
    ASSERT_EQ(ctl("driver back"), 0);
    EXPECT_EQ(ml("nvmlShutdown"), 0);
    EXPECT_EQ(ml("nvmlInit_v2"), 0);
    EXPECT_EQ(ml("nvmlDeviceGetHandleByIndex_v2", 0U, &card), 0);
  });
  ASSERT_EQ(ctl("driver gone"), 0);
  in_child([] {
    EXPECT_EQ(ml("nvmlInit_v2"), nvml::kDriverNotLoaded);
    EXPECT_EQ(cu("cuInit", 0U), 100);
  });
  EXPECT_EQ(wait_child(running), 0);
}

TEST_F(Faults, InvalidFaultsAreRefused) {
  for (const char* bad : {"xid", "xid 0", "xid 0 0", "xid 0 1000", "xid two 48", "lose", "hang", "hang maybe",
                          "driver up", "return 16", "lose 0 1"})
    EXPECT_EQ(ctl(bad), 2) << bad;
  EXPECT_EQ(ctl("lose 7"), 2) << "no such card on this machine";
}

TEST_F(Faults, ATenantCannotInjectFaults) {
  in_child([] {
    ASSERT_EQ(setuid(65534), 0);
    Connection tenant;
    ASSERT_EQ(tenant.open(ClientKind::kControl), Status::kOk);
    EXPECT_EQ(tenant.inject(0, Injection::kLose, 0), Status::kNotPermitted);
  });
}

}  // namespace
}  // namespace carve::sim
