// The stock of threads (abi/page.h) on the simulated driver: no request that fits is refused because of it, and no
// request that does not fit is granted.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "lease/memory_account.h"
#include "tests/isolation/driver_calls.h"
#include "tests/isolation/slice_fixture.h"
#include "tests/isolation/turns.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;  // of this card model
constexpr std::uint64_t kRoom = 256 * kMiB;
constexpr std::size_t kBlock = 4 * kMiB;

/// Each of two threads allocates and frees a block, in turns, often enough to have a stock entry afterwards.
int alternate() {
  return in_turns(2, 40, [](int) {
    CUdeviceptr block = 0;
    return call("cuMemAlloc_v2", &block, kBlock) == 0 && call("cuMemFree_v2", block) == 0 ? 0 : 1;
  });
}

class StockTest : public SliceTest {
 protected:
  lease::MemoryAccount::Sums sums() {
    return lease::MemoryAccount::add_up_entries(slice_->grant(0), slice_->account(0), 0);
  }
  /// A process that gets stock entries from this slice and then runs `body`, which gets a pipe on which the test writes
  /// a byte when it may go on. The entries exist when this function returns.
  pid_t start(const std::function<int(int go)>& body) {
    EXPECT_EQ(pipe(asked_), 0);
    EXPECT_EQ(pipe(go_), 0);
    const pid_t pid = fork_quietly();
    if (pid == 0) {
      char byte = 0;
      if (start_driver() != 0 || alternate() != 0) _exit(1);
      if (write(asked_[1], "a", 1) != 1 || read(go_[0], &byte, 1) != 1) _exit(2);
      _exit(body(go_[0]));
    }
    char byte = 0;
    EXPECT_EQ(read(asked_[0], &byte, 1), 1);
    EXPECT_NE(slice_->account(0).stock_wanted.load_acquire(), 0U);
    slice_->provide_stock();
    go();
    return pid;
  }
  void go() { EXPECT_EQ(write(go_[1], "g", 1), 1); }
  int asked_[2];
  int go_[2];
};

TEST_F(StockTest, AStoppedProcessLeavesItsStockToOthers) {
  start_slice(2 * kContext + kRoom);
  const pid_t hoarder = start([](int) {
    if (alternate() != 0) return 3;
    kill(getpid(), SIGSTOP);
    return alternate() == 0 ? 0 : 4;  // afterwards, in a full slice: it fails
  });
  int status = 0;
  ASSERT_EQ(waitpid(hoarder, &status, WUNTRACED), hoarder);
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  EXPECT_EQ(sums().in_use, kContext);
  EXPECT_EQ(sums().charged, kContext + 2 * kBlock) << "a stock of each thread";
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    if (free_memory() != kRoom) return 2;
    CUdeviceptr most = 0;
    CUdeviceptr more = 0;
    if (call("cuMemAlloc_v2", &more, kRoom + 1) != CUDA_ERROR_OUT_OF_MEMORY) return 3;
    if (call("cuMemAlloc_v2", &most, kRoom) != 0) return 4;
    if (call("cuMemAlloc_v2", &more, std::size_t{1}) != CUDA_ERROR_OUT_OF_MEMORY) return 5;
    return free_memory() == 0 ? 0 : 6;
  }), 0);
  EXPECT_EQ(sums().charged, sums().in_use);
  // The static server does not free what the ended process announced: the slice stays full.
  kill(hoarder, SIGCONT);
  ASSERT_EQ(waitpid(hoarder, &status, 0), hoarder);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 4) << status;
}

TEST_F(StockTest, AStockThatATenantWritesGrantsNothing) {
  start_slice(kContext + kRoom);
  const pid_t process = start([](int go) {
    CUdeviceptr held[2] = {};
    // 128 MiB through the stock entries of two threads.
    const int taken = in_turns(2, 1, [&](int thread) {
      for (int i = 0; i < 8; ++i) {
        if (call("cuMemAlloc_v2", &held[thread], 8 * kMiB) != 0) return 3;
      }
      return 0;
    });
    char byte = 0;
    if (taken != 0 || read(go, &byte, 1) != 1) return 4;
    std::uint64_t more = 0;
    in_turns(2, 40, [&](int) {
      CUdeviceptr block = 0;
      more += call("cuMemAlloc_v2", &block, 8 * kMiB) == 0 ? 8 * kMiB : 0;
      return 0;
    });
    CUdeviceptr block = 0;
    more += call("cuMemAlloc_v2", &block, kRoom / 2) == 0 ? kRoom / 2 : 0;
    return more <= kRoom / 2 && truth_of_process(getpid()).explicit_bytes <= kRoom ? 0 : 5;
  });
  ASSERT_TRUE([&] {
    for (int i = 0; i < 5000 && sums().in_use < kContext + kRoom / 2; ++i) usleep(1000);
    return sums().in_use == kContext + kRoom / 2;
  }());
  const std::uint32_t first = slice_->grant(0).stock_first.load_relaxed();
  int overwritten = 0;
  for (std::uint32_t i = first; i < first + abi::kStockEntries; ++i) {
    abi::AccountEntry& entry = slice_->account(0).entries[i];
    if (entry.instance.load_relaxed() == 0) continue;
    entry.used_bytes.store_seq_cst(16);
    ++overwritten;
  }
  EXPECT_EQ(overwritten, 2);
  go();
  int status = 0;
  ASSERT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(StockTest, ManyThreadsOfManyProcessesNeverHoldMoreThanTheLimit) {
  constexpr int kProcesses = 4;
  ControlGroup group("carve-stock");
  ASSERT_TRUE(group.usable()) << "no cgroup v2 hierarchy to write to";
  start_slice(kProcesses * kContext + kRoom);
  ASSERT_EQ(pipe(asked_), 0);
  ASSERT_EQ(pipe(go_), 0);
  std::vector<pid_t> pids;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t pid = fork_quietly();
    if (pid == 0) {
      group.enter();
      // All contexts first: the memory that is left for explicit allocations is then constant.
      char byte = 0;
      if (start_driver() != 0 || write(asked_[1], "r", 1) != 1 || read(go_[0], &byte, 1) != 1) _exit(1);
      alternate();  // other processes may have all the memory by now
      CUcontext context = nullptr;
      call("cuCtxGetCurrent", &context);
      std::atomic<int> wrong = 0;
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
          std::mt19937 random(t + 10 * static_cast<unsigned>(i));
          std::vector<CUdeviceptr> held;
          call("cuCtxSetCurrent", context);
          for (int round = 0; round < 4000; ++round) {
            const std::size_t bytes = random() % 16 == 0 ? 64 * kMiB : (1 + random() % 12) * kMiB;
            CUdeviceptr block = 0;
            const CUresult result =
                held.size() < 6 && random() % 2 == 0 ? call("cuMemAlloc_v2", &block, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
            if (result == 0) {
              held.push_back(block);
            } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
              wrong = 2;
            } else if (!held.empty()) {
              if (call("cuMemFree_v2", held.back()) != 0) wrong = 3;
              held.pop_back();
            }
          }
          for (const CUdeviceptr block : held) call("cuMemFree_v2", block);
        });
      }
      for (std::thread& thread : threads) thread.join();
      _exit(wrong);
    }
    pids.push_back(pid);
  }
  for (int i = 0; i < kProcesses; ++i) {
    char byte = 0;
    ASSERT_EQ(read(asked_[0], &byte, 1), 1);
  }
  for (int i = 0; i < kProcesses; ++i) go();
  for (int i = 0; i < 10'000 && slice_->account(0).stock_wanted.load_acquire() == 0; ++i) usleep(1000);
  slice_->provide_stock();
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_LE(truth_of_group(group.path()).explicit_high, kRoom);
  EXPECT_EQ(sums().in_use, kProcesses * kContext) << "all was freed";
  // The stock of ended processes is available.
  lease::MemoryAccount account(slice_->grant(0), slice_->account(0), slice_->account(0).entries[0]);
  account.collect_stock();
  EXPECT_TRUE(account.reserve(kRoom));
  EXPECT_FALSE(account.reserve(1));
}

}  // namespace
}  // namespace carve::isolation
