// A process of a slice dies at every store it makes to shared memory: what it announced and what it held come back,
// and nobody waits for it. The library here is the build that can be told to die (preload/testing/kill_points.cc).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/isolation/arbiter_process.h"
#include "tests/isolation/driver_calls.h"
#include "tests/isolation/paths.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

const bool kChosen = [] {
  library_under_test() = CARVE_KILL_LIBRARY;
  return true;
}();

constexpr std::uint64_t kRoom = 256 * kMiB;
constexpr char kList[] = "/run/carve/kill-list";

pid_t arbiter_pid = 0;

/// A bit of everything that touches shared memory: contexts, all paths to memory, refusals, launches, waits.
int work() {
  if (start_driver() != 0) return 1;
  for (const Path& path : paths()) {
    Held held[2] = {};
    if (path.take(2 * kMiB, &held[0]) != 0 || path.take(kRoom, &held[1]) == 0) return 2;
    if (path.drop(held[0]) != 0) return 3;
  }
  CUdeviceptr small = 0;
  if (call("cuMemAlloc_v2", &small, std::size_t{100}) != 0 || call("cuMemFree_v2", small) != 0) return 4;
  CUstream stream = nullptr;
  if (call("cuStreamCreate", &stream, 0U) != 0) return 5;
  constexpr std::size_t kLong = 128 * kMiB;  // takes most of a millisecond
  if (call("cuMemAlloc_v2", &small, kLong) != 0) return 6;
  for (int i = 0; i < 8; ++i) {
    if (call("cuMemsetD8Async", small, static_cast<unsigned char>(1), kLong, stream) != 0) return 7;
    if (i % 4 == 3 && call("cuStreamSynchronize", stream) != 0) return 8;
  }
  // The same with an arbiter that has gone silent.
  kill(arbiter_pid, SIGSTOP);
  usleep(300'000);
  for (int i = 0; i < 3; ++i) {
    if (call("cuMemsetD8Async", small, static_cast<unsigned char>(1), kLong, stream) != 0) return 7;
  }
  kill(arbiter_pid, SIGCONT);
  if (call("cuStreamSynchronize", stream) != 0) return 8;
  if (call("cuStreamDestroy_v2", stream) != 0) return 9;
  return call("cuDevicePrimaryCtxRelease_v2", CUdevice{0}) == 0 ? 0 : 10;
}

/// file:line of every call of the accessor in the sources that the library's stores come from.
std::set<std::string> call_sites() {
  const std::regex store(
      R"((\.|->)(store_relaxed|store_release|store_seq_cst|fetch_add|fetch_sub|compare_exchange)\()");
  std::set<std::string> sites;
  for (const char* name : {"preload/connect.cc", "preload/contexts.cc", "preload/markers.cc", "preload/memory.cc",
                           "preload/meter.cc", "lease/gate.cc", "lease/gate.h", "lease/memory_account.h"}) {
    std::ifstream file(std::string(CARVE_SOURCE) + "/" + name);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
      if (std::regex_search(line, store)) {
        sites.insert(std::string(name) + ":" + std::to_string(number));
      }
    }
  }
  return sites;
}

class KillPoints : public SliceTest {};

TEST_F(KillPoints, NothingIsLeftBehindByADeathAtAnyStore) {
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("kill", card_of(105 * kMiB + kRoom, 50, abi::ShareClass::kBurst)), "");
  // A neighbour that never pauses, so that there is something to wait for.
  ASSERT_EQ(arbiter.put("neighbour", card_of(1024 * kMiB, 50, abi::ShareClass::kBurst)), "");
  const pid_t neighbour = spin_in("neighbour", {"--kernel-us", "500"});
  arbiter_pid = arbiter.pid();
  see_only("kill");

  setenv("CARVE_KILL_LIST", kList, 1);
  ASSERT_EQ(in_child(work), 0);
  unsetenv("CARVE_KILL_LIST");
  std::map<std::string, std::vector<unsigned>> passes_of_site;
  std::ifstream list(kList);
  unsigned passes = 0;
  for (std::string line; std::getline(list, line);) {
    const std::size_t space = line.find(' ');
    const std::size_t at = std::min(line.find("preload/"), line.find("lease/"));
    passes_of_site[at == std::string::npos ? line.substr(space) : line.substr(at)].push_back(
        static_cast<unsigned>(std::stoul(line.substr(0, space))));
    ++passes;
  }
  ASSERT_GT(passes, 100U);

  // Before and after the first, a middle and the last store of every call site; and a spread over the whole run.
  std::set<unsigned> deadly;
  for (const auto& [site, at] : passes_of_site) {
    for (const std::size_t i : {std::size_t{0}, at.size() / 2, at.size() - 2}) {
      deadly.insert(at[i & ~std::size_t{1}]);
      deadly.insert(at[(i & ~std::size_t{1}) + 1]);
    }
  }
  for (unsigned n = 1; n <= passes; n += passes / 50) {
    deadly.insert(n);
  }
  for (const unsigned n : deadly) {
    setenv("CARVE_KILL_AT", std::to_string(n).c_str(), 1);
    pid_t pid = 0;
    const int end = in_child(work, &pid);
    kill(arbiter_pid, SIGCONT);
    // The helper's passes fall differently each time: towards the end a run may be over before its n-th.
    EXPECT_TRUE(end == 1000 + SIGKILL || end == 0) << "pass " << n << " ended with " << end;
    const auto begin = std::chrono::steady_clock::now();
    while (arbiter.announced_bytes("kill") != 0 &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(arbiter.announced_bytes("kill"), 0U) << "pass " << n;
    EXPECT_EQ(truth_of_process(pid).explicit_bytes, 0U) << "pass " << n;
  }
  unsetenv("CARVE_KILL_AT");
  // Who comes afterwards has all of it.
  EXPECT_EQ(in_child([] { return start_driver() == 0 && free_memory() == kRoom ? 0 : 1; }), 0);

  int status = 0;
  EXPECT_EQ(waitpid(neighbour, &status, WNOHANG), 0) << "the neighbour ended";
  kill(neighbour, SIGKILL);
  waitpid(neighbour, nullptr, 0);

  const std::set<std::string> sites = call_sites();
  std::set<std::string> unvisited;
  for (const std::string& site : sites) {
    if (passes_of_site.count(site) == 0) {
      unvisited.insert(site);
    }
  }
  std::printf("kill points: %zu deaths over %u passes at %zu of %zu call sites of the accessor\n", deadly.size(),
              passes, passes_of_site.size(), sites.size());
  for (const std::string& site : unvisited) {
    std::printf("  not visited: %s\n", site.c_str());
  }
  for (const auto& [site, at] : passes_of_site) {
    EXPECT_EQ(sites.count(site), 1U) << site << " stores to shared memory and is not counted";
  }
}

}  // namespace
}  // namespace carve::isolation
