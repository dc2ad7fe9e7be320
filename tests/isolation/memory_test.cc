// Memory of a slice on the simulated driver: no path exceeds the limit, and every path reaches it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "tests/isolation/driver_calls.h"
#include "tests/isolation/paths.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;  // of this card model
constexpr std::uint64_t kRoom = 256 * kMiB;     // for explicit allocations

TEST_F(SliceTest, EveryPathEndsAtTheLimitAndReachesIt) {
  start_slice(kContext + kRoom);
  for (const Path& path : paths()) {
    pid_t pid = 0;
    EXPECT_EQ(in_child([&] {
      if (start_driver() != 0) return 1;
      if (free_memory() != kRoom) return 2;
      Held held[5] = {};
      for (int i = 0; i < 3; ++i) {
        if (path.take(64 * kMiB, &held[i]) != 0) return 3;
      }
      if (path.take(66 * kMiB, &held[3]) != CUDA_ERROR_OUT_OF_MEMORY) return 4;
      if (path.take(64 * kMiB, &held[3]) != 0) return 5;  // exactly the remainder
      if (free_memory() != 0) return 6;
      if (path.take(2 * kMiB, &held[4]) != CUDA_ERROR_OUT_OF_MEMORY) return 7;
      for (int round = 0; round < 20; ++round) {  // again with the freed memory
        if (path.drop(held[round % 4]) != 0) return 8;
        if (path.take(64 * kMiB, &held[round % 4]) != 0) return 9;
        if (path.take(2 * kMiB, &held[4]) != CUDA_ERROR_OUT_OF_MEMORY) return 10;
      }
      const Truth truth = truth_of_process(getpid());
      if (truth.explicit_bytes != kRoom || truth.explicit_high > kRoom) {
        std::fprintf(stderr, "holds %llu, held %llu\n", static_cast<unsigned long long>(truth.explicit_bytes),
                     static_cast<unsigned long long>(truth.explicit_high));
        return 11;
      }
      for (int i = 0; i < 4; ++i) {
        if (path.drop(held[i]) != 0) return 12;
      }
      if (truth_of_process(getpid()).explicit_bytes != 0) return 13;
      return free_memory() == kRoom ? 0 : 14;
    }, &pid), 0) << path.name;
    EXPECT_LE(truth_of_process(pid).explicit_high, kRoom) << path.name;
    // The static server does not free the account entries of dead processes: only the context stays announced.
    EXPECT_EQ(announced() % kContext, 0U) << path.name;
    EXPECT_EQ(slice_->account(0).refused_requests.load_acquire(), 22U) << path.name;
    EXPECT_GE(slice_->account(0).refused_bytes.load_acquire(), 108 * kMiB) << path.name;
    slice_.reset();
    start_slice(kContext + kRoom);
  }
}

TEST_F(SliceTest, AContextThatDoesNotFitIsRefused) {
  start_slice(kContext - 1);
  EXPECT_EQ(in_child([] { return start_driver() == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1; }), 0);
  EXPECT_EQ(truth_of_group("").context_bytes, 0U);
  slice_.reset();
  start_slice(2 * kContext + kMiB);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    CUcontext second = nullptr;
    CUcontext third = nullptr;
    if (call("cuCtxCreate_v2", &second, 0U, CUdevice{0}) != 0) return 2;
    if (call("cuCtxCreate_v2", &third, 0U, CUdevice{0}) != CUDA_ERROR_OUT_OF_MEMORY) return 3;
    if (call("cuCtxDestroy_v2", second) != 0) return 4;
    return call("cuCtxCreate_v2", &third, 0U, CUdevice{0}) == 0 ? 0 : 5;
  }), 0);
}

TEST_F(SliceTest, AContextOfEveryVersionIsChargedAndFreed) {
  start_slice(2 * kContext + kMiB);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    CUcontext own = nullptr;
    CUcontext one_more = nullptr;
    void* const none = nullptr;
    const auto made = [&](int version, CUcontext* out) {
      switch (version) {
        case 1: return call("cuCtxCreate", out, 0U, CUdevice{0});
        case 2: return call("cuCtxCreate_v2", out, 0U, CUdevice{0});
        case 3: return call("cuCtxCreate_v3", out, none, 0, 0U, CUdevice{0});
        default: return call("cuCtxCreate_v4", out, none, 0U, CUdevice{0});
      }
    };
    for (int version = 1; version <= 4; ++version) {
      if (made(version, &own) != 0) return 10 * version;
      if (made(version, &one_more) != CUDA_ERROR_OUT_OF_MEMORY) return 10 * version + 1;
      if (truth_of_process(getpid()).context_bytes != 2 * kContext) return 10 * version + 2;
      const CUresult gone = version == 1   ? call("cuCtxDestroy", own)
                            : version == 2 ? call("cuCtxDetach", own)
                                           : call("cuCtxDestroy_v2", own);
      if (gone != 0 || truth_of_process(getpid()).context_bytes != kContext) return 10 * version + 3;
    }
    // The primary context also ends with a reset, in both forms, and with the older name for its last user.
    for (const char* reset : {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"}) {
      if (call(reset, CUdevice{0}) != 0 || truth_of_process(getpid()).context_bytes != 0) return 51;
      if (start_driver() != 0 || made(2, &own) != 0) return 52;
      if (made(2, &one_more) != CUDA_ERROR_OUT_OF_MEMORY || call("cuCtxDestroy_v2", own) != 0) return 53;
    }
    if (call("cuDevicePrimaryCtxRelease", CUdevice{0}) != 0) return 54;
    if (truth_of_process(getpid()).context_bytes != 0) return 55;
    if (made(2, &own) != 0 || made(2, &one_more) != 0) return 56;
    return made(2, &one_more) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 57;
  }), 0);
}

// Freed memory that a pool keeps is charged until it is trimmed or the pool is destroyed. Memory in use outlives its
// pool.
TEST_F(SliceTest, APoolsReserveIsChargedUntilItIsFreed) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const auto pool_with = [](CUdeviceptr* address) {
      CUmemPoolProps properties{};
      properties.alloc_type = 1;
      properties.location = {1, 0};
      CUmemoryPool pool = nullptr;
      std::uint64_t keep_all = ~0ULL;
      if (call("cuMemPoolCreate", &pool, &properties) != 0) return pool;
      call("cuMemPoolSetAttribute", pool, 4, &keep_all);  // the release threshold
      const CUresult result = call("cuMemAllocFromPoolAsync", address, std::size_t{64 * kMiB}, pool, CUstream{});
      return result == 0 && call("cuStreamSynchronize", CUstream{}) == 0 ? pool : nullptr;
    };
    const auto freed = [](CUdeviceptr address) {
      return call("cuMemFreeAsync", address, CUstream{}) == 0 && call("cuStreamSynchronize", CUstream{}) == 0;
    };
    const auto holds = [] { return truth_of_process(getpid()).explicit_bytes; };
    CUdeviceptr address = 0;
    CUmemoryPool pool = pool_with(&address);
    if (pool == nullptr || holds() != 64 * kMiB) return 2;
    if (!freed(address) || holds() != 64 * kMiB || free_memory() != kRoom - 64 * kMiB) return 3;
    if (call("cuMemPoolTrimTo", pool, std::size_t{0}) != 0 || holds() != 0 || free_memory() != kRoom) return 4;
    if (call("cuMemPoolDestroy", pool) != 0) return 5;
    pool = pool_with(&address);  // destroyed with a reserve
    if (pool == nullptr || !freed(address) || holds() != 64 * kMiB) return 6;
    if (call("cuMemPoolDestroy", pool) != 0 || holds() != 0 || free_memory() != kRoom) return 7;
    pool = pool_with(&address);  // destroyed with memory in use
    if (pool == nullptr || call("cuMemPoolDestroy", pool) != 0) return 8;
    if (holds() != 64 * kMiB || free_memory() != kRoom - 64 * kMiB) return 9;
    return freed(address) && holds() == 0 && free_memory() == kRoom ? 0 : 10;
  }), 0);
}

// A driver without 32-bit addresses refuses the oldest function. Then nothing is held and nothing is announced.
TEST_F(SliceTest, ARequestThatTheDriverRefusesIsNotCharged) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    CUdeviceptr_v1 address = 0;
    for (int i = 0; i < 100; ++i) {
      if (call("cuMemAlloc", &address, unsigned{64 * kMiB}) != 801) return 2;
    }
    return free_memory() == kRoom && truth_of_process(getpid()).explicit_high == 0 ? 0 : 3;
  }), 0);
}

TEST_F(SliceTest, MemoryIsFreedWithItsContext) {
  start_slice(3 * kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const std::size_t before = free_memory();
    CUcontext own = nullptr;
    if (call("cuCtxCreate_v2", &own, 0U, CUdevice{0}) != 0) return 2;
    CUdeviceptr address = 0;
    for (int i = 0; i < 10; ++i) {
      if (call("cuMemAlloc_v2", &address, std::size_t{10 * kMiB}) != 0) return 3;
      if (call("cuMemAlloc_v2", &address, std::size_t{1000}) != 0) return 4;
    }
    if (call("cuCtxDestroy_v2", own) != 0) return 5;
    CUcontext primary = nullptr;
    if (call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0}) != 0) return 6;
    call("cuCtxSetCurrent", primary);
    if (free_memory() != before) return 7;
    // The primary context ends with its last user.
    if (call("cuMemAlloc_v2", &address, std::size_t{10 * kMiB}) != 0) return 8;
    call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
    call("cuDevicePrimaryCtxRelease_v2", CUdevice{0});
    return 0;
  }), 0);
  EXPECT_EQ(announced(), 0U);
}

TEST_F(SliceTest, InvalidArgumentsGetTheDriversOwnErrors) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([] {
    CUdeviceptr address = 0;
    if (call("cuMemAlloc_v2", &address, std::size_t{1}) != 3) return 1;  // not initialised
    if (call("cuInit", 0U) != 0) return 2;
    if (call("cuMemAlloc_v2", &address, std::size_t{1}) != 201) return 3;  // no context
    CUcontext context = nullptr;
    if (call("cuDevicePrimaryCtxRetain", &context, CUdevice{7}) != 101) return 4;
    if (start_driver() != 0) return 5;
    if (call("cuMemAlloc_v2", &address, std::size_t{0}) != 1) return 6;
    if (call("cuMemAlloc_v2", &address, ~std::size_t{0}) != CUDA_ERROR_OUT_OF_MEMORY) return 7;
    if (call("cuMemFree_v2", CUdeviceptr{0x1234}) != 1) return 8;
    std::size_t wide = 0;
    unsigned narrow = 0;
    auto* const nowhere = static_cast<std::size_t*>(nullptr);
    if (call("cuMemGetInfo_v2", nowhere, &wide) != 1 || call("cuMemGetInfo_v2", &wide, nowhere) != 1) return 9;
    if (call("cuMemGetInfo", static_cast<unsigned*>(nullptr), &narrow) != 1) return 10;
    if (call("cuDeviceTotalMem", static_cast<unsigned*>(nullptr), CUdevice{0}) != 1) return 11;
    if (call("cuDeviceTotalMem_v2", nowhere, CUdevice{0}) != 1) return 12;
    return free_memory() == kRoom ? 0 : 13;
  }), 0);
}

struct Tally {
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;
};

/// Allocates and frees at random, on all paths; some requests are refused.
class Churn {
 public:
  Churn(unsigned seed, std::uint64_t biggest) : random_(seed), biggest_(biggest) {}

  /// 0, or a code for the failure.
  int step(Tally* tally) {
    if (!live_.empty() && random_() % 5 >= 3) {
      return drop(random_() % live_.size());
    }
    const Path& path = paths()[random_() % paths().size()];
    Held held{};
    const CUresult result = path.take((1 + random_() % (biggest_ / (2 * kMiB))) * 2 * kMiB, &held);
    if (result == 0) {
      live_.push_back({&path, held});
      ++tally->granted;
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      ++tally->refused;
    } else {
      std::fprintf(stderr, "%s: %d\n", path.name, result);
      return 1;
    }
    return 0;
  }

  int drop_all() {
    int failed = 0;
    while (!live_.empty()) {
      failed |= drop(live_.size() - 1);
    }
    return failed;
  }

 private:
  struct Live {
    const Path* path;
    Held held;
  };

  int drop(std::size_t which) {
    const CUresult result = live_[which].path->drop(live_[which].held);
    if (result != 0) {
      std::fprintf(stderr, "drop, %s: %d\n", live_[which].path->name, result);
    }
    live_[which] = live_.back();
    live_.pop_back();
    return result == 0 ? 0 : 2;
  }

  std::mt19937_64 random_;
  std::uint64_t biggest_;
  std::vector<Live> live_;
};

TEST_F(SliceTest, AnnouncedMemoryFollowsHeldMemory) {
  start_slice(kContext + kRoom);
  for (const unsigned seed : {1U, 2U, 3U}) {
    EXPECT_EQ(in_child([&] {
      if (start_driver() != 0) return 1;
      Churn churn(seed, 32 * kMiB);
      Tally tally;
      for (int round = 0; round < 40; ++round) {
        for (int i = 0; i < 50; ++i) {
          if (const int wrong = churn.step(&tally); wrong != 0) return 1 + wrong;
        }
        const std::uint64_t holds = truth_of_process(getpid()).explicit_bytes;
        const std::uint64_t free_bytes = free_memory();
        if (holds > kRoom || holds + free_bytes != kRoom) {
          std::fprintf(stderr, "seed %u round %d: holds %.1f MiB, reported %.1f free\n", seed, round,
                       static_cast<double>(holds) / kMiB, static_cast<double>(free_bytes) / kMiB);
          return 10;
        }
      }
      if (tally.refused * 10 < tally.granted || churn.drop_all() != 0) return 11;
      return free_memory() == kRoom && truth_of_process(getpid()).explicit_bytes == 0 ? 0 : 12;
    }), 0) << "seed " << seed;
    slice_.reset();
    start_slice(kContext + kRoom);
  }
}

/// One of many competing processes; runs until it is killed.
[[noreturn]] void race(unsigned seed, std::uint64_t biggest, int ready, int go, Tally* tally) {
  char byte = 'r';
  // All contexts first: the memory that is left for explicit allocations is then constant.
  if (start_driver() != 0 || write(ready, &byte, 1) != 1 || read(go, &byte, 1) != 0) {
    _exit(1);
  }
  Churn churn(seed, biggest);
  for (;;) {
    const std::uint64_t refused = tally->refused;
    if (const int wrong = churn.step(tally); wrong != 0) {
      _exit(1 + wrong);
    }
    if (tally->refused != refused) {
      // A refused process waits a little. With 64 processes always runnable on two cores, most of them would be between
      // the driver's answer and the release, and far more would be announced than held.
      usleep(static_cast<useconds_t>(seed * 37 % 2000));
    }
  }
}

TEST_F(SliceTest, ConcurrentProcessesNeverHoldMoreThanTheLimit) {
  constexpr int kProcesses = 64;
  constexpr std::uint64_t kBiggest = 32 * kMiB;
  constexpr std::uint64_t kShared = 1024 * kMiB;
  ControlGroup group("carve-race");
  ASSERT_TRUE(group.usable()) << "no cgroup v2 hierarchy to write to";
  start_slice(kProcesses * kContext + kShared);
  auto* tallies = static_cast<Tally*>(mmap(nullptr, kProcesses * sizeof(Tally), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  int ready[2];
  int go[2];
  ASSERT_EQ(pipe(ready) + pipe(go), 0);
  std::vector<pid_t> pids;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t pid = fork_quietly();
    if (pid == 0) {
      close(go[1]);
      group.enter();
      race(static_cast<unsigned>(i) + 1, kBiggest, ready[1], go[0], &tallies[i]);
    }
    pids.push_back(pid);
  }
  for (int i = 0; i < kProcesses; ++i) {
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
  }
  close(go[1]);
  std::this_thread::sleep_for(std::chrono::seconds(10));
  for (const pid_t pid : pids) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, WNOHANG), 0) << "a process ended by itself: " << status;
  }
  const Truth truth = truth_of_group(group.path());
  for (const pid_t pid : pids) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  Tally all;
  for (int i = 0; i < kProcesses; ++i) {
    all.granted += tallies[i].granted;
    all.refused += tallies[i].refused;
  }
  std::printf("64 processes, 10 s: %llu requests granted, %llu refused; at most %.1f of %.1f MiB at any instant\n",
              static_cast<unsigned long long>(all.granted), static_cast<unsigned long long>(all.refused),
              static_cast<double>(truth.explicit_high) / kMiB, static_cast<double>(kShared) / kMiB);
  EXPECT_GE(all.refused * 10, (all.granted + all.refused) * 3);
  EXPECT_LE(truth.explicit_high, kShared);
  EXPECT_GE(truth.explicit_high, kShared - kBiggest);
  const Truth after = truth_of_group(group.path());
  EXPECT_EQ(after.explicit_bytes, 0U);
}

}  // namespace
}  // namespace carve::isolation
