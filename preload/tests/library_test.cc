// Tests the library on a driver that does no work, in a slice with grants that do not change: how programs find it, how
// it connects, and what it does not change. Tests that need a card with memory and time are in tests/isolation.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "preload/driver_abi.h"
#include "preload/testing/stub_slice.h"

namespace carve::preload::testing {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

constexpr const char* kHooked[] = {
#define HOOK(symbol, kind) #symbol,
#define GATE(symbol, kind, params, args, stream, key) #symbol,
#include "preload/hooks_cuda.def"
#undef HOOK
#undef GATE
};

class Library : public StubSlice {
 protected:
  Library() : StubSlice(CARVE_LIBRARY, CARVE_STUB) {}
};

template <class Function>
Function* function(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

using Init = CUresult(unsigned);
using Retain = CUresult(CUcontext*, CUdevice);
using SetCurrent = CUresult(CUcontext);
using Alloc = CUresult(CUdeviceptr*, std::size_t);
using Free = CUresult(CUdeviceptr);
using Info = CUresult(std::size_t*, std::size_t*);
using TotalMem = CUresult(std::size_t*, CUdevice);
using GetProc = CUresult(const char*, void**, int, std::uint64_t, int*);

CUresult start(void* library) {
  CUcontext context = nullptr;
  const CUresult result = function<Init>(library, "cuInit")(0);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  const CUresult retained = function<Retain>(library, "cuDevicePrimaryCtxRetain")(&context, 0);
  return retained != CUDA_SUCCESS ? retained : function<SetCurrent>(library, "cuCtxSetCurrent")(context);
}

bool is_hook(void* address) {
  Dl_info where{};
  return dladdr(address, &where) != 0 && std::string(where.dli_fname).find("carve/driver") == std::string::npos;
}

TEST_F(Library, RefusesBeyondTheLimitAndGrantsTheRemainder) {
  start_slice(64 * kMiB, 30, 10 * kMiB);
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (start(library) != 0) return 1;
    auto* alloc = function<Alloc>(library, "cuMemAlloc_v2");
    auto* info = function<Info>(library, "cuMemGetInfo_v2");
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    if (info(&free_bytes, &total) != 0 || total != 64 * kMiB || free_bytes != 54 * kMiB) return 2;
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    if (alloc(&first, 54 * kMiB + 1) != CUDA_ERROR_OUT_OF_MEMORY) return 3;
    if (alloc(&first, 20 * kMiB) != 0) return 4;
    if (alloc(&second, 34 * kMiB) != 0) return 5;
    CUdeviceptr third = 0;
    if (alloc(&third, 1) != CUDA_ERROR_OUT_OF_MEMORY) return 6;
    if (function<Free>(library, "cuMemFree_v2")(first) != 0) return 7;
    return alloc(&third, 20 * kMiB) == 0 ? 0 : 8;
  }), 0);
}

TEST_F(Library, AnOddRemainderIsGrantedToTheByte) {
  start_slice(10 * kMiB + 12345);
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (start(library) != 0) return 1;
    CUdeviceptr address = 0;
    if (function<Alloc>(library, "cuMemAlloc_v2")(&address, 10 * kMiB + 12346) == 0) return 2;
    if (function<Alloc>(library, "cuMemAlloc_v2")(&address, 10 * kMiB + 12345) != 0) return 3;
    std::size_t free_bytes = 1;
    std::size_t total = 0;
    function<Info>(library, "cuMemGetInfo_v2")(&free_bytes, &total);
    return free_bytes == 0 ? 0 : 4;
  }), 0);
}

TEST_F(Library, SmallAllocationsShareGranules) {
  start_slice(64 * kMiB);
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (start(library) != 0) return 1;
    auto* alloc = function<Alloc>(library, "cuMemAlloc_v2");
    auto* info = function<Info>(library, "cuMemGetInfo_v2");
    std::vector<CUdeviceptr> held(4097);
    for (std::size_t i = 0; i < 4096; ++i) {
      if (alloc(&held[i], 512) != 0) return 2;
    }
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    info(&free_bytes, &total);
    if (free_bytes != 62 * kMiB) return 3;
    if (alloc(&held[4096], 1) != 0) return 4;
    info(&free_bytes, &total);
    if (free_bytes != 60 * kMiB) return 5;
    for (const CUdeviceptr address : held) {
      if (function<Free>(library, "cuMemFree_v2")(address) != 0) return 6;
    }
    info(&free_bytes, &total);
    return free_bytes == 64 * kMiB ? 0 : 7;
  }), 0);
  EXPECT_EQ(slice_->used_bytes(0), 0U);
}

TEST_F(Library, WithoutASliceEveryCallIsRefused) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (start(library) != CUDA_ERROR_SYSTEM_NOT_READY) return 1;
    // The driver itself is initialised now. Calls that a program makes in spite of the error are refused too, without
    // another wait.
    CUdeviceptr address = 0;
    CUcontext context = nullptr;
    if (function<Alloc>(library, "cuMemAlloc_v2")(&address, 1) != CUDA_ERROR_SYSTEM_NOT_READY) return 2;
    return function<Retain>(library, "cuDevicePrimaryCtxRetain")(&context, 0) == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 3;
  }), 0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 4.9);
  EXPECT_LT(took.count(), 6.5);
}

TEST_F(Library, ACardOutsideTheSliceIsRefused) {
  CardSpec other;
  other.uuid = "GPU-ffffffff-0405-0607-0809-0a0b0c0d0e0f";
  other.memory_limit = 64 * kMiB;
  slice_ = std::make_unique<SliceServer>("/run/carve/slices/test", std::vector<CardSpec>{other});
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (function<Init>(library, "cuInit")(0) != 0) return 1;
    CUcontext context = nullptr;
    std::size_t bytes = 1;
    if (function<Retain>(library, "cuDevicePrimaryCtxRetain")(&context, 0) != CUDA_ERROR_SYSTEM_NOT_READY) return 2;
    return function<TotalMem>(library, "cuDeviceTotalMem_v2")(&bytes, 0) != 0 || bytes == 0 ? 0 : 3;
  }), 0);
}

TEST_F(Library, ARevokedSliceIsRefused) {
  start_slice(64 * kMiB);
  slice_->grant(0).revoked.store_seq_cst(1);
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    return start(library) == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 1;
  }), 0);
}

TEST_F(Library, AForkedChildConnectsForItself) {
  start_slice(64 * kMiB);
  EXPECT_EQ(in_child([this] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (start(library) != 0) return 1;
    CUdeviceptr address = 0;
    if (function<Alloc>(library, "cuMemAlloc_v2")(&address, 20 * kMiB) != 0) return 2;
    const int child = in_child([&] {
      if (start(library) != 0) return 11;
      CUdeviceptr own = 0;
      if (function<Alloc>(library, "cuMemAlloc_v2")(&own, 44 * kMiB + 1) == 0) return 12;  // the parent has 20
      if (function<Alloc>(library, "cuMemAlloc_v2")(&own, 44 * kMiB) != 0) return 13;
      // An address of the parent is not in the child's table, so the free gives back no charge.
      function<Free>(library, "cuMemFree_v2")(address);
      return function<Alloc>(library, "cuMemAlloc_v2")(&own, 1) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 14;
    });
    return child;
  }), 0);
  EXPECT_EQ(slice_->connections(), 2U);
}

std::size_t threads_now() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    count += task.path().empty() ? 0 : 1;
  }
  return count;
}

TEST_F(Library, TheHelperThreadIsRecreatedAfterFork) {
  start_slice(64 * kMiB);
  using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                          void**, void**);
  EXPECT_EQ(in_child([this] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    auto* launch = function<Launch>(library, "cuLaunchKernel");
    const auto run = [&] { return launch(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); };
    if (start(library) != 0 || threads_now() != 1) return 1;
    if (run() != 0 || threads_now() != 2) return 2;
    return in_child([&] {
      if (threads_now() != 1 || start(library) != 0 || threads_now() != 1) return 11;
      return run() == 0 && threads_now() == 2 ? 0 : 12;
    });
  }), 0);
}

TEST_F(Library, EveryHookIsFoundUnderBothNames) {
  start_slice(64 * kMiB);
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    EXPECT_EQ(in_child([&] {
      void* library = dlopen(name, RTLD_NOW);
      for (const char* symbol : kHooked) {
        void* found = dlsym(library, symbol);
        if (found == nullptr || !is_hook(found)) {
          std::fprintf(stderr, "%s by %s\n", symbol, name);
          return 1;
        }
      }
      // A symbol without a hook is the driver's own.
      void* passed = dlsym(library, "cuEventQuery");
      return passed != nullptr && !is_hook(passed) ? 0 : 2;
    }), 0) << name;
  }
}

TEST_F(Library, EveryWayOfLoadingFindsTheLibrary) {
  start_slice(64 * kMiB);
  const auto refuses = [](void* library) {
    CUdeviceptr address = 0;
    return dlsym(library, "cuInit") != nullptr && start(library) == 0 &&
           function<Alloc>(library, "cuMemAlloc_v2")(&address, 65 * kMiB) == CUDA_ERROR_OUT_OF_MEMORY;
  };
  EXPECT_EQ(in_child([&] { return refuses(dlopen("libcuda.so.1", RTLD_NOW | RTLD_DEEPBIND)) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return refuses(dlopen("libcuda.so", RTLD_LAZY | RTLD_GLOBAL)) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] { return refuses(dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW)) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] {
    clearenv();
    return refuses(dlopen("libcuda.so.1", RTLD_NOW)) ? 0 : 1;
  }), 0);
  EXPECT_EQ(in_child([&] {  // through the global scope
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) return 1;
    return refuses(RTLD_DEFAULT) ? 0 : 2;
  }), 0);
}

TEST_F(Library, LookedUpAddressesAreHooks) {
  start_slice(64 * kMiB);
  EXPECT_EQ(in_child([] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    auto* get_proc = function<GetProc>(library, "cuGetProcAddress_v2");
    void* at = nullptr;
    if (get_proc("cuMemAlloc", &at, 12000, 0, nullptr) != 0 || at != dlsym(library, "cuMemAlloc_v2")) return 1;
    if (get_proc("cuLaunchKernel", &at, 12000, 0, nullptr) != 0 || at != dlsym(library, "cuLaunchKernel")) return 2;
    if (get_proc("cuMemAlloc", &at, 2000, 0, nullptr) != 0 || at != nullptr) return 3;  // the driver's own result
    if (get_proc("cuCtxGetDevice", &at, 12000, 0, nullptr) != 0 || at == nullptr || is_hook(at)) return 4;
    return 0;
  }), 0);
}

/// The process state that the library must not change: umask, signals, environment, descriptors, threads.
struct Host {
  mode_t mask;
  std::vector<void*> handlers;
  std::vector<std::string> environment;
  std::vector<std::string> descriptors;
  std::size_t threads;

  bool operator==(const Host&) const = default;
};

Host look() {
  Host host;
  host.mask = umask(0);
  umask(host.mask);
  for (int number = 1; number < 65; ++number) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    host.handlers.push_back(reinterpret_cast<void*>(action.sa_handler));
  }
  for (char** word = environ; *word != nullptr; ++word) {
    host.environment.emplace_back(*word);
  }
  for (int fd = 0; fd < 256; ++fd) {
    char target[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof target - 1) > 0) {
      host.descriptors.push_back(link + target);
    }
  }
  host.threads = threads_now();
  return host;
}

TEST_F(Library, DoesNotChangeTheHostProcess) {
  for (const bool limited : {false, true}) {
    start_slice(limited ? 64 * kMiB : ~std::uint64_t{0}, limited ? 30 : 100);
    EXPECT_EQ(in_child([&] {
      umask(0137);
      const Host before = look();
      void* library = dlopen("libcuda.so.1", RTLD_NOW);
      if (start(library) != 0) return 1;
      CUdeviceptr address = 0;
      auto* alloc = function<Alloc>(library, "cuMemAlloc_v2");
      if (alloc(&address, kMiB) != 0 || function<Free>(library, "cuMemFree_v2")(address) != 0) return 2;
      using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                              CUstream, void**, void**);
      for (int i = 0; i < 1000; ++i) {
        if (function<Launch>(library, "cuLaunchKernel")(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) != 0)
          return 3;
      }
      Host after = look();
      if (after.threads > before.threads + (limited ? 1 : 0)) return 4;
      after.threads = before.threads;
      return after == before ? 0 : 5;
    }), 0) << (limited ? "limited" : "unlimited");
    slice_.reset();
  }
}

}  // namespace
}  // namespace carve::preload::testing
