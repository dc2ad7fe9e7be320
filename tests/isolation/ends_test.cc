// How memory ends, and events that look like an end: captures that begin and end during allocations, contexts with
// several users, pools with pending frees, memory of other processes, children of dead parents.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/isolation/driver_calls.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {
namespace {

constexpr std::uint64_t kContext = 105 * kMiB;
constexpr std::uint64_t kRoom = 256 * kMiB;

CUresult make_current() {
  CUcontext context = nullptr;
  const CUresult result = call("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
  return result != 0 ? result : call("cuCtxSetCurrent", context);
}

// One thread begins and ends captures on a stream while another one allocates in it. A request becomes either a node or
// memory. The driver's account never exceeds the limit.
TEST_F(SliceTest, CapturesDuringAllocationsLeaveNothingUncharged) {
  start_slice(kContext + kRoom);
  pid_t pid = 0;
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    CUstream stream = nullptr;
    if (call("cuStreamCreate", &stream, 1U) != 0) return 2;
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> rounds{0};
    std::thread captures([&] {
      make_current();
      CUgraph graph = nullptr;
      int status = 0;
      while (!stop.load()) {
        if (call("cuStreamBeginCapture_v2", stream, 2) != 0) continue;
        const std::uint64_t length = rounds.fetch_add(1) % 64;
        for (std::uint64_t i = 0; i < length; ++i) call("cuStreamIsCapturing", stream, &status);
        if (call("cuStreamEndCapture", stream, &graph) == 0) call("cuGraphDestroy", graph);
      }
    });
    // Nothing is freed: after 64 successful requests only nodes can be granted.
    int refused = 0;
    int granted = 0;
    const std::uint64_t end = driver_now_ns() + 2'000'000'000;
    while (driver_now_ns() < end && granted < 300'000) {
      CUdeviceptr address = 0;
      const CUresult result = call("cuMemAllocAsync", &address, std::size_t{4 * kMiB}, stream);
      refused += result == CUDA_ERROR_OUT_OF_MEMORY ? 1 : 0;
      granted += result == 0 ? 1 : 0;
    }
    stop.store(true);
    captures.join();
    std::printf("%d granted (including nodes), %d refused\n", granted, refused);
    std::fflush(stdout);
    return refused != 0 ? 0 : 3;
  }, &pid), 0);
  const Truth truth = truth_of_process(pid);
  EXPECT_LE(truth.explicit_high, kRoom);
  EXPECT_GE(truth.explicit_high, kRoom - 4 * kMiB) << "a request that is no node gets memory";
}

TEST_F(SliceTest, AContextLivesUntilItsLastUserHasDetached) {
  start_slice(2 * kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const std::size_t before = free_memory();
    CUcontext own = nullptr;
    CUcontext again = nullptr;
    CUdeviceptr address = 0;
    if (call("cuCtxCreate_v2", &own, 0U, CUdevice{0}) != 0) return 2;
    if (call("cuMemAlloc_v2", &address, std::size_t{64 * kMiB}) != 0) return 3;
    if (call("cuCtxAttach", &again, 0U) != 0 || again != own) return 4;
    if (call("cuCtxDetach", own) != 0) return 5;
    const Truth truth = truth_of_process(getpid());
    if (truth.context_bytes != 2 * kContext || truth.explicit_bytes != 64 * kMiB) return 6;
    if (free_memory() != before - kContext - 64 * kMiB) return 7;
    if (call("cuCtxDetach", own) != 0 || truth_of_process(getpid()).context_bytes != kContext) return 8;
    return make_current() == 0 && free_memory() == before ? 0 : 9;
  }), 0);
}

// The context has its own memory and memory of a pool, and another thread has it current and works in it.
TEST_F(SliceTest, AContextDestroyedUnderAnotherThreadLeavesNothingCharged) {
  start_slice(3 * kContext + 4 * kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const std::size_t before = free_memory();
    for (int round = 0; round < 30; ++round) {
      CUcontext own = nullptr;
      if (call("cuCtxCreate_v2", &own, 0U, CUdevice{0}) != 0) return 2;
      CUdeviceptr address = 0;
      for (int i = 0; i < 8; ++i) {
        if (call("cuMemAlloc_v2", &address, std::size_t{16 * kMiB}) != 0) return 3;
        if (call("cuMemAllocAsync", &address, std::size_t{16 * kMiB}, CUstream{}) != 0) return 4;
      }
      std::atomic<int> works{0};
      std::thread other([&] {
        call("cuCtxSetCurrent", own);
        std::vector<CUdeviceptr> held;
        for (CUdeviceptr one = 0; call("cuMemAlloc_v2", &one, std::size_t{2 * kMiB}) == 0;) {
          held.push_back(one);
          if (held.size() == 16) {
            for (const CUdeviceptr each : held) call("cuMemFree_v2", each);
            held.clear();
          }
          works.fetch_add(1);
        }
      });
      while (works.load() < 20 + round) std::this_thread::yield();
      if (call("cuCtxDestroy_v2", own) != 0) return 5;
      other.join();
      if (make_current() != 0) return 6;
      const std::uint64_t holds = truth_of_process(getpid()).explicit_bytes;
      if (free_memory() != before || holds != 0) {
        std::fprintf(stderr, "round %d: holds %llu, free %zu of %zu\n", round, static_cast<unsigned long long>(holds),
                     free_memory(), before);
        return 7;
      }
    }
    return 0;
  }), 0);
}

// Memory of cuMemAlloc is freed in stream order while another thread allocates. The other thread may get the same
// address before the first thread has checked whether it is free. The other thread's memory stays charged.
TEST_F(SliceTest, AnAddressFreedInStreamOrderAndHandedOutAgainIsChargedToItsNewOwner) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const std::size_t before = free_memory();
    std::atomic<bool> stop{false};
    std::thread other([&] {
      make_current();
      CUdeviceptr address = 0;
      while (!stop.load()) {
        if (call("cuMemAlloc_v2", &address, std::size_t{2 * kMiB}) == 0) call("cuMemFreeAsync", address, CUstream{});
      }
    });
    int wrong = 0;
    for (int round = 0; round < 300 && wrong == 0; ++round) {
      std::vector<CUdeviceptr> held(20);
      for (CUdeviceptr& one : held) {
        if (call("cuMemAlloc_v2", &one, std::size_t{2 * kMiB}) != 0) wrong = 2;
      }
      if (round % 10 == 0 && free_memory() > before - 40 * kMiB) wrong = 3;
      for (const CUdeviceptr one : held) call("cuMemFree_v2", one);
    }
    stop.store(true);
    other.join();
    return wrong != 0 ? wrong : free_memory() == before ? 0 : 4;
  }), 0);
}

/// Holds a stream until it is released.
class Held {
 public:
  Held() {
    (void)!pipe(ends_);
    call("cuStreamCreate", &stream_, 1U);
    call("cuLaunchHostFunc", stream_, &Held::wait, static_cast<void*>(this));
  }
  ~Held() { let_go(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  [[nodiscard]] CUstream stream() const { return stream_; }
  CUresult let_go() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
    return call("cuStreamSynchronize", stream_);
  }

 private:
  static void wait(void* self) {
    char byte = 0;
    (void)!read(static_cast<Held*>(self)->ends_[0], &byte, 1);
  }
  int ends_[2] = {-1, -1};
  CUstream stream_ = nullptr;
};

TEST_F(SliceTest, APoolDestroyedWithPendingFreesIsChargedUntilTheyAreDone) {
  start_slice(kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const auto holds = [] { return truth_of_process(getpid()).explicit_bytes; };
    for (const bool with_memory_out : {false, true}) {
      CUmemPoolProps properties{};
      properties.alloc_type = 1;
      properties.location = {1, 0};
      CUmemoryPool pool = nullptr;
      CUdeviceptr address = 0;
      CUdeviceptr kept = 0;
      if (call("cuMemPoolCreate", &pool, &properties) != 0) return 2;
      if (call("cuMemAllocFromPoolAsync", &address, std::size_t{128 * kMiB}, pool, CUstream{}) != 0) return 3;
      if (with_memory_out &&
          call("cuMemAllocFromPoolAsync", &kept, std::size_t{32 * kMiB}, pool, CUstream{}) != 0) {
        return 4;
      }
      const std::uint64_t out = with_memory_out ? 32 * kMiB : 0;
      if (call("cuDeviceSetMemPool", CUdevice{0}, pool) != 0) return 5;
      Held held;
      if (call("cuMemFreeAsync", address, held.stream()) != 0 || holds() != 128 * kMiB + out) return 6;
      if (free_memory() != kRoom - 128 * kMiB - out) return 7;
      if (call("cuMemPoolDestroy", pool) != 0 || holds() != 128 * kMiB + out) return 8;
      if (free_memory() != kRoom - 128 * kMiB - out) return 9;
      if (call("cuMemAlloc_v2", &address, std::size_t{130 * kMiB}) != CUDA_ERROR_OUT_OF_MEMORY) return 10;
      // The program sees the pool as destroyed, as with a bare driver.
      if (call("cuMemPoolDestroy", pool) != CUDA_ERROR_INVALID_VALUE) return 11;
      if (call("cuMemAllocFromPoolAsync", &address, std::size_t{kMiB}, pool, CUstream{}) != CUDA_ERROR_INVALID_VALUE) {
        return 12;
      }
      CUmemoryPool current = nullptr;
      CUmemoryPool usual = nullptr;
      if (call("cuDeviceGetMemPool", &current, CUdevice{0}) != 0) return 13;
      if (call("cuDeviceGetDefaultMemPool", &usual, CUdevice{0}) != 0 || current != usual) return 14;
      if (held.let_go() != 0) return 15;
      if (free_memory() != kRoom - out || holds() != out) return 16;
      if (with_memory_out && (call("cuMemFreeAsync", kept, CUstream{}) != 0 ||
                              call("cuStreamSynchronize", CUstream{}) != 0 || holds() != 0 ||
                              free_memory() != kRoom)) {
        return 17;
      }
      if (call("cuMemAlloc_v2", &address, std::size_t{kRoom}) != 0) return 18;
      if (call("cuMemFree_v2", address) != 0) return 19;
    }
    return 0;
  }), 0);
}

constexpr CUmemAllocationProp shareable() { return {1, 1, {1, 0}, nullptr, {}}; }

// Imported memory belongs to the importer as well: it stays when the exporter dies. It is charged in full, mapped or
// not.
TEST_F(SliceTest, AnImportedHandleIsChargedInFull) {
  start_slice(3 * kContext + 2 * kRoom);
  int numbers[2];
  ASSERT_EQ(pipe(numbers), 0);
  const pid_t exporter = fork_quietly();
  if (exporter == 0) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp where = shareable();
    int shared = -1;
    const bool made = start_driver() == 0 &&
                      call("cuMemCreate", &handle, std::size_t{192 * kMiB}, &where, 0ULL) == 0 &&
                      call("cuMemExportToShareableHandle", static_cast<void*>(&shared), handle, 1, 0ULL) == 0;
    if (!made || write(numbers[1], &shared, sizeof shared) != sizeof shared) _exit(1);
    pause();
    _exit(0);
  }
  close(numbers[1]);
  int theirs = -1;
  ASSERT_EQ(read(numbers[0], &theirs, sizeof theirs), static_cast<ssize_t>(sizeof theirs));
  const std::string path = "/proc/" + std::to_string(exporter) + "/fd/" + std::to_string(theirs);
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    const int shared = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const std::size_t before = free_memory();
    CUmemGenericAllocationHandle handle = 0;
    if (call("cuMemImportFromShareableHandle", &handle, reinterpret_cast<void*>(std::intptr_t{shared}), 1) != 0) {
      return 2;
    }
    if (free_memory() != before - 192 * kMiB) return 3;
    CUdeviceptr base = 0;
    const std::size_t whole = 192 * kMiB;
    if (call("cuMemAddressReserve", &base, whole, std::size_t{0}, CUdeviceptr{0}, 0ULL) != 0) return 4;
    if (call("cuMemMap", base, std::size_t{2 * kMiB}, std::size_t{0}, handle, 0ULL) != 0) return 5;
    if (free_memory() != before - 192 * kMiB) return 6;
    // The exporter dies: only this process holds the memory now, and it stays charged.
    kill(exporter, SIGKILL);
    char byte = 0;
    if (read(numbers[0], &byte, 1) != 0) return 12;  // its end of the pipe is closed
    if (truth_of_process(getpid()).explicit_bytes != 192 * kMiB) return 7;
    if (call("cuMemMap", base + 2 * kMiB, std::size_t{190 * kMiB}, std::size_t{2 * kMiB}, handle, 0ULL) != 0) return 8;
    if (call("cuMemRelease", handle) != 0 || free_memory() != before - 192 * kMiB) return 9;
    if (call("cuMemUnmap", base, std::size_t{192 * kMiB}) != 0) return 10;
    return free_memory() == before && truth_of_process(getpid()).explicit_bytes == 0 ? 0 : 11;
  }), 0);
  kill(exporter, SIGKILL);
  waitpid(exporter, nullptr, 0);
  close(numbers[0]);
}

TEST_F(SliceTest, AnImportedHandleThatDoesNotFitIsRefused) {
  start_slice(2 * kContext + kRoom);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    CUmemGenericAllocationHandle handle = 0;
    CUmemGenericAllocationHandle again = 0;
    const CUmemAllocationProp where = shareable();
    int shared = -1;
    // The limit minus the context and the memory leaves 105 MiB.
    if (call("cuMemCreate", &handle, std::size_t{kRoom}, &where, 0ULL) != 0) return 2;
    if (call("cuMemExportToShareableHandle", static_cast<void*>(&shared), handle, 1, 0ULL) != 0) return 3;
    const std::size_t before = free_memory();
    if (call("cuMemImportFromShareableHandle", &again, reinterpret_cast<void*>(std::intptr_t{shared}), 1) !=
        CUDA_ERROR_OUT_OF_MEMORY) {
      return 4;
    }
    if (free_memory() != before) return 5;
    if (call("cuMemRelease", handle) != 0) return 6;
    return truth_of_process(getpid()).explicit_bytes == 0 ? 0 : 7;
  }), 0);
}

// Opened memory of another process is charged once, regardless of how often it is opened, until the last close.
TEST_F(SliceTest, MemoryOfAnotherProcessIsChargedWhileItIsOpen) {
  start_slice(3 * kContext + 2 * kRoom);
  int handles[2];
  ASSERT_EQ(pipe(handles), 0);
  const pid_t maker = fork_quietly();
  if (maker == 0) {
    CUdeviceptr address = 0;
    CUipcMemHandle handle{};
    const bool made = start_driver() == 0 && call("cuMemAlloc_v2", &address, std::size_t{64 * kMiB}) == 0 &&
                      call("cuMemsetD8_v2", address, static_cast<unsigned char>(7), std::size_t{kMiB}) == 0 &&
                      call("cuCtxSynchronize") == 0 && call("cuIpcGetMemHandle", &handle, address) == 0;
    if (!made || write(handles[1], &handle, sizeof handle) != sizeof handle) _exit(1);
    pause();
    _exit(0);
  }
  close(handles[1]);
  CUipcMemHandle handle{};
  ASSERT_EQ(read(handles[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  EXPECT_EQ(in_child([&] {
    if (start_driver() != 0) return 1;
    const std::size_t before = free_memory();
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    if (call("cuIpcOpenMemHandle_v2", &first, handle, 1U) != 0) return 2;
    if (call("cuIpcOpenMemHandle", &second, handle, 1U) != 0 || second != first) return 3;
    if (free_memory() != before - 64 * kMiB) return 4;
    unsigned char byte = 0;
    if (call("cuMemcpyDtoH_v2", static_cast<void*>(&byte), first, std::size_t{1}) != 0 || byte != 7) return 5;
    kill(maker, SIGKILL);
    char end = 0;
    if (read(handles[0], &end, 1) != 0) return 6;  // its end of the pipe is closed
    if (truth_of_process(getpid()).explicit_bytes != 64 * kMiB) return 7;
    if (call("cuIpcCloseMemHandle", first) != 0 || free_memory() != before - 64 * kMiB) return 8;
    if (call("cuIpcCloseMemHandle", first) != 0 || free_memory() != before) return 9;
    return truth_of_process(getpid()).explicit_bytes == 0 ? 0 : 10;
  }), 0);
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  close(handles[0]);
}

// The sum of all levels is charged, to the byte: a chain that fits is not refused for an estimate from its shape.
TEST_F(SliceTest, AMipmappedArrayIsChargedForItsLevels) {
  constexpr std::uint64_t kChain = 80 * kMiB;  // 64 in the first level, 16 in the second
  start_slice(kContext + kChain);
  EXPECT_EQ(in_child([] {
    if (start_driver() != 0) return 1;
    const CUDA_ARRAY3D_DESCRIPTOR shape{4096, 4096, 0, 0x20, 1, 0};
    CUmipmappedArray array = nullptr;
    CUmipmappedArray more = nullptr;
    if (call("cuMipmappedArrayCreate", &array, &shape, 2U) != 0) return 2;
    if (free_memory() != 0 || truth_of_process(getpid()).explicit_bytes != kChain) return 3;
    const CUDA_ARRAY3D_DESCRIPTOR small{1024, 1024, 0, 0x20, 1, 0};
    if (call("cuMipmappedArrayCreate", &more, &small, 1U) != CUDA_ERROR_OUT_OF_MEMORY) return 4;
    if (call("cuMipmappedArrayDestroy", array) != 0 || free_memory() != kChain) return 5;
    const CUDA_ARRAY3D_DESCRIPTOR layers{4096, 1024, 3, 0x20, 1, 1};  // 48 MiB and 12: the number of layers stays
    if (call("cuMipmappedArrayCreate", &array, &layers, 2U) != 0 || free_memory() != kChain - 60 * kMiB) return 6;
    return call("cuMipmappedArrayDestroy", array) == 0 && free_memory() == kChain ? 0 : 7;
  }), 0);
}

// The calls of CUDA before 3.2 count in 32 bits and stop at the largest value.
TEST_F(SliceTest, TheOldestCallsReportTheSliceAndNeverOverflow) {
  constexpr std::uint64_t kGiB = 1024 * kMiB;
  for (const std::uint64_t limit : {2 * kGiB, 4 * kGiB, 5 * kGiB, 100 * kGiB}) {
    start_slice(limit);
    EXPECT_EQ(in_child([&] {
      if (start_driver() != 0) return 1;
      const unsigned most = limit < 4 * kGiB ? static_cast<unsigned>(limit) : ~0U;
      unsigned total = 0;
      if (call("cuDeviceTotalMem", &total, CUdevice{0}) != 0 || total != most) return 2;
      unsigned free_bytes = 0;
      total = 0;
      if (call("cuMemGetInfo", &free_bytes, &total) != 0 || total != most) return 3;
      const std::uint64_t really = free_memory();
      return free_bytes == (really < 4 * kGiB ? static_cast<unsigned>(really) : ~0U) ? 0 : 4;
    }), 0) << limit / kMiB << " MiB";
    slice_.reset();
  }
}

}  // namespace
}  // namespace carve::isolation
