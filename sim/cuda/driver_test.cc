#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "sim/protocol/client.h"
#include "sim/testing/child.h"
#include "sim/testing/gtest_instance.h"

// The driver's behaviour as a program sees it through the real interface. Memory is compared with the daemon's own
// account.
namespace carve::sim {
namespace {

const auto* const kSim = static_cast<InstanceEnvironment*>(
    ::testing::AddGlobalTestEnvironment(new InstanceEnvironment("h200x2")));

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
enum : int { kOk = 0, kInvalid = 1, kOutOfMemory = 2, kNotInitialized = 3, kNotReady = 600 };

std::vector<AccountRecord> accounts() {
  Connection query;
  std::vector<AccountRecord> out;
  EXPECT_EQ(query.open(ClientKind::kQuery), Status::kOk);
  EXPECT_EQ(query.list(Op::kAccount, 0, 0, 0, &out), Status::kOk);
  return out;
}
AccountRecord account(pid_t pid, std::uint32_t card = 0) {
  for (const AccountRecord& r : accounts())
    if (r.pid == pid && r.card == card) return r;
  return {};
}
std::uint64_t used(std::uint32_t card) {
  Connection query;
  std::vector<CardTruthRecord> out;
  EXPECT_EQ(query.open(ClientKind::kQuery), Status::kOk);
  EXPECT_EQ(query.list(Op::kCards, 0, 0, 0, &out), Status::kOk);
  return out.at(card).used_bytes;
}
std::uint64_t mine() { return account(getpid()).explicit_bytes; }
void* const kNone = nullptr;

/// Holds the stream: what is enqueued after this call does not begin before the test sets `released`. So no test
/// depends on how long this process waits for a processor.
void hold(void* stream, std::atomic<bool>* released) {
  ASSERT_EQ(cu(
                "cuLaunchHostFunc", stream,
                +[](void* data) { static_cast<std::atomic<bool>*>(data)->wait(false); }, released),
            kOk);
}

void release(std::atomic<bool>* released) {
  *released = true;
  released->notify_all();
}

TEST(Driver, NothingWorksBeforeInit) {
  in_child([] {
    int count = 0;
    EXPECT_EQ(cu("cuDeviceGetCount", &count), kNotInitialized);
    EXPECT_EQ(cu("cuInit", 1U), kInvalid);
    EXPECT_EQ(cu("cuInit", 0U), kOk);
    EXPECT_EQ(cu("cuDeviceGetCount", &count), kOk);
    EXPECT_EQ(count, 2);
    Ptr p = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &p, kMiB), 201);  // no context yet
  });
}

TEST(Driver, ANullPointerForAnAnswerIsInvalid) {
  in_child([] {
    use_card();
    std::size_t wide = 1;
    unsigned narrow = 1;
    void* handle = nullptr;
    int number = 0;
    auto* const no_size = static_cast<std::size_t*>(nullptr);
    auto* const no_unsigned = static_cast<unsigned*>(nullptr);
    auto* const no_address = static_cast<Ptr*>(nullptr);
    auto* const no_handle = static_cast<void**>(nullptr);
    EXPECT_EQ(cu("cuDeviceTotalMem", no_unsigned, 0), kInvalid);
    EXPECT_EQ(cu("cuDeviceTotalMem_v2", no_size, 0), kInvalid);
    EXPECT_EQ(cu("cuMemGetInfo", no_unsigned, &narrow), kInvalid);
    EXPECT_EQ(cu("cuMemGetInfo", &narrow, no_unsigned), kInvalid);
    EXPECT_EQ(cu("cuMemGetInfo_v2", no_size, &wide), kInvalid);
    EXPECT_EQ(cu("cuMemGetInfo_v2", &wide, no_size), kInvalid);
    EXPECT_EQ(narrow, 1U);
    EXPECT_EQ(wide, 1U);
    EXPECT_EQ(cu("cuMemAlloc_v2", no_address, std::size_t{kMiB}), kInvalid);
    EXPECT_EQ(cu("cuMemAllocManaged", no_address, std::size_t{kMiB}, 1U), kInvalid);
    EXPECT_EQ(cu("cuMemAllocPitch_v2", no_address, &wide, std::size_t{512}, std::size_t{2}, 4U), kInvalid);
    EXPECT_EQ(cu("cuMemAllocHost_v2", no_handle, std::size_t{kMiB}), kInvalid);
    EXPECT_EQ(cu("cuMemHostAlloc", no_handle, std::size_t{kMiB}, 0U), kInvalid);
    EXPECT_EQ(cu("cuMemAllocAsync", no_address, std::size_t{kMiB}, handle), kInvalid);
    EXPECT_EQ(cu("cuDeviceGetDefaultMemPool", no_handle, 0), kInvalid);
    EXPECT_EQ(cu("cuMemGetAllocationGranularity", no_size, kNone, 0), kInvalid);
    EXPECT_EQ(cu("cuPointerGetAttribute", kNone, 9, Ptr{0}), kInvalid);
    EXPECT_EQ(cu("cuDeviceGetAttribute", static_cast<int*>(nullptr), 1, number), kInvalid);
    // The manual calls both optional.
    Ptr address = 0;
    ASSERT_EQ(cu("cuMemAlloc_v2", &address, std::size_t{kMiB}), kOk);
    EXPECT_EQ(cu("cuMemGetAddressRange_v2", no_address, no_size, address), kOk);
    EXPECT_EQ(mine(), kMiB) << "no refused call has taken memory";
  });
}

TEST(Driver, ShowsOnlyVisibleDevicesWhoseNodeCanBeOpened) {
  in_child([] {
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    int count = 0;
    char bus[32];
    ASSERT_EQ(cu("cuInit", 0U), kOk);
    EXPECT_EQ(cu("cuDeviceGetCount", &count), kOk);
    EXPECT_EQ(count, 1);
    EXPECT_EQ(cu("cuDeviceGetPCIBusId", bus, 32, 0), kOk);
    EXPECT_STREQ(bus, "0000:9a:00.0");
  });
  in_child([] {
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    EXPECT_EQ(cu("cuInit", 0U), 100);
  });
  in_child([] {  // a card with a node that cannot be opened is not visible
    unlink("/dev/nvidia0");
    ASSERT_EQ(cu("cuInit", 0U), kOk);
    int count = 0;
    EXPECT_EQ(cu("cuDeviceGetCount", &count), kOk);
    EXPECT_EQ(count, 1);
    mknod("/dev/nvidia0", S_IFCHR | 0666, 0x103);
  });
}

TEST(Driver, ChargesMemoryExactlyAndStoresItSparsely) {
  in_child([] {
    use_card();
    Ptr p = 0;
    ASSERT_EQ(cu("cuMemAlloc_v2", &p, 100 * kGiB), kOk);  // more than this host has
    EXPECT_EQ(mine(), 100 * kGiB);
    std::uint32_t in = 0xfeedbeef, out = 0;
    ASSERT_EQ(cu("cuMemcpyHtoD_v2", p + 77 * kGiB, &in, std::uint64_t{4}), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoH_v2", &out, p + 77 * kGiB, std::uint64_t{4}), kOk);
    EXPECT_EQ(out, in);
    EXPECT_EQ(cu("cuMemcpyHtoD_v2", p + 100 * kGiB - 2, &in, std::uint64_t{4}), kInvalid);
    EXPECT_EQ(cu("cuMemsetD8_v2", p, static_cast<unsigned char>(0), 100 * kGiB), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoH_v2", &out, p + 77 * kGiB, std::uint64_t{4}), kOk);
    EXPECT_EQ(out, 0U);
    Ptr q = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &q, 100 * kGiB), kOutOfMemory);
    EXPECT_EQ(cu("cuMemFree_v2", p), kOk);
    EXPECT_EQ(cu("cuMemFree_v2", p), kInvalid);
    EXPECT_EQ(mine(), 0U);
  });
}

TEST(Driver, PitchedCopiesMoveRealBytes) {
  in_child([] {
    use_card();
    Ptr p = 0;
    std::size_t pitch = 0;
    ASSERT_EQ(cu("cuMemAllocPitch_v2", &p, &pitch, std::uint64_t{100}, std::uint64_t{7}, 4U), kOk);
    EXPECT_EQ(pitch, 512U);
    EXPECT_EQ(mine(), 7U * 512U);
    unsigned char in[700], out[700] = {};
    for (int i = 0; i < 700; ++i) in[i] = static_cast<unsigned char>(i * 7);
    struct {
      std::size_t sx, sy;
      unsigned st;
      const void* sh;
      Ptr sd;
      void* sa;
      std::size_t sp, dx, dy;
      unsigned dt;
      void* dh;
      Ptr dd;
      void* da;
      std::size_t dp, w, h;
    } copy = {0, 0, 1, in, 0, nullptr, 100, 0, 0, 2, nullptr, p, nullptr, pitch, 100, 7};
    ASSERT_EQ(cu("cuMemcpy2D_v2", &copy), kOk);
    copy = {0, 0, 2, nullptr, p, nullptr, pitch, 0, 0, 1, out, 0, nullptr, 100, 100, 7};
    ASSERT_EQ(cu("cuMemcpy2DAsync_v2", &copy, kNone), kOk);
    ASSERT_EQ(cu("cuCtxSynchronize"), kOk);
    EXPECT_EQ(std::memcmp(in, out, 700), 0);
  });
}

TEST(Driver, SampleKernelsCompute) {
  in_child([] {
    use_card();
    void* add =
        kernel("carve_vector_add", ".param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n");
    constexpr int n = 1000;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; ++i) {
      a[static_cast<std::size_t>(i)] = static_cast<float>(i);
      b[static_cast<std::size_t>(i)] = 0.5F;
    }
    Ptr d[3];
    for (Ptr& p : d) ASSERT_EQ(cu("cuMemAlloc_v2", &p, std::uint64_t{4 * n}), kOk);
    ASSERT_EQ(cu("cuMemcpyHtoD_v2", d[0], a.data(), std::uint64_t{4 * n}), kOk);
    ASSERT_EQ(cu("cuMemcpyHtoD_v2", d[1], b.data(), std::uint64_t{4 * n}), kOk);
    int count = n;
    void* arguments[] = {&d[0], &d[1], &d[2], &count};
    ASSERT_EQ(launch(add, nullptr, arguments, 4), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoH_v2", c.data(), d[2], std::uint64_t{4 * n}), kOk);
    EXPECT_EQ(c[999], 999.5F);
  });
}

TEST(Driver, EventsMeasureGpuTimeAndQueriesReportCompletion) {
  in_child([] {
    use_card();
    void* spin = kernel("carve_spin_2ms");
    void *stream = nullptr, *begin = nullptr, *end = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &stream, 1U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &begin, 0U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &end, 0U), kOk);
    EXPECT_EQ(cu("cuEventQuery", end), kOk);  // never recorded: complete
    // The card waits for 50 ms of other work, so that everything is queued before it begins: the measured time does not
    // depend on when this process runs.
    void *other = nullptr, *ended = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &other, 1U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &ended, 0U), kOk);
    for (int i = 0; i < 25; ++i) ASSERT_EQ(launch(spin, other), kOk);
    ASSERT_EQ(cu("cuEventRecord", ended, other), kOk);
    ASSERT_EQ(cu("cuStreamWaitEvent", stream, ended, 0U), kOk);
    ASSERT_EQ(cu("cuEventRecord", begin, stream), kOk);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(launch(spin, stream), kOk);
    ASSERT_EQ(cu("cuEventRecord", end, stream), kOk);
    EXPECT_EQ(cu("cuEventQuery", end), kNotReady);
    EXPECT_EQ(cu("cuStreamQuery", stream), kNotReady);
    float ms = 0;
    EXPECT_EQ(cu("cuEventElapsedTime", &ms, begin, end), kNotReady);
    ASSERT_EQ(cu("cuEventSynchronize", end), kOk);
    EXPECT_EQ(cu("cuEventQuery", end), kOk);
    ASSERT_EQ(cu("cuEventElapsedTime", &ms, begin, end), kOk);
    EXPECT_NEAR(ms, 20.0F, 0.2F);
    EXPECT_EQ(account(getpid()).launches, 35U);
    EXPECT_EQ(account(getpid()).gpu_ns, 70'000'000U);
  });
}

TEST(Driver, TheLegacyStreamWaitsForBlockingStreamsOnly) {
  in_child([] {
    use_card();
    void *blocking = nullptr, *free = nullptr, *event = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &blocking, 0U), kOk);
    ASSERT_EQ(cu("cuStreamCreate", &free, 1U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &event, 0U), kOk);
    std::atomic<bool> released = false;
    hold(blocking, &released);
    ASSERT_EQ(cu("cuEventRecord", event, free), kOk);
    ASSERT_EQ(cu("cuEventSynchronize", event), kOk);
    EXPECT_EQ(cu("cuStreamQuery", blocking), kNotReady);  // the non-blocking stream did not wait
    ASSERT_EQ(cu("cuEventRecord", event, kNone), kOk);
    EXPECT_EQ(cu("cuEventQuery", event), kNotReady);
    release(&released);
    ASSERT_EQ(cu("cuEventSynchronize", event), kOk);
    EXPECT_EQ(cu("cuStreamQuery", blocking), kOk);  // the default stream did
  });
}

TEST(Driver, HostFunctionsAndCopiesRunInStreamOrder) {
  in_child([] {
    use_card();
    void* spin = kernel("carve_spin_5ms");
    void* stream = nullptr;
    Ptr p = 0;
    ASSERT_EQ(cu("cuStreamCreate", &stream, 1U), kOk);
    ASSERT_EQ(cu("cuMemAlloc_v2", &p, kMiB), kOk);
    static std::uint32_t source = 1;
    static void* asked = stream;
    std::uint32_t back = 0;
    std::atomic<bool> released = false;
    hold(stream, &released);
    ASSERT_EQ(launch(spin, stream), kOk);
    ASSERT_EQ(cu(
                  "cuLaunchHostFunc", stream,
                  +[](void* data) { *static_cast<std::uint32_t*>(data) = 42; }, &source),
              kOk);
    EXPECT_EQ(source, 1U);  // the function waits for the kernel, and the kernel for the release
    release(&released);
    ASSERT_EQ(cu("cuMemcpyHtoDAsync_v2", p, &source, std::uint64_t{4}, stream), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoHAsync_v2", &back, p, std::uint64_t{4}, stream), kOk);
    ASSERT_EQ(cu("cuStreamSynchronize", asked), kOk);
    EXPECT_EQ(back, 42U);
  });
}

TEST(Driver, ValuesAreWrittenAndAwaitedInStreamOrder) {
  in_child([] {
    use_card();
    void *writer = nullptr, *waiter = nullptr;
    Ptr p = 0;
    std::uint32_t back = 0;
    ASSERT_EQ(cu("cuStreamCreate", &writer, 1U), kOk);
    ASSERT_EQ(cu("cuStreamCreate", &waiter, 1U), kOk);
    ASSERT_EQ(cu("cuMemAlloc_v2", &p, kMiB), kOk);
    ASSERT_EQ(cu("cuStreamWaitValue32_v2", waiter, p, 7U, 1U), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoHAsync_v2", &back, p, std::uint64_t{4}, waiter), kOk);
    EXPECT_EQ(cu("cuStreamQuery", waiter), kNotReady);
    ASSERT_EQ(cu("cuMemsetD32Async", p, 7U, std::uint64_t{1}, writer), kOk);
    ASSERT_EQ(cu("cuStreamSynchronize", waiter), kOk);
    EXPECT_EQ(back, 7U);
    ASSERT_EQ(cu("cuStreamWriteValue32_v2", writer, p, 9U, 0U), kOk);
    ASSERT_EQ(cu("cuStreamSynchronize", writer), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoH_v2", &back, p, std::uint64_t{4}), kOk);
    EXPECT_EQ(back, 9U);
  });
}

TEST(Driver, AForkedChildCannotUseItsParentsDriver) {
  in_child([] {
    use_card();
    Ptr p = 0;
    ASSERT_EQ(cu("cuMemAlloc_v2", &p, 8 * kMiB), kOk);
    const pid_t child = fork();
    if (child == 0) {
      Ptr q = 0;
      const bool refused = cu("cuMemAlloc_v2", &q, kMiB) == kNotInitialized &&
                           cu("cuInit", 0U) == kNotInitialized &&
                           cu("cuMemFree_v2", p) == kNotInitialized;
      _exit(refused ? 0 : 1);
    }
    EXPECT_EQ(wait_child(child), 0);
    EXPECT_EQ(mine(), 8 * kMiB);  // the child's death freed nothing
    EXPECT_EQ(cu("cuMemFree_v2", p), kOk);
  });
}

TEST(Driver, AKilledProcessFreesEverythingBeforeTheNextQuery) {
  for (int i = 0; i < 20; ++i) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = start_child([&] {
      use_card(1);
      Ptr p = 0;
      void* spin = kernel("carve_spin_100ms");
      ASSERT_EQ(cu("cuMemAlloc_v2", &p, 130 * kGiB), kOk);
      for (int n = 0; n < 20; ++n) ASSERT_EQ(launch(spin, nullptr), kOk);
      ASSERT_EQ(write(ready[1], "x", 1), 1);
      pause();
    });
    char byte = 0;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    EXPECT_GE(used(1), 130 * kGiB);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(used(1), 0U);
    const AccountRecord r = account(child, 1);
    EXPECT_EQ(r.alive, 0U);
    EXPECT_EQ(r.explicit_bytes, 0U);
    EXPECT_EQ(r.explicit_high, 130 * kGiB);
    close(ready[0]);
    close(ready[1]);
  }
}

TEST(Driver, ConcurrentProcessesNeverExceedTheCardAndLeakNothing) {
  constexpr int kProcesses = 24;
  struct Shared {
    std::atomic<int> ready, refused;
  };
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int n = 0; n < kProcesses; ++n)
    children.push_back(start_child([n, shared] {
      use_card();
      shared->ready.fetch_add(1);
      while (shared->ready.load() < kProcesses) std::this_thread::yield();
      std::uint64_t random = static_cast<std::uint64_t>(n) * 7919 + 1;
      std::vector<Ptr> held;
      for (int i = 0; i < 400; ++i) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        Ptr p = 0;
        const int rc = cu("cuMemAlloc_v2", &p, (random >> 33) % (2 * kGiB) + 1);
        if (rc == kOk) {
          held.push_back(p);
        } else {
          EXPECT_EQ(rc, kOutOfMemory);
          shared->refused.fetch_add(1);
        }
        if (held.size() > 12 || (rc != kOk && !held.empty())) {
          EXPECT_EQ(cu("cuMemFree_v2", held.back()), kOk);
          held.pop_back();
        }
      }
      if (n % 3 == 0) kill(getpid(), SIGKILL);  // some die while they hold memory
    }));
  for (std::size_t n = 0; n < children.size(); ++n)
    EXPECT_EQ(wait_child(children[n]), n % 3 == 0 ? 128 + SIGKILL : 0);
  EXPECT_GT(shared->refused.load(), 0);
  munmap(shared, sizeof(Shared));
  EXPECT_EQ(used(0), 0U);
  Connection query;
  std::vector<GroupRecord> groups;
  ASSERT_EQ(query.open(ClientKind::kQuery), Status::kOk);
  ASSERT_EQ(query.list(Op::kGroups, 0, 0, 0, &groups), Status::kOk);
  for (const GroupRecord& group : groups) {
    EXPECT_EQ(group.explicit_bytes, 0U);
    EXPECT_LT(group.explicit_high, 141 * kGiB);
  }
}

TEST(Driver, PoolsKeepMemoryUpToTheirThreshold) {
  in_child([] {
    use_card();
    void* pool = nullptr;
    void* stream = nullptr;
    ASSERT_EQ(cu("cuDeviceGetDefaultMemPool", &pool, 0), kOk);
    ASSERT_EQ(cu("cuStreamCreate", &stream, 1U), kOk);
    Ptr p = 0, q = 0;
    ASSERT_EQ(cu("cuMemAllocAsync", &p, 64 * kMiB, stream), kOk);
    EXPECT_EQ(mine(), 64 * kMiB);
    ASSERT_EQ(cu("cuMemFreeAsync", p, stream), kOk);
    EXPECT_EQ(mine(), 0U);
    std::uint64_t keep = ~0ULL, value = 0;
    ASSERT_EQ(cu("cuMemPoolSetAttribute", pool, 4, static_cast<void*>(&keep)), kOk);
    ASSERT_EQ(cu("cuMemAllocAsync", &p, 64 * kMiB, stream), kOk);
    ASSERT_EQ(cu("cuMemFreeAsync", p, stream), kOk);
    EXPECT_EQ(mine(), 64 * kMiB);  // cached, and still charged to the process
    ASSERT_EQ(cu("cuMemPoolGetAttribute", pool, 5, static_cast<void*>(&value)), kOk);
    EXPECT_EQ(value, 64 * kMiB);
    ASSERT_EQ(cu("cuMemAllocAsync", &q, 64 * kMiB, stream), kOk);
    EXPECT_EQ(q, p);
    ASSERT_EQ(cu("cuMemFree_v2", q), kOk);  // cuMemFree works as well
    ASSERT_EQ(cu("cuMemPoolTrimTo", pool, std::uint64_t{0}), kOk);
    EXPECT_EQ(mine(), 0U);
  });
}

TEST(Driver, VirtualMemoryMapsTheSameBytesTwice) {
  in_child([] {
    use_card();
    struct {
      int type, handles, location, id;
      void* meta;
      unsigned char rest[8];
    } prop = {1, 0, 1, 0, nullptr, {}};
    struct {
      int location, id, flags;
    } access = {1, 0, 3};
    unsigned long long handle = 0;
    Ptr va = 0;
    ASSERT_EQ(cu("cuMemAddressReserve", &va, 8 * kMiB, std::uint64_t{0}, Ptr{0}, 0ULL), kOk);
    EXPECT_EQ(mine(), 0U);
    ASSERT_EQ(cu("cuMemCreate", &handle, 4 * kMiB, &prop, 0ULL), kOk);
    EXPECT_EQ(mine(), 4 * kMiB);
    ASSERT_EQ(cu("cuMemMap", va, 4 * kMiB, std::uint64_t{0}, handle, 0ULL), kOk);
    ASSERT_EQ(cu("cuMemMap", va + 4 * kMiB, 4 * kMiB, std::uint64_t{0}, handle, 0ULL), kOk);
    EXPECT_EQ(cu("cuMemMap", va, 4 * kMiB, std::uint64_t{0}, handle, 0ULL), kInvalid);
    ASSERT_EQ(cu("cuMemSetAccess", va, 8 * kMiB, &access, std::uint64_t{1}), kOk);
    std::uint32_t in = 123, out = 0;
    ASSERT_EQ(cu("cuMemcpyHtoD_v2", va + 16, &in, std::uint64_t{4}), kOk);
    ASSERT_EQ(cu("cuMemcpyDtoH_v2", &out, va + 4 * kMiB + 16, std::uint64_t{4}), kOk);
    EXPECT_EQ(out, 123U);
    ASSERT_EQ(cu("cuMemRelease", handle), kOk);
    EXPECT_EQ(mine(), 4 * kMiB);  // still mapped
    EXPECT_EQ(cu("cuMemAddressFree", va, 8 * kMiB), kInvalid);
    ASSERT_EQ(cu("cuMemUnmap", va, 8 * kMiB), kOk);
    EXPECT_EQ(mine(), 0U);
    EXPECT_EQ(cu("cuMemcpyHtoD_v2", va, &in, std::uint64_t{4}), kInvalid);
    ASSERT_EQ(cu("cuMemAddressFree", va, 8 * kMiB), kOk);
  });
}

TEST(Driver, ACapturedForkAndJoinBecomesAGraphWithTheSumOfTheDurations) {
  in_child([] {
    use_card();
    void* spin = kernel("carve_spin_1ms");
    void *a = nullptr, *b = nullptr, *fork_event = nullptr, *join = nullptr, *graph = nullptr,
         *exec = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &a, 1U), kOk);
    ASSERT_EQ(cu("cuStreamCreate", &b, 1U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &fork_event, 2U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &join, 2U), kOk);
    ASSERT_EQ(cu("cuStreamBeginCapture_v2", a, 0), kOk);
    ASSERT_EQ(launch(spin, a), kOk);
    ASSERT_EQ(cu("cuEventRecord", fork_event, a), kOk);
    ASSERT_EQ(cu("cuStreamWaitEvent", b, fork_event, 0U), kOk);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(launch(spin, b), kOk);
    ASSERT_EQ(launch(spin, a), kOk);
    ASSERT_EQ(cu("cuEventRecord", join, b), kOk);
    ASSERT_EQ(cu("cuStreamWaitEvent", a, join, 0U), kOk);
    ASSERT_EQ(cu("cuStreamEndCapture", a, &graph), kOk);
    std::size_t nodes = 0, edges = 0;
    ASSERT_EQ(cu("cuGraphGetNodes", graph, static_cast<void**>(nullptr), &nodes), kOk);
    EXPECT_EQ(nodes, 5U);
    ASSERT_EQ(cu("cuGraphGetEdges", graph, static_cast<void**>(nullptr),
                 static_cast<void**>(nullptr), &edges),
              kOk);
    EXPECT_EQ(edges, 4U);
    EXPECT_EQ(account(getpid()).launches, 0U);  // captured, not run
    ASSERT_EQ(cu("cuGraphInstantiateWithFlags", &exec, graph, 0ULL), kOk);
    ASSERT_EQ(cu("cuGraphDestroy", graph), kOk);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(cu("cuGraphLaunch", exec, a), kOk);
    ASSERT_EQ(cu("cuStreamSynchronize", a), kOk);
    EXPECT_EQ(account(getpid()).launches, 20U);
    EXPECT_EQ(account(getpid()).gpu_ns, 20'000'000U);
    ASSERT_EQ(cu("cuStreamBeginCapture_v2", a, 0), kOk);
    EXPECT_EQ(cu("cuStreamSynchronize", a), 900);
    EXPECT_EQ(cu("cuStreamEndCapture", a, &graph), 901);
    EXPECT_EQ(graph, nullptr);
  });
}

TEST(Driver, AForbiddenCallDuringACaptureInvalidatesIt) {
  in_child([] {
    use_card();
    void* spin = kernel("carve_spin_10us");
    void *s = nullptr, *event = nullptr, *graph = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &s, 0U), kOk);
    ASSERT_EQ(cu("cuEventCreate", &event, 2U), kOk);
    const auto capture_and = [&](int mode, const std::function<void()>& meanwhile) {
      EXPECT_EQ(cu("cuStreamBeginCapture_v2", s, mode), kOk);
      EXPECT_EQ(launch(spin, s), kOk);
      std::thread(meanwhile).join();
      return cu("cuStreamEndCapture", s, &graph);
    };
    const auto query = [&] { cu("cuEventQuery", event); };
    const auto relaxed_query = [&] {
      int mode = 2;
      EXPECT_EQ(cu("cuThreadExchangeStreamCaptureMode", &mode), kOk);
      EXPECT_EQ(cu("cuEventQuery", event), kOk);
    };
    EXPECT_EQ(capture_and(0, query), 901);          // global: another thread's query breaks it
    EXPECT_EQ(capture_and(0, relaxed_query), kOk);  // unless that thread's mode is "relaxed"
    EXPECT_EQ(capture_and(1, query), kOk);          // thread-local: other threads may
    EXPECT_EQ(capture_and(2, query), kOk);
    Ptr p = 0;
    EXPECT_EQ(cu("cuStreamBeginCapture_v2", s, 1), kOk);
    EXPECT_EQ(cu("cuMemAlloc_v2", &p, kMiB), 900);  // the capturing thread may not
    EXPECT_EQ(cu("cuStreamEndCapture", s, &graph), 901);
    EXPECT_EQ(cu("cuStreamBeginCapture_v2", s, 0), kOk);
    EXPECT_EQ(launch(spin, nullptr), 906);  // the default stream would wait for the capturing one
    EXPECT_EQ(cu("cuStreamEndCapture", s, &graph), 901);
  });
}

TEST(Driver, GraphMemoryIsChargedAtTheFirstLaunchAndTrimmed) {
  in_child([] {
    use_card();
    void *s = nullptr, *graph = nullptr, *exec = nullptr;
    Ptr p = 0;
    ASSERT_EQ(cu("cuStreamCreate", &s, 1U), kOk);
    ASSERT_EQ(cu("cuStreamBeginCapture_v2", s, 0), kOk);
    ASSERT_EQ(cu("cuMemAllocAsync", &p, 32 * kMiB, s), kOk);
    ASSERT_EQ(cu("cuMemFreeAsync", p, s), kOk);
    ASSERT_EQ(cu("cuStreamEndCapture", s, &graph), kOk);
    ASSERT_EQ(cu("cuGraphInstantiateWithFlags", &exec, graph, 0ULL), kOk);
    EXPECT_EQ(mine(), 0U);
    ASSERT_EQ(cu("cuGraphLaunch", exec, s), kOk);
    ASSERT_EQ(cu("cuGraphLaunch", exec, s), kOk);
    EXPECT_EQ(mine(), 32 * kMiB);
    std::uint64_t reserved = 0;
    ASSERT_EQ(cu("cuDeviceGetGraphMemAttribute", 0, 2, static_cast<void*>(&reserved)), kOk);
    EXPECT_EQ(reserved, 32 * kMiB);
    ASSERT_EQ(cu("cuDeviceGraphMemTrim", 0), kOk);
    EXPECT_EQ(mine(), 0U);
    ASSERT_EQ(cu("cuGraphExecDestroy", exec), kOk);
    ASSERT_EQ(cu("cuGraphDestroy", graph), kOk);
  });
}

TEST(Driver, ContextsAreChargedAndFreeTheirMemoryWhenDestroyed) {
  in_child([] {
    use_card();
    const std::uint64_t one = account(getpid()).context_bytes;
    EXPECT_GT(one, 400 * kMiB);
    void* context = nullptr;
    Ptr p = 0;
    ASSERT_EQ(cu("cuCtxCreate_v2", &context, 0U, 0), kOk);
    EXPECT_EQ(account(getpid()).context_bytes, 2 * one);
    ASSERT_EQ(cu("cuMemAlloc_v2", &p, kGiB), kOk);
    ASSERT_EQ(cu("cuCtxDestroy_v2", context), kOk);
    EXPECT_EQ(account(getpid()).context_bytes, one);
    EXPECT_EQ(mine(), 0U);
    EXPECT_EQ(cu("cuCtxSetCurrent", context), 201);
  });
}

std::string image_with_globals(const std::string& bytes) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 8 .b8 big[" + bytes +
         "];\n.visible .global .u32 small;\n.visible .entry carve_fill()\n{\n ret;\n}\n";
}
std::uint64_t of_modules() { return account(getpid()).module_bytes; }

TEST(Driver, AModulesGlobalsAreChargedAtLoadAsDriverMemory) {
  in_child([] {
    use_card();
    const std::uint64_t before = used(0);
    const std::string image = image_with_globals("67108864");
    void* module = nullptr;
    ASSERT_EQ(cu("cuModuleLoadData", &module, image.c_str()), kOk);
    EXPECT_EQ(of_modules(), 64 * kMiB + 512);  // before any call asked for their address
    EXPECT_EQ(used(0) - before, 66 * kMiB);
    EXPECT_EQ(account(getpid()).explicit_high, 0U);
    Ptr p = 0, again = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(cu("cuModuleGetGlobal_v2", &p, &bytes, module, "big"), kOk);
    ASSERT_EQ(cu("cuModuleGetGlobal_v2", &again, &bytes, module, "big"), kOk);
    EXPECT_TRUE(p == again && bytes == 64 * kMiB);
    EXPECT_EQ(of_modules(), 64 * kMiB + 512);
    EXPECT_EQ(cu("cuMemFree_v2", p), kInvalid);  // the memory belongs to the module
    ASSERT_EQ(cu("cuMemsetD8_v2", p, static_cast<unsigned char>(7), bytes), kOk);
    ASSERT_EQ(cu("cuModuleUnload", module), kOk);
    EXPECT_EQ(of_modules(), 0U);
    const std::string larger = image_with_globals("1099511627776");
    EXPECT_EQ(cu("cuModuleLoadData", &module, larger.c_str()), kOutOfMemory);
    EXPECT_EQ(used(0), before);
  });
}

TEST(Driver, ALibrarysGlobalsAreChargedPerContextAndFreedWithEither) {
  in_child([] {
    use_card();
    const std::string image = image_with_globals("67108864");
    void* library = nullptr;
    void* module = nullptr;
    ASSERT_EQ(cu("cuLibraryLoadData", &library, image.c_str(), kNone, kNone, 0U, kNone, kNone, 0U), kOk);
    EXPECT_EQ(of_modules(), 0U);  // it belongs to no context yet
    ASSERT_EQ(cu("cuLibraryGetModule", &module, library), kOk);
    EXPECT_EQ(of_modules(), 64 * kMiB + 512);
    void* context = nullptr;
    Ptr p = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(cu("cuCtxCreate_v2", &context, 0U, 0), kOk);
    ASSERT_EQ(cu("cuLibraryGetGlobal", &p, &bytes, library, "big"), kOk);
    EXPECT_EQ(of_modules(), 2 * (64 * kMiB + 512));
    ASSERT_EQ(cu("cuCtxDestroy_v2", context), kOk);
    EXPECT_EQ(of_modules(), 64 * kMiB + 512);
    ASSERT_EQ(cu("cuLibraryUnload", library), kOk);
    EXPECT_EQ(of_modules(), 0U);
  });
}

TEST(Driver, AFullQueueBlocksTheLaunchAndLosesNothing) {
  in_child([] {
    use_card();
    void* spin = kernel("carve_spin_10us");
    void* stream = nullptr;
    ASSERT_EQ(cu("cuStreamCreate", &stream, 1U), kOk);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 2500; ++i) launch(spin, stream);
      });
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(cu("cuStreamSynchronize", stream), kOk);
    EXPECT_EQ(account(getpid()).launches, 10000U);
    EXPECT_EQ(account(getpid()).gpu_ns, 100'000'000U);
  });
}

TEST(Driver, ManyConcurrentThreadsLeakNothing) {
  in_child([] {
    use_card();
    void* context = nullptr;
    ASSERT_EQ(cu("cuCtxGetCurrent", &context), kOk);
    void* spin = kernel("carve_spin_20us");
    std::atomic<int> host_calls{0}, failures{0};
    const auto body = [&](unsigned seed) {
      const auto must = [&](int rc) { failures.fetch_add(rc == kOk ? 0 : 1); };
      must(cu("cuCtxSetCurrent", context));
      void *stream = nullptr, *event = nullptr;
      must(cu("cuStreamCreate", &stream, seed % 2));
      must(cu("cuEventCreate", &event, 0U));
      for (int i = 0; i < 300; ++i) {
        seed = seed * 1103515245U + 12345U;
        Ptr p = 0;
        switch ((seed >> 16) % 8) {
          case 0:
            must(launch(spin, stream));
            break;
          case 1:
            must(launch(spin, nullptr));
            break;  // legacy
          case 2:
            must(launch(spin, reinterpret_cast<void*>(std::uintptr_t{2})));
            break;  // per thread
          case 3:
            must(cu("cuMemAllocAsync", &p, kMiB, stream));
            must(cu("cuMemsetD8Async", p, static_cast<unsigned char>(seed), std::uint64_t{4096},
                    stream));
            must(cu("cuMemFreeAsync", p, stream));
            break;
          case 4:
            must(cu("cuEventRecord", event, stream));
            must(cu("cuStreamWaitEvent", kNone, event, 0U));
            break;
          case 5:
            must(cu("cuStreamSynchronize", stream));
            break;
          case 6:
            must(cu(
                "cuLaunchHostFunc", stream,
                +[](void* n) { static_cast<std::atomic<int>*>(n)->fetch_add(1); }, &host_calls));
            break;
          default:
            must(cu("cuMemAlloc_v2", &p, std::uint64_t{seed % 4096 + 1}));
            must(cu("cuMemFree_v2", p));
        }
      }
      must(cu("cuStreamSynchronize", stream));
      must(cu("cuEventDestroy_v2", event));
      must(cu("cuStreamDestroy_v2", stream));
    };
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) threads.emplace_back(body, t * 977 + 1);
    for (std::thread& t : threads) t.join();
    ASSERT_EQ(cu("cuCtxSynchronize"), kOk);
    EXPECT_EQ(failures.load(), 0);
    EXPECT_GT(host_calls.load(), 100);
    EXPECT_EQ(mine(), 0U);
  });
}

TEST(Driver, TheRuntimesPrivateTablesAreRefused) {
  in_child([] {
    const void* table = nullptr;
    const char id[16] = {1};
    EXPECT_EQ(cu("cuGetExportTable", &table, static_cast<const void*>(id)), kInvalid);
  });
}

TEST(Driver, ALostDaemonIsAnErrorNotAHang) {
  const pid_t child = start_child([] {
    use_card();
    void* spin = kernel("carve_spin_999999ms");
    ASSERT_EQ(launch(spin, nullptr), kOk);
    EXPECT_EQ(cu("cuCtxSynchronize"), 999);
    Ptr p = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &p, kMiB), 999);
  });
  while (account(child).gpu_ns == 0) std::this_thread::yield();  // until its kernel runs
  const_cast<InstanceEnvironment*>(kSim)->instance().restart();
  EXPECT_EQ(wait_child(child), 0);
}

}  // namespace
}  // namespace carve::sim
