#include <cstring>
#include <utility>

#include "preload/driver_abi.h"

// A driver that does no work, for measuring the cost of the hooks and for the library's unit tests. It exports every
// name in the hook table, and each function returns immediately. Allocation, contexts, the state of captures, and the
// calls that the library makes while it connects, return plausible results. It has one device. One stream captures at a
// time. Like a real driver it is linked -Bsymbolic. A test reads and sets its state by the carve_stub_ functions.
#define STUB extern "C" __attribute__((visibility("default")))

namespace {
bool initialised = false;
thread_local CUcontext current = nullptr;
thread_local CUdeviceptr next_address = 0;
thread_local CUdeviceptr freed_address = 0;
thread_local std::uint64_t launches = 0;
thread_local CUresult fails_with = CUDA_SUCCESS;  // of the next call that creates a context or begins a capture
thread_local std::uint64_t contexts_made = 0;
thread_local std::uint64_t capture_questions = 0;  // of this thread: is the stream capturing?
thread_local void (*before_alloc)() = nullptr;
thread_local CUresult pointer_answer = CUDA_SUCCESS;
CUstream captures = nullptr;
int primary_users = 0;  // retains and green contexts

constexpr std::uintptr_t kPrimary = 0x1000;
constexpr std::uintptr_t kFirstContext = 0x100000;
constexpr std::uintptr_t kFirstGreen = 0x200000;

CUresult make_context(CUcontext* context) {
  if (fails_with != CUDA_SUCCESS) return std::exchange(fails_with, CUDA_SUCCESS);
  current = *context = reinterpret_cast<CUcontext>(kFirstContext + 16 * ++contexts_made);
  return CUDA_SUCCESS;
}

CUresult begin_capture(CUstream stream) {
  if (fails_with != CUDA_SUCCESS) return std::exchange(fails_with, CUDA_SUCCESS);
  return __atomic_exchange_n(&captures, stream, __ATOMIC_ACQ_REL) == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult end_capture(CUstream stream) {
  CUstream expected = stream;
  return __atomic_compare_exchange_n(&captures, &expected, nullptr, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult question(CUstream stream, int* status) {
  ++capture_questions;
  *status = stream != nullptr && __atomic_load_n(&captures, __ATOMIC_ACQUIRE) == stream ? 1 : 0;
  return CUDA_SUCCESS;
}
}  // namespace

/// The next call of this thread that creates a context or begins a capture returns `result` and does nothing.
STUB void carve_stub_fail_next(CUresult result) { fails_with = result; }
/// Called once, within this thread's next cuMemAlloc_v2.
STUB void carve_stub_before_alloc(void (*call)()) { before_alloc = call; }
/// The next cuMemAlloc_v2 of this thread returns this address.
STUB void carve_stub_next_address(CUdeviceptr address) { freed_address = address; }
/// The answer to this thread's questions about an address.
STUB void carve_stub_pointer_answer(CUresult answer) { pointer_answer = answer; }
/// The number of contexts that this thread has created, green ones included.
STUB std::uint64_t carve_stub_contexts() { return contexts_made; }
/// How often this thread has asked whether a stream captures.
STUB std::uint64_t carve_stub_capture_questions() { return capture_questions; }

STUB CUresult cuInit(unsigned) {
  initialised = true;
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return initialised ? CUDA_SUCCESS : 3;
}
STUB CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : 101;
}
STUB CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) {
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<unsigned char>(i);
  }
  return CUDA_SUCCESS;
}
STUB CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
STUB CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
STUB CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return current != nullptr ? CUDA_SUCCESS : 201;
}
STUB CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(kPrimary);
  __atomic_add_fetch(&primary_users, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}
STUB CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  __atomic_sub_fetch(&primary_users, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}
STUB CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = __atomic_load_n(&primary_users, __ATOMIC_ACQUIRE) > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
STUB CUresult cuGLCtxCreate(CUcontext* context, unsigned, CUdevice) { return make_context(context); }
STUB CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned, CUdevice) { return make_context(context); }
STUB CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned, CUdevice, unsigned, void*) {
  return make_context(context);
}
STUB CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned, CUdevice, unsigned, void*) {
  return make_context(context);
}
STUB CUresult cuGreenCtxCreate(void** green, void*, CUdevice, unsigned) {
  if (fails_with != CUDA_SUCCESS) return std::exchange(fails_with, CUDA_SUCCESS);
  *green = reinterpret_cast<void*>(kFirstGreen + 16 * ++contexts_made);
  __atomic_add_fetch(&primary_users, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}
STUB CUresult cuGreenCtxDestroy(void*) {
  __atomic_sub_fetch(&primary_users, 1, __ATOMIC_ACQ_REL);
  return CUDA_SUCCESS;
}
STUB CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  if (before_alloc != nullptr) std::exchange(before_alloc, nullptr)();
  if (next_address == 0) {
    next_address = reinterpret_cast<CUdeviceptr>(&next_address) << 16;  // a separate address range per thread
  }
  // Like a driver, it returns the address that was freed last. An endless series of new addresses would measure the
  // growth of the pointer table.
  *address = freed_address != 0 ? freed_address : next_address += 2U << 20;
  freed_address = 0;
  return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
STUB CUresult cuMemFree_v2(CUdeviceptr address) {
  freed_address = address;
  return CUDA_SUCCESS;
}
STUB CUresult cuPointerGetAttribute(void*, int, CUdeviceptr) { return pointer_answer; }
STUB CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = std::size_t{80} << 30;
  *total_bytes = std::size_t{80} << 30;
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamIsCapturing(CUstream stream, int* status) { return question(stream, status); }
STUB CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status) { return question(stream, status); }
STUB CUresult cuStreamBeginRecaptureToGraph(CUstream stream, int, CUgraph, void*, void*) {
  return begin_capture(stream);
}
STUB CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int, CUgraph, void*, void*) {
  return begin_capture(stream);
}
STUB CUresult cuStreamBeginCaptureToCig(CUstream stream, void*) { return begin_capture(stream); }
STUB CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void*) { return begin_capture(stream); }
STUB CUresult cuStreamEndCapture(CUstream stream, CUgraph*) { return end_capture(stream); }
STUB CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph*) { return end_capture(stream); }
STUB CUresult cuStreamEndCaptureToCig(CUstream stream) { return end_capture(stream); }
STUB CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) { return end_capture(stream); }
// A launch counts as 5 us of card time, so that the library can learn durations from events.
STUB CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(new std::uint64_t{0});
  return CUDA_SUCCESS;
}
STUB CUresult cuEventRecord(CUevent event, CUstream) {
  *reinterpret_cast<std::uint64_t*>(event) = launches;
  return CUDA_SUCCESS;
}
STUB CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }
STUB CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  const std::uint64_t count = *reinterpret_cast<std::uint64_t*>(to) - *reinterpret_cast<std::uint64_t*>(from);
  *milliseconds = static_cast<float>(static_cast<double>(count) * 5e-3);
  return CUDA_SUCCESS;
}
STUB CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<std::uint64_t*>(event);
  return CUDA_SUCCESS;
}
STUB CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
STUB CUresult cuThreadExchangeStreamCaptureMode(int*) { return CUDA_SUCCESS; }
STUB CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             CUstream, void**, void**) {
  ++launches;
  return CUDA_SUCCESS;
}

// The rest of the table, by name only. The build generates stub_names.inc from the table, without the functions above.
extern "C" CUresult carve_stub_done() { return CUDA_SUCCESS; }
#define NAME_ONLY(symbol) \
  extern "C" __attribute__((visibility("default"), alias("carve_stub_done"))) CUresult symbol();
#include "stub_names.inc"

namespace {
struct Row {
  const char* name;
  int version;
  void* function;
};
// The symbols that the lookup benchmark requests. The cost of this search cancels out, because the benchmark subtracts
// the driver's own time.
const Row kRows[] = {
    {"cuLaunchKernel", 4000, reinterpret_cast<void*>(cuLaunchKernel)},
    {"cuMemAlloc", 3020, reinterpret_cast<void*>(cuMemAlloc_v2)},
    {"cuMemFree", 3020, reinterpret_cast<void*>(cuMemFree_v2)},
    {"cuMemGetInfo", 3020, reinterpret_cast<void*>(cuMemGetInfo_v2)},
    {"cuCtxGetDevice", 2000, reinterpret_cast<void*>(cuCtxGetDevice)},
    {"cuStreamSynchronize", 2000, reinterpret_cast<void*>(cuStreamSynchronize)},
};
}  // namespace

STUB CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t, int* status) {
  *function = nullptr;
  for (const Row& row : kRows) {
    if (version >= row.version && std::strcmp(row.name, symbol) == 0) {
      *function = row.function;
    }
  }
  if (status != nullptr) {
    *status = *function == nullptr ? 1 : 0;
  }
  return CUDA_SUCCESS;
}
