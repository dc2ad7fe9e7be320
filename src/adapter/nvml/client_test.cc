#include "adapter/nvml/client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "adapter/nvml/wire.h"
#include "adapter/nvml/worker.h"
#include "base/testing/temp_folder.h"

// The test binary is also the worker: it is started again with one argument.
namespace {
const int kPlayed = [] {
  std::ifstream file("/proc/self/cmdline");
  std::string line((std::istreambuf_iterator<char>(file)), {});
  const auto zero = line.find('\0');
  if (zero != std::string::npos && line.compare(zero + 1, 11, "nvml-worker") == 0) {
    const auto second = line.find('\0', zero + 1);
    std::_Exit(carve::nvml::run_worker(carve::nvml::kWorkerSocket, carve::nvml::kWorkerEvents,
                                       line.substr(second + 1).c_str()));
  }
  return 0;
}();
}  // namespace

namespace carve::nvml {
namespace {

class NvmlClientTest : public testing::Test {
 protected:
  NvmlClientTest() {
    set("ok");
    ::setenv("FAKE_NVML_MODE", (folder_ + "/mode").c_str(), 1);
  }
  void set(const std::string& mode) { std::ofstream(folder_ + "/mode") << mode; }
  /// Waits until the worker has sent the XID that set() named. The client can read it but has not done so.
  [[nodiscard]] bool told(const std::string& mode) const {
    std::string last;
    for (int i = 0; i < 1000 && last != mode; ++i) {
      ::usleep(10'000);
      std::ifstream file(folder_ + "/mode.told");
      last.clear();
      std::getline(file, last);
    }
    return last == mode;
  }
  WorkerOptions options(const std::string& root = FAKE_DRIVER) const {
    return {.program = "/proc/self/exe",
            .args = {"nvml-worker", root},
            .log_file = "",
            .inventory_deadline = std::chrono::seconds(5),
            .usage_deadline = std::chrono::milliseconds(300),
            .back_off = std::chrono::milliseconds(10)};
  }
  Result<std::vector<GpuUsage>> ask_until_ok(Client& client) {
    Result<std::vector<GpuUsage>> usage;
    for (int i = 0; i < 200; ++i) {
      usage = client.usage();
      if (usage) break;
      ::usleep(20'000);  // the back-off of a real process, in real time
    }
    return usage;
  }
  TempFolder temp_;
  const std::string& folder_ = temp_.path();
  SystemClock clock_;
  Log log_{[](std::string_view) {}};
};

TEST_F(NvmlClientTest, ListsCardsFilesAndProcesses) {
  Client client(options(), clock_, log_);
  const auto inventory = client.inventory();
  ASSERT_TRUE(inventory) << inventory.error().what;
  EXPECT_EQ(inventory->driver_version, "999.10.01");
  EXPECT_EQ(inventory->cuda_version, "13.0");
  ASSERT_EQ(inventory->cards.size(), 2U);
  EXPECT_EQ(inventory->cards[1].id.str(), "GPU-fake-1");
  EXPECT_EQ(inventory->cards[1].minor, 6);
  EXPECT_EQ(inventory->cards[0].architecture, "Hopper");
  EXPECT_EQ(inventory->cards[0].compute_capability, "9.0");
  EXPECT_EQ(inventory->cards[1].architecture, "");  // newer than the table of architectures
  EXPECT_EQ(inventory->cards[0].memory, Bytes::gib(16));
  EXPECT_EQ(inventory->links.between(CardId("GPU-fake-0"), CardId("GPU-fake-1")).level, LinkLevel::kSystem);
  EXPECT_NE(inventory->files.nvml.find("libnvidia-ml.so.1"), std::string::npos);
  const auto usage = client.usage();
  ASSERT_TRUE(usage) << usage.error().what;
  EXPECT_EQ((*usage)[0].processes.size(), 100U);
  EXPECT_EQ((*usage)[0].used, Bytes::gib(1));
  EXPECT_EQ(client.state(), GpuState::kOk);
}

TEST_F(NvmlClientTest, KillsAWorkerThatHangsAndReportsWhy) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  const pid_t first = client.worker_pid();
  set("hang");
  const auto usage = client.usage();
  ASSERT_FALSE(usage);
  EXPECT_EQ(usage.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(client.state(), GpuState::kHanging);
  EXPECT_NE(::kill(first, 0), 0);
  set("ok");
  ASSERT_TRUE(ask_until_ok(client));
  EXPECT_EQ(client.state(), GpuState::kOk);
  EXPECT_NE(client.worker_pid(), first);
}

TEST_F(NvmlClientTest, AStoppedWorkerCountsAsHanging) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  ::kill(client.worker_pid(), SIGSTOP);
  EXPECT_EQ(client.usage().error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(ask_until_ok(client));
}

TEST_F(NvmlClientTest, RestartsAWorkerThatDies) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  ::kill(client.worker_pid(), SIGKILL);
  EXPECT_FALSE(client.usage());
  EXPECT_TRUE(ask_until_ok(client));
}

TEST_F(NvmlClientTest, DistinguishesAMissingDriverFromAMissingLibrary) {
  set("nodriver");
  Client no_driver(options(), clock_, log_);
  EXPECT_NE(no_driver.inventory().error().what.find("Driver Not Loaded"), std::string::npos);
  EXPECT_EQ(no_driver.state(), GpuState::kAbsent);
  Client no_library(options("/nonexistent"), clock_, log_);
  EXPECT_NE(no_library.inventory().error().what.find("/nonexistent"), std::string::npos);
}

TEST_F(NvmlClientTest, ALostCardDoesNotAffectTheOther) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  set("lost");
  const auto usage = client.usage();
  ASSERT_TRUE(usage);
  EXPECT_FALSE((*usage)[0].lost);
  EXPECT_TRUE((*usage)[1].lost);
}

TEST_F(NvmlClientTest, ACardWithoutEventsIsOnlyUnwatched) {
  Client client(options(), clock_, log_);
  const auto inventory = client.inventory();
  ASSERT_TRUE(inventory) << inventory.error().what;
  EXPECT_EQ(inventory->unwatched, std::vector<CardId>{CardId("GPU-fake-1")});
  EXPECT_EQ((*client.usage())[0].recovery, 1U);
  EXPECT_EQ((*client.usage())[1].recovery, std::nullopt) << "a driver without the field";
}

TEST_F(NvmlClientTest, ReportsEnergyAndWhatTheCountersCountedBetweenTwoCalls) {
  Client client(options(), clock_, log_);
  auto usage = client.usage();
  ASSERT_TRUE(usage) << usage.error().what;
  EXPECT_EQ((*usage)[0].energy_mj, 123'456'789'012U);
  EXPECT_EQ((*usage)[0].memory_busy_percent, 7U);
  EXPECT_EQ((*usage)[0].activity.tensor, std::nullopt) << "one sample is no difference";
  EXPECT_EQ((*usage)[1].energy_mj, std::nullopt) << "a card that does not count";
  // The driver refreshes its counters every 100 ms, in real time.
  for (int i = 0; i < 500 && !(*usage)[0].activity.tensor; ++i) {
    ::usleep(10'000);
    usage = client.usage();
    ASSERT_TRUE(usage) << usage.error().what;
  }
  const CardActivity& seen = (*usage)[0].activity;
  EXPECT_EQ(seen.tensor, 0.25);
  EXPECT_EQ(seen.sm, 0.5);
  EXPECT_EQ(seen.graphics, 1.0) << "the driver's 100.5 per cent";
  EXPECT_EQ(seen.memory, std::nullopt) << "the counter that the driver does not have";
  EXPECT_EQ((*usage)[1].activity.sm, std::nullopt);
  client.renew();
  usage = client.usage();
  ASSERT_TRUE(usage) << usage.error().what;
  EXPECT_EQ((*usage)[0].activity.tensor, std::nullopt) << "another worker starts with its own samples";
}

TEST_F(NvmlClientTest, XidsArriveAndSurviveTheDeathOfTheirWorker) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  set("xid 79");
  std::vector<GpuEvent> events;
  while (events.empty()) events = client.wait_events(std::chrono::seconds(20));
  EXPECT_EQ(events[0].card.str(), "GPU-fake-0");
  EXPECT_EQ(events[0].xid, 79U);
  // The event is sent and not yet read; then the worker is killed.
  set("xid 48");
  ASSERT_TRUE(told("xid 48"));
  ::kill(client.worker_pid(), SIGKILL);
  EXPECT_FALSE(client.usage());
  events = client.wait_events(std::chrono::milliseconds(0));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].xid, 48U);
  // The next worker watches too.
  set("ok");
  ASSERT_TRUE(ask_until_ok(client));
  set("xid 62");
  for (events.clear(); events.empty();) events = client.wait_events(std::chrono::seconds(20));
  EXPECT_EQ(events[0].xid, 62U);
}

TEST_F(NvmlClientTest, AHangingCallDoesNotDelayEvents) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  set("xid 31");
  ASSERT_TRUE(told("xid 31"));
  set("hang");
  EXPECT_EQ(client.usage().error().code, Code::kDeadlineExceeded);
  const auto events = client.wait_events(std::chrono::milliseconds(0));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].xid, 31U);
  EXPECT_TRUE(client.wait_events(std::chrono::milliseconds(0)).empty()) << "the call does not block";
}

TEST_F(NvmlClientTest, AfterRenewTheNextCallStartsAnotherWorker) {
  Client client(options(), clock_, log_);
  ASSERT_TRUE(client.usage());
  const pid_t first = client.worker_pid();
  client.renew();
  EXPECT_NE(::kill(first, 0), 0);
  EXPECT_EQ(client.state(), GpuState::kOk) << "the state does not change";
  ASSERT_TRUE(client.usage());
  EXPECT_NE(client.worker_pid(), first);
}

}  // namespace
}  // namespace carve::nvml
