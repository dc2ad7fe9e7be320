// The hooks of calls that the simulated driver does not have: contexts of graphics libraries, green contexts, and the
// newer ways to begin a capture. On a driver that does no work (testing/stub_driver.cc).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "preload/driver_abi.h"
#include "preload/testing/stub_slice.h"

namespace carve::preload::testing {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;
constexpr std::uint64_t kContext = 10 * kMiB;
constexpr CUresult kRefusedByDriver = 999;  // an error that the library never returns itself

/// Calls a function of the library at libcuda's usual name.
template <class... Arguments>
CUresult call(const char* symbol, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  using Function = CUresult(Arguments...);
  return reinterpret_cast<Function*>(dlsym(library, symbol))(arguments...);
}

/// A function of the stub itself.
template <class Function>
Function* stub(const char* symbol) {
  static void* const driver = dlopen("/usr/lib/carve/driver/libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(driver, symbol));
}
void driver_fails_next() { stub<void(CUresult)>("carve_stub_fail_next")(kRefusedByDriver); }
std::uint64_t contexts_made() { return stub<std::uint64_t()>("carve_stub_contexts")(); }
std::uint64_t capture_questions() { return stub<std::uint64_t()>("carve_stub_capture_questions")(); }

/// From now on this process and its children cannot fork, like under a full pids cgroup.
bool deny_fork() {
  static_assert(offsetof(seccomp_data, nr) == 0);
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class Unsimulated : public StubSlice {
 protected:
  Unsimulated() : StubSlice(CARVE_LIBRARY, CARVE_STUB) {}
  void start_slice(std::uint64_t limit) { StubSlice::start_slice(limit, 30, kContext); }
  /// A child that waits for a lease is killed after ten seconds.
  template <class Body>
  int in_child(Body body) {
    return StubSlice::in_child(body, 10);
  }
  /// The charge of the slice, also in a child.
  [[nodiscard]] std::uint64_t charged() const { return slice_->used_bytes(0); }
};

struct ContextCall {
  const char* name;
  CUresult (*create)(CUcontext* context);
};
constexpr ContextCall kContextCalls[] = {
    {"cuGLCtxCreate", [](CUcontext* context) { return call("cuGLCtxCreate", context, 0U, CUdevice{0}); }},
    {"cuGLCtxCreate_v2", [](CUcontext* context) { return call("cuGLCtxCreate_v2", context, 0U, CUdevice{0}); }},
    {"cuVDPAUCtxCreate",
     [](CUcontext* context) {
       return call("cuVDPAUCtxCreate", context, 0U, CUdevice{0}, 1U, static_cast<void*>(nullptr));
     }},
    {"cuVDPAUCtxCreate_v2",
     [](CUcontext* context) {
       return call("cuVDPAUCtxCreate_v2", context, 0U, CUdevice{0}, 1U, static_cast<void*>(nullptr));
     }},
};

/// A context as the current one, without a charge of its own.
CUcontext g_context = nullptr;
CUdeviceptr g_address = 0;
int make_context() {
  return call("cuInit", 0U) != 0 || call("cuGLCtxCreate", &g_context, 0U, CUdevice{0}) != 0 ? 1 : 0;
}
int allocate(CUdeviceptr* address, std::uint64_t bytes) { return call("cuMemAlloc_v2", address, std::size_t{bytes}); }

TEST_F(Unsimulated, AChildThatCannotBeStartedIsNoSuccess) {
  EXPECT_EQ(in_child([this] { return deny_fork() && in_child([] { return 0; }) == -1 ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([] {
    if (!deny_fork()) return 1;
    execl(CARVE_IN_SLICE, CARVE_IN_SLICE, "/usr/lib/carve/driver", "-", "-", "--", "/bin/true", nullptr);
    return 3;
  }), 2);
}

/// Another process of the slice, or a stray store, overwrites the entry of this process.
TEST_F(Unsimulated, AnOverwrittenAccountEntryLosesNoCharge) {
  StubSlice::start_slice(64 * kMiB);
  EXPECT_EQ(in_child([this] {
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    if (make_context() != 0 || allocate(&first, 40 * kMiB) != 0) return 1;
    abi::AccountPage& account = slice_->account(0);
    std::size_t own = 0;
    while (account.entries[own].used_bytes.load_relaxed() != 40 * kMiB) ++own;
    auto& shown = account.entries[own].used_bytes;
    shown.store_relaxed(0);
    if (allocate(&second, 30 * kMiB) != CUDA_ERROR_OUT_OF_MEMORY) return 2;
    if (charged() != 40 * kMiB) return 3;
    shown.store_relaxed(0);
    if (allocate(&second, 10 * kMiB) != 0) return 4;
    if (charged() != 50 * kMiB) return 5;
    shown.store_relaxed(0);
    if (call("cuMemFree_v2", first) != 0 || charged() != 10 * kMiB) return 6;
    if (call("cuMemFree_v2", second) != 0 || charged() != 0) return 7;
    shown.store_relaxed(~std::uint64_t{0});
    return allocate(&first, 64 * kMiB) == 0 && charged() == 64 * kMiB ? 0 : 8;
  }), 0);
}

TEST_F(Unsimulated, MemoryOfADestroyedContextIsNotChargedAfterManyContexts) {
  StubSlice::start_slice(64 * kMiB);
  EXPECT_EQ(in_child([this] {
    if (make_context() != 0) return 1;
    // Another thread does this while the driver allocates.
    stub<void(void (*)())>("carve_stub_before_alloc")([] {
      for (int i = 0; i < 65; ++i) {
        call("cuCtxDestroy_v2", g_context);
        call("cuGLCtxCreate", &g_context, 0U, CUdevice{0});
      }
      stub<void(CUresult)>("carve_stub_pointer_answer")(CUDA_ERROR_INVALID_VALUE);
    });
    if (allocate(&g_address, 8 * kMiB) != 0) return 2;
    return charged() == 0 ? 0 : 3;
  }), 0);
}

TEST_F(Unsimulated, AnAddressOfADestroyedContextMayBelongToAnotherAllocation) {
  StubSlice::start_slice(64 * kMiB);
  EXPECT_EQ(in_child([this] {
    if (make_context() != 0) return 1;
    stub<void(void (*)())>("carve_stub_before_alloc")([] {
      call("cuCtxDestroy_v2", g_context);
      call("cuGLCtxCreate", &g_context, 0U, CUdevice{0});
      allocate(&g_address, 4 * kMiB);
      stub<void(CUdeviceptr)>("carve_stub_next_address")(g_address);
    });
    CUdeviceptr address = 0;
    if (allocate(&address, 8 * kMiB) != 0 || address != g_address) return 2;
    if (charged() != 4 * kMiB) return 3;
    return call("cuMemFree_v2", g_address) == 0 && charged() == 0 ? 0 : 4;
  }), 0);
}

TEST_F(Unsimulated, AContextOfAGraphicsLibraryIsChargedUntilItIsDestroyed) {
  for (const ContextCall& one : kContextCalls) {
    start_slice(2 * kContext + kMiB);
    EXPECT_EQ(in_child([&] {
      CUcontext first = nullptr;
      CUcontext second = nullptr;
      CUcontext third = nullptr;
      if (call("cuInit", 0U) != 0 || charged() != 0) return 1;
      if (one.create(&first) != 0 || charged() != kContext) return 2;
      if (one.create(&second) != 0 || second == first || charged() != 2 * kContext) return 3;
      if (one.create(&third) != CUDA_ERROR_OUT_OF_MEMORY || charged() != 2 * kContext) return 4;
      if (contexts_made() != 2) return 5;  // the driver was not asked for what does not fit
      if (call("cuCtxDestroy_v2", first) != 0 || charged() != kContext) return 6;
      driver_fails_next();
      if (one.create(&third) != kRefusedByDriver || charged() != kContext) return 7;
      if (one.create(&third) != 0 || charged() != 2 * kContext) return 8;
      if (call("cuCtxDestroy_v2", second) != 0 || call("cuCtxDestroy_v2", third) != 0) return 9;
      return charged() == 0 ? 0 : 10;
    }), 0) << one.name;
    slice_.reset();
  }
}

TEST_F(Unsimulated, ARevokedSliceGetsNoContextOfAGraphicsLibraryAndNoGreenOne) {
  start_slice(4 * kContext);
  slice_->grant(0).revoked.store_seq_cst(1);
  EXPECT_EQ(in_child([] {
    call("cuInit", 0U);
    CUcontext context = nullptr;
    void* green = nullptr;
    for (const ContextCall& one : kContextCalls) {
      if (one.create(&context) != CUDA_ERROR_SYSTEM_NOT_READY) return 1;
    }
    if (call("cuGreenCtxCreate", &green, static_cast<void*>(nullptr), CUdevice{0}, 0U) != CUDA_ERROR_SYSTEM_NOT_READY)
      return 2;
    return contexts_made() == 0 ? 0 : 3;
  }), 0);
}

CUresult create_green(void** green) {
  return call("cuGreenCtxCreate", green, static_cast<void*>(nullptr), CUdevice{0}, 0U);
}

// A green context uses the primary context, which is charged once, until its last user is gone.
TEST_F(Unsimulated, AGreenContextIsChargedAsAUserOfThePrimaryContext) {
  start_slice(kContext + kMiB);
  EXPECT_EQ(in_child([this] {
    void* first = nullptr;
    void* second = nullptr;
    CUcontext primary = nullptr;
    if (call("cuInit", 0U) != 0) return 1;
    driver_fails_next();
    if (create_green(&first) != kRefusedByDriver || charged() != 0) return 2;
    if (create_green(&first) != 0 || charged() != kContext) return 3;
    if (create_green(&second) != 0 || charged() != kContext) return 4;
    if (call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0}) != 0 || charged() != kContext) return 5;
    if (call("cuGreenCtxDestroy", first) != 0 || charged() != kContext) return 6;
    if (call("cuDevicePrimaryCtxRelease_v2", CUdevice{0}) != 0 || charged() != kContext) return 7;
    if (call("cuGreenCtxDestroy", second) != 0 || charged() != 0) return 8;
    // The next user is charged again.
    if (call("cuDevicePrimaryCtxRetain", &primary, CUdevice{0}) != 0 || charged() != kContext) return 9;
    if (create_green(&first) != 0 || charged() != kContext) return 10;
    if (call("cuDevicePrimaryCtxRelease_v2", CUdevice{0}) != 0 || charged() != kContext) return 11;
    return call("cuGreenCtxDestroy", first) == 0 && charged() == 0 ? 0 : 12;
  }), 0);
}

TEST_F(Unsimulated, AGreenContextThatDoesNotFitIsRefused) {
  start_slice(kContext - 1);
  EXPECT_EQ(in_child([this] {
    void* green = nullptr;
    if (call("cuInit", 0U) != 0) return 1;
    if (create_green(&green) != CUDA_ERROR_OUT_OF_MEMORY) return 2;
    return contexts_made() == 0 && charged() == 0 ? 0 : 3;
  }), 0);
}

struct CaptureCalls {
  const char* name;
  CUresult (*begin)(CUstream stream);
  CUresult (*end)(CUstream stream);
  const char* launch;
};
constexpr CaptureCalls kCaptureCalls[] = {
    {"cuStreamBeginRecaptureToGraph",
     [](CUstream stream) {
       return call("cuStreamBeginRecaptureToGraph", stream, 2, CUgraph{}, static_cast<void*>(nullptr),
                   static_cast<void*>(nullptr));
     },
     [](CUstream stream) { return call("cuStreamEndCapture", stream, static_cast<CUgraph*>(nullptr)); },
     "cuLaunchKernel"},
    {"cuStreamBeginRecaptureToGraph_ptsz",
     [](CUstream stream) {
       return call("cuStreamBeginRecaptureToGraph_ptsz", stream, 2, CUgraph{}, static_cast<void*>(nullptr),
                   static_cast<void*>(nullptr));
     },
     [](CUstream stream) { return call("cuStreamEndCapture_ptsz", stream, static_cast<CUgraph*>(nullptr)); },
     "cuLaunchKernel_ptsz"},
    {"cuStreamBeginCaptureToCig",
     [](CUstream stream) { return call("cuStreamBeginCaptureToCig", stream, static_cast<void*>(nullptr)); },
     [](CUstream stream) { return call("cuStreamEndCaptureToCig", stream); }, "cuLaunchKernel"},
    {"cuStreamBeginCaptureToCig_ptsz",
     [](CUstream stream) { return call("cuStreamBeginCaptureToCig_ptsz", stream, static_cast<void*>(nullptr)); },
     [](CUstream stream) { return call("cuStreamEndCaptureToCig_ptsz", stream); }, "cuLaunchKernel_ptsz"},
};

CUresult launch(const char* how, CUstream stream) {
  void** none = nullptr;
  return call(how, reinterpret_cast<CUfunction>(std::uintptr_t{0x40}), 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, none, none);
}

/// True when the library assumes that some stream captures. Only then does a launch ask the driver about its stream.
bool captures_now(const char* how, CUstream stream) {
  const std::uint64_t before = capture_questions();
  return launch(how, stream) == 0 && capture_questions() != before;
}

// A launch into a capturing stream becomes a node: it is not metered and never waits, although the slice has no lease.
// Without the hook it would wait for a lease here and be killed by SIGALRM.
TEST_F(Unsimulated, ALaunchIntoACapturingStreamNeverWaits) {
  for (const CaptureCalls& one : kCaptureCalls) {
    start_slice(4 * kContext);
    EXPECT_EQ(in_child([&] {
      const auto stream = reinterpret_cast<CUstream>(std::uintptr_t{0x100});
      const auto other = reinterpret_cast<CUstream>(std::uintptr_t{0x200});
      CUcontext context = nullptr;
      if (call("cuInit", 0U) != 0 || call("cuDevicePrimaryCtxRetain", &context, CUdevice{0}) != 0) return 1;
      if (call("cuCtxSetCurrent", context) != 0 || captures_now(one.launch, stream)) return 2;
      driver_fails_next();
      if (one.begin(stream) != kRefusedByDriver || captures_now(one.launch, stream)) return 3;
      if (one.begin(stream) != 0 || !captures_now(one.launch, other)) return 4;
      const std::uint32_t solo = slice_->grant(0).lease.load_relaxed();
      slice_->grant(0).lease.store_seq_cst(static_cast<std::uint32_t>(abi::LeaseMode::kBlocked) | 4U << 8U);
      for (int i = 0; i < 100; ++i) {
        if (launch(one.launch, stream) != 0) return 5;
      }
      // The end of a stream that does not capture ends no capture.
      if (one.end(other) == 0 || launch(one.launch, stream) != 0) return 6;
      slice_->grant(0).lease.store_seq_cst(solo);
      if (one.end(stream) != 0 || captures_now(one.launch, stream)) return 7;
      return 0;
    }), 0) << one.name;
    slice_.reset();
  }
}

}  // namespace
}  // namespace carve::preload::testing
