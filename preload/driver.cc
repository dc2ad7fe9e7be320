#include "preload/driver.h"

#include <dlfcn.h>
#include <sched.h>

#include "abi/hello.h"
#include "preload/process.h"

// Declared without types on purpose: only the addresses are used here.
#define HOOK(symbol, kind) extern "C" void symbol();
#define GATE(symbol, kind, params, args, stream, key) extern "C" void symbol();
#include "preload/hooks_cuda.def"
#undef HOOK
#undef GATE

namespace carve::preload {

void* driver_function[kHooks];
DriverCalls driver;

namespace {

struct Row {
  const char* symbol;
  void (*hook)();
};

constexpr Row kRows[] = {
#define HOOK(symbol, kind) {#symbol, ::symbol},
#define GATE(symbol, kind, params, args, stream, key) {#symbol, ::symbol},
#include "preload/hooks_cuda.def"
#undef HOOK
#undef GATE
};

// A power of two, and the table is less than half full, so that a miss takes about one probe.
constexpr std::uint32_t kBuckets = 1024;
static_assert(kHooks * 2 < kBuckets);

struct Bucket {
  void* driver_address;
  void* hook;
};
Bucket by_address[kBuckets];

// In `process`, so that a child that is forked during the filling starts again. Filling twice does no harm.
enum State : int { kUntouched, kFilling, kFilled, kMissing };
int& state = process.resolve_state;

CUresult not_in_this_driver() { return CUDA_ERROR_NOT_SUPPORTED; }

std::uint32_t home_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint32_t>((bits * 0x9E3779B97F4A7C15ULL) >> 54);
}
static_assert(kBuckets == 1u << (64 - 54));

void remember(void* driver_address, void* hook) {
  for (std::uint32_t at = home_of(driver_address);; at = (at + 1) % kBuckets) {
    if (by_address[at].driver_address == driver_address) {
      return;
    }
    if (by_address[at].driver_address == nullptr) {
      by_address[at] = {driver_address, hook};
      return;
    }
  }
}

template <class Function>
void find(void* file, const char* symbol, Function*& out) {
  void* found = dlsym(file, symbol);
  out = reinterpret_cast<Function*>(found != nullptr ? found : reinterpret_cast<void*>(not_in_this_driver));
}

bool fill() {
  // The driver's file is an ELF dependency of this library, so it is loaded. It must be opened by its path and not by
  // its SONAME, because this library has the same SONAME.
  char path[sizeof(abi::kDriverFolder) + sizeof("/libcuda.so.1")];
  char* end = path;
  for (const char* from = abi::kDriverFolder; *from != 0;) *end++ = *from++;
  for (const char* from = "/libcuda.so.1"; *from != 0;) *end++ = *from++;
  *end = 0;
  void* file = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
  if (file == nullptr) {
    return false;
  }
  for (std::uint32_t i = 0; i < kHooks; ++i) {
    void* found = dlsym(file, kRows[i].symbol);
    void* hook = reinterpret_cast<void*>(kRows[i].hook);
    if (found != nullptr && found != hook) {
      driver_function[i] = found;
      remember(found, hook);
    } else {
      driver_function[i] = reinterpret_cast<void*>(not_in_this_driver);
    }
  }
#define FIND(symbol) find(file, #symbol, driver.symbol)
  FIND(cuDeviceGetCount);
  FIND(cuDeviceGet);
  FIND(cuDeviceGetUuid);
  FIND(cuDeviceGetUuid_v2);
  FIND(cuCtxGetCurrent);
  FIND(cuCtxSetCurrent);
  FIND(cuCtxGetDevice);
  FIND(cuDevicePrimaryCtxGetState);
  FIND(cuStreamGetCtx);
  FIND(cuStreamIsCapturing);
  FIND(cuStreamIsCapturing_ptsz);
  FIND(cuThreadExchangeStreamCaptureMode);
  FIND(cuEventCreate);
  FIND(cuEventRecord);
  FIND(cuEventQuery);
  FIND(cuEventElapsedTime);
  FIND(cuEventDestroy_v2);
  FIND(cuMemGetAddressRange_v2);
  FIND(cuMemPoolGetAttribute);
  FIND(cuDeviceGetMemPool);
  FIND(cuGraphGetNodes);
  FIND(cuGraphNodeGetType);
  FIND(cuGraphMemAllocNodeGetParams);
  FIND(cuGraphChildGraphNodeGetGraph);
  FIND(cuDeviceGetGraphMemAttribute);
  FIND(cuStreamGetDevice);
  FIND(cuStreamGetDevice_ptsz);
  FIND(cuCtxPushCurrent_v2);
  FIND(cuCtxPopCurrent_v2);
  FIND(cuPointerGetAttribute);
  FIND(cuDeviceGetDefaultMemPool);
  FIND(cuDeviceSetMemPool);
  FIND(cuMemPoolSetAttribute);
  FIND(cuMemGetAllocationPropertiesFromHandle);
  FIND(cuMemAddressReserve);
  FIND(cuMemAddressFree);
  FIND(cuArrayGetMemoryRequirements);
  FIND(cuMipmappedArrayGetMemoryRequirements);
#undef FIND
  return true;
}

bool resolve_slowly() {
  prepare_for_fork();
  for (;;) {
    int seen = kUntouched;
    if (__atomic_compare_exchange_n(&state, &seen, kFilling, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      const bool found = fill();
      __atomic_store_n(&state, found ? kFilled : kMissing, __ATOMIC_RELEASE);
      return found;
    }
    if (seen == kFilled || seen == kMissing) {
      return seen == kFilled;
    }
    sched_yield();
  }
}

}  // namespace

bool resolve_driver() {
  return __builtin_expect(__atomic_load_n(&state, __ATOMIC_ACQUIRE) == kFilled, 1) || resolve_slowly();
}

void* in_front_of(void* driver_address) {
  for (std::uint32_t at = home_of(driver_address);; at = (at + 1) % kBuckets) {
    if (by_address[at].driver_address == driver_address) {
      return by_address[at].hook;
    }
    if (by_address[at].driver_address == nullptr) {
      return driver_address;
    }
  }
}

}  // namespace carve::preload
