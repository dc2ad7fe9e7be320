// A process of a slice dies at every store that it makes to shared memory. The memory that it announced and held is
// freed, and no slice waits for it. The library here is the build that dies on request
// (preload/testing/kill_points.cc).
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "abi/page.h"
#include "tests/isolation/arbiter_process.h"
#include "tests/isolation/driver_calls.h"
#include "tests/isolation/paths.h"
#include "tests/isolation/slice_fixture.h"
#include "tests/isolation/turns.h"

namespace carve::isolation {
namespace {

const bool kChosen = [] {
  library_under_test() = CARVE_KILL_LIBRARY;
  return true;
}();

constexpr std::uint64_t kRoom = 256 * kMiB;
constexpr char kList[] = "/run/carve/kill-list";
constexpr std::size_t kLong = 128 * kMiB;  // a memset of this size takes most of a millisecond

pid_t arbiter_pid = 0;

/// Ends work while another stream captures. No marker may be recorded then, so the work counts as estimated.
int work_during_a_capture(CUdeviceptr memory, CUstream stream) {
  CUstream other = nullptr;
  void* graph = nullptr;
  constexpr int kRelaxed = 2;
  if (call("cuStreamCreate", &other, 1U) != 0 ||
      call("cuMemsetD8Async", memory, static_cast<unsigned char>(1), kLong / 8, stream) != 0 ||
      call("cuStreamBeginCapture_v2", other, kRelaxed) != 0) {
    return 11;
  }
  for (int i = 0; i < 16; ++i) {
    if (call("cuMemsetD8Async", memory, static_cast<unsigned char>(1), kLong / 8, stream) != 0) return 12;
  }
  if (call("cuStreamEndCapture", other, &graph) != 0 || call("cuGraphDestroy", graph) != 0) return 13;
  return call("cuStreamSynchronize", stream) == 0 && call("cuStreamDestroy_v2", other) == 0 ? 0 : 14;
}

/// Small operations with pauses: one ends while the next is launched. The helper is delayed at the point where it
/// reports the card as idle, see CARVE_KILL_PAUSE below.
int work_with_pauses(CUdeviceptr memory, CUstream stream) {
  for (int i = 0; i < 30; ++i) {
    if (call("cuMemsetD8Async", memory, static_cast<unsigned char>(1), kMiB, stream) != 0) return 15;
    usleep(static_cast<useconds_t>(600 + 100 * (i % 15)));
  }
  return call("cuStreamSynchronize", stream) == 0 ? 0 : 16;
}

/// Two threads allocate in turns: the process asks for stock entries, and when the arbiter has set them aside, its
/// threads take entries, leave a stock there, exceed it, and a large request takes the stock away.
int work_of_two_threads() {
  constexpr std::size_t kBlocks = 20;
  CUdeviceptr blocks[2][kBlocks] = {};
  const auto pair = [](int) {
    CUdeviceptr block = 0;
    return call("cuMemAlloc_v2", &block, std::size_t{2 * kMiB}) == 0 && call("cuMemFree_v2", block) == 0 ? 0 : 17;
  };
  const auto many = [&](int thread) {
    for (CUdeviceptr& block : blocks[thread]) {
      if (call("cuMemAlloc_v2", &block, std::size_t{2 * kMiB}) != 0) return 18;
    }
    for (const CUdeviceptr block : blocks[thread]) {
      if (call("cuMemFree_v2", block) != 0) return 19;
    }
    return 0;
  };
  if (const int problem = in_turns(2, 40, pair); problem != 0) return problem;
  if (const int problem = in_turns(2, 1, many); problem != 0) return problem;
  CUdeviceptr all = 0;
  const std::size_t left = free_memory();
  if (call("cuMemAlloc_v2", &all, left) != 0 || call("cuMemFree_v2", all) != 0) return 20;
  return left == kRoom ? 0 : 21;
}

/// Another process of the slice, or a stray store, sets all announcements in the account pages of this process to 0.
int overwrite_announcements() {
  std::ifstream maps("/proc/self/maps");
  int pages = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (line.find(" rw-s ") == std::string::npos || std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2 ||
        to - from < sizeof(abi::AccountPage)) {
      continue;
    }
    auto* page = reinterpret_cast<abi::AccountPage*>(from);
    if (page->magic != abi::kAccountMagic) continue;
    ++pages;
    for (abi::AccountEntry& entry : page->entries) entry.used_bytes.raw = 0;
  }
  return pages;
}

/// After an overwrite, this process announces again what it holds, and nothing is lost: a free of a thread's stock, a
/// request that a thread's entry refuses because of what the others lack, and one in the process's own entry.
int work_on_overwritten_pages() {
  const auto freed_after = [](int) {
    CUdeviceptr block = 0;
    if (call("cuMemAlloc_v2", &block, std::size_t{2 * kMiB}) != 0) return 22;
    if (overwrite_announcements() == 0) return 23;
    return call("cuMemFree_v2", block) == 0 ? 0 : 24;
  };
  CUdeviceptr most = 0;
  CUdeviceptr more = 0;
  // The threads use no stock for 256 requests after one that needed it.
  for (int i = 0; i < 260; ++i) {
    if (call("cuMemAlloc_v2", &more, std::size_t{32 * kMiB}) != 0 || call("cuMemFree_v2", more) != 0) return 30;
  }
  if (const int problem = in_turns(2, 2, freed_after); problem != 0) return problem;
  if (call("cuMemAlloc_v2", &most, std::size_t{kRoom - kMiB}) != 0) return 25;
  overwrite_announcements();
  const auto in_vain = [](int) {
    CUdeviceptr block = 0;
    return call("cuMemAlloc_v2", &block, std::size_t{2 * kMiB}) != 0 ? 0 : 26;
  };
  if (const int problem = in_turns(2, 1, in_vain); problem != 0) return problem;
  overwrite_announcements();
  if (call("cuMemAlloc_v2", &more, std::size_t{32 * kMiB}) == 0 || call("cuMemFree_v2", most) != 0) return 27;
  // A request in the process's own entry finds out what this entry lacks.
  if (call("cuMemAlloc_v2", &more, std::size_t{32 * kMiB}) != 0 || call("cuMemFree_v2", more) != 0) return 28;
  return free_memory() == kRoom ? 0 : 29;
}

/// As the first process of the slice with several threads: waits until the arbiter has set stock entries aside.
int ask_for_stock() {
  if (start_driver() != 0) return 1;
  const int problem = work_of_two_threads();
  usleep(700'000);
  return problem;
}

/// Uses everything that touches shared memory: contexts, all paths to memory, refusals, launches, waits.
int work() {
  if (start_driver() != 0) return 1;
  // First: for some requests after a refusal no thread adds to its stock.
  if (const int problem = work_of_two_threads(); problem != 0) return problem;
  if (const int problem = work_on_overwritten_pages(); problem != 0) return problem;
  for (const Path& path : paths()) {
    Held held[2] = {};
    if (path.take(2 * kMiB, &held[0]) != 0 || path.take(kRoom, &held[1]) == 0) return 2;
    if (path.drop(held[0]) != 0) return 3;
  }
  CUdeviceptr small = 0;
  if (call("cuMemAlloc_v2", &small, std::size_t{100}) != 0 || call("cuMemFree_v2", small) != 0) return 4;
  CUstream stream = nullptr;
  if (call("cuStreamCreate", &stream, 0U) != 0) return 5;
  if (call("cuMemAlloc_v2", &small, kLong) != 0) return 6;
  for (int i = 0; i < 8; ++i) {
    if (call("cuMemsetD8Async", small, static_cast<unsigned char>(1), kLong, stream) != 0) return 7;
    if (i % 4 == 3 && call("cuStreamSynchronize", stream) != 0) return 8;
  }
  if (const int problem = work_during_a_capture(small, stream); problem != 0) return problem;
  if (const int problem = work_with_pauses(small, stream); problem != 0) return problem;
  // The same with an arbiter that does not respond.
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

/// file:line of every call of the accessor in the library's sources: all of preload/ and lease/ except their tests.
std::set<std::string> call_sites() {
  const std::regex store(
      R"((\.|->)(store_relaxed|store_release|store_seq_cst|fetch_add|fetch_sub|compare_exchange)\()");
  std::set<std::string> sites;
  for (const char* folder : {"preload", "lease"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(CARVE_SOURCE) + "/" + folder)) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name.find("_test.") != std::string::npos ||
          (entry.path().extension() != ".cc" && entry.path().extension() != ".h")) {
        continue;
      }
      std::ifstream file(entry.path());
      std::string line;
      for (int number = 1; std::getline(file, line); ++number) {
        if (std::regex_search(line, store)) {
          sites.insert(std::string(folder) + "/" + name + ":" + std::to_string(number));
        }
      }
    }
  }
  return sites;
}

/// file:line of the one line in `name` that contains `text`.
std::string site_of(const char* name, const char* text) {
  std::ifstream file(std::string(CARVE_SOURCE) + "/" + name);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find(text) != std::string::npos) {
      return std::string(name) + ":" + std::to_string(number);
    }
  }
  return "";
}

/// The number of times that one run of work() passes each call site; each store passes twice.
std::map<std::string, unsigned> passes_of_sites() {
  std::map<std::string, unsigned> passes;
  std::ifstream list(kList);
  for (std::string line; std::getline(list, line);) {
    const std::size_t at = std::min(line.find("preload/"), line.find("lease/"));
    ++passes[at == std::string::npos ? line : line.substr(at)];
  }
  return passes;
}

class KillPoints : public SliceTest {
 protected:
  /// Runs work() with a death at the n-th pass of the site. False when the run ends earlier. Asserts that nothing is
  /// left behind.
  bool die_at(ArbiterProcess& arbiter, const std::string& site, unsigned n) {
    setenv("CARVE_KILL_SITE", site.c_str(), 1);
    setenv("CARVE_KILL_AT", std::to_string(n).c_str(), 1);
    pid_t pid = 0;
    const int end = in_child(work, &pid);
    unsetenv("CARVE_KILL_AT");
    unsetenv("CARVE_KILL_SITE");
    kill(arbiter_pid, SIGCONT);
    EXPECT_TRUE(end == 1000 + SIGKILL || end == 0) << site << " pass " << n << " ended with " << end;
    const auto begin = std::chrono::steady_clock::now();
    while (arbiter.announced_bytes("kill") != 0 &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(arbiter.announced_bytes("kill"), 0U) << site << " pass " << n;
    EXPECT_EQ(truth_of_process(pid).explicit_bytes, 0U) << site << " pass " << n;
    return end == 1000 + SIGKILL;
  }
};

TEST_F(KillPoints, ADeathAtAnyStoreLeavesNothingBehind) {
  ArbiterProcess arbiter;
  ASSERT_EQ(arbiter.put("kill", card_of(105 * kMiB + kRoom, 50, abi::ShareClass::kBurst)), "");
  // A neighbour that never pauses, so that the slice has to wait for it.
  ASSERT_EQ(arbiter.put("neighbour", card_of(1024 * kMiB, 50, abi::ShareClass::kBurst)), "");
  const pid_t neighbour = spin_in("neighbour", {"--kernel-us", "500"});
  arbiter_pid = arbiter.pid();
  see_only("kill");

  const std::string idle = site_of("lease/gate.cc", "busy.store_seq_cst(0)");
  ASSERT_NE(idle, "");
  setenv("CARVE_KILL_PAUSE", idle.c_str(), 1);
  ASSERT_EQ(in_child(ask_for_stock), 0);
  setenv("CARVE_KILL_LIST", kList, 1);
  ASSERT_EQ(in_child(work), 0);
  unsetenv("CARVE_KILL_LIST");
  const std::map<std::string, unsigned> visited = passes_of_sites();
  const std::set<std::string> sites = call_sites();
  ASSERT_GT(sites.size(), 20U) << "the sources were moved";
  for (const auto& [site, passes] : visited) {
    EXPECT_EQ(sites.count(site), 1U) << site << " stores to shared memory and is not counted";
  }

  // Before and after the first and the last store of each call site; scripts/soak adds one in the middle.
  const bool soak = getenv("CARVE_SOAK") != nullptr;
  unsigned deaths = 0;
  std::set<std::string> deadly;
  for (const std::string& site : sites) {
    const auto found = visited.find(site);
    if (found == visited.end()) {
      ADD_FAILURE() << site << " stores to shared memory, but no run passes it";
      continue;
    }
    const unsigned stores = found->second / 2;
    std::set<unsigned> at;
    for (const unsigned store : {1U, soak ? stores / 2 : 1U, stores}) {
      at.insert(std::max(store, 1U));
    }
    bool died[2] = {};
    for (const unsigned store : at) {
      for (const unsigned side : {0U, 1U}) {
        // The time at which an end of work is seen varies: a run may end before its n-th pass.
        const bool here = die_at(arbiter, site, 2 * store - 1 + side);
        died[side] = died[side] || here;
        deaths += here ? 1 : 0;
      }
    }
    for (int again = 0; again < 3 && !(died[0] && died[1]); ++again) {
      const unsigned side = died[0] ? 1 : 0;
      died[side] = die_at(arbiter, site, 1 + side);
      deaths += died[side] ? 1 : 0;
    }
    EXPECT_TRUE(died[0] && died[1]) << "no process died before and after " << site;
    if (died[0] && died[1]) {
      deadly.insert(site);
    }
  }
  unsetenv("CARVE_KILL_PAUSE");
  // A later process has the whole slice.
  EXPECT_EQ(in_child([] { return start_driver() == 0 && free_memory() == kRoom ? 0 : 1; }), 0);

  int status = 0;
  EXPECT_EQ(waitpid(neighbour, &status, WNOHANG), 0) << "the neighbour ended";
  kill(neighbour, SIGKILL);
  waitpid(neighbour, nullptr, 0);
  std::printf("kill points: %u deaths; before and after the store at %zu of %zu call sites of the accessor\n", deaths,
              deadly.size(), sites.size());
  EXPECT_EQ(deadly.size(), sites.size());
}

}  // namespace
}  // namespace carve::isolation
