#include "sim/cuda/context.h"

#include <algorithm>

#include "base/mutex.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/stream.h"

namespace carve::sim::cu {
namespace {

constexpr unsigned kApiVersion = 13050;
constexpr std::size_t kDefaultLimits[] = {1024, 7340032, 8388608, 2, 2048, 128, 0, 0, 0, 0, 0};
constexpr int kLimits = 11;

CUresult create(CUcontext* out, unsigned flags, CUdevice dev, unsigned version) {
  CU_NEED_INIT();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = Driver::get().device(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  Context* context = nullptr;
  const CUresult rc = make_context(device, flags, version, false, &context);
  if (rc != CUDA_SUCCESS) return rc;
  push_current(context);
  *out = context;
  return CUDA_SUCCESS;
}

void refresh_current() {
  const auto& stack = thread_state().stack;
  t_current = stack.empty() ? nullptr : stack.back();
}

}  // namespace

CUresult make_context(Device* device, unsigned flags, unsigned api_version, bool primary,
                      Context** out) {
  Driver& driver = Driver::get();
  std::uint64_t handle = 0;
  const Status status = driver.kernel().call(Op::kContextCreate, device->card, 0, 0, &handle);
  if (status != Status::kOk) return error_of(status);
  auto* context = new Context();
  context->device = device;
  context->handle = handle;
  context->fault = &driver.channel()->faults[device->card];
  context->id = driver.next_id();
  context->flags = flags;
  context->api_version = api_version;
  context->primary = primary;
  std::copy(std::begin(kDefaultLimits), std::end(kDefaultLimits), context->limits);
  Stream* legacy = nullptr;
  if (const CUresult rc = open_stream(context, true, true, &legacy); rc != CUDA_SUCCESS) {
    driver.kernel().call(Op::kContextDestroy, 0, handle, 0);
    delete context;
    return rc;
  }
  const MutexLock lock(driver.mutex());
  driver.contexts().push_back(context);
  *out = context;
  return CUDA_SUCCESS;
}

static Stream* last_stream(Context* context) {
  const MutexLock lock(context->mutex);
  return context->streams.empty() ? nullptr : context->streams.back();
}

void destroy_context(Context* context) {
  Driver& driver = Driver::get();
  wait_context(context);
  context->magic = 0;
  free_context_memory(context);
  unload_context_modules(context);
  for (Stream* last = last_stream(context); last != nullptr; last = last_stream(context)) close_stream(last);
  close_stream(context->legacy);
  context->legacy = nullptr;
  driver.kernel().call(Op::kContextDestroy, 0, context->handle, 0);
  const MutexLock lock(driver.mutex());
  std::erase(driver.contexts(), context);
  // The object itself is never freed: programs hold stale handles, and a call with one must return an error.
}

void push_current(Context* context) {
  thread_state().stack.push_back(context);
  t_current = context;
}

void set_current(Context* context) {
  auto& stack = thread_state().stack;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  refresh_current();
}

CU_EXPORT CUresult cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned flags,
                                  CUdevice dev) {
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, dev, kApiVersion);
}
CU_EXPORT CUresult cuCtxCreate_v3(CUcontext* out, void* affinity, int count, unsigned flags,
                                  CUdevice dev) {
  if (affinity != nullptr && count != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return create(out, flags, dev, 3020);
}
CU_EXPORT CUresult cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice dev) {
  return create(out, flags, dev, 3020);
}
CU_EXPORT CUresult cuCtxCreate(CUcontext* out, unsigned flags, CUdevice dev) {
  return create(out, flags, dev, 3010);
}

CU_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  CU_NEED_INIT();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = thread_state().stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  refresh_current();
  destroy_context(context);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }

CU_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  CU_NEED_INIT();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  push_current(context);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }

CU_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  CU_NEED_INIT();
  auto& stack = thread_state().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = stack.back();
  stack.pop_back();
  refresh_current();
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

CU_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  CU_NEED_INIT();
  if (context != nullptr && !alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  set_current(context);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
  CU_NEED_INIT();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = t_current;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetDevice(CUdevice* out) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->device->ordinal;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* out, CUcontext context) {
  if (context == nullptr) return cuCtxGetDevice(out);
  CU_NEED_INIT();
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = context->device->ordinal;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetFlags(unsigned* flags) {
  CU_NEED_CONTEXT(context);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags | CU_CTX_MAP_HOST;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  CU_NEED_CONTEXT(context);
  if ((flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags = flags;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  CU_NEED_INIT();
  if (context == nullptr) context = t_current;
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxSynchronize() {
  CU_NEED_CONTEXT(context);
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  return wait_context(context);
}
CU_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  CU_NEED_INIT();
  if (context == nullptr) context = t_current;
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return wait_context(context);
}

CU_EXPORT CUresult cuCtxGetLimit(std::size_t* value, int limit) {
  CU_NEED_CONTEXT(context);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (limit < 0 || limit >= kLimits) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *value = context->limits[limit];
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxSetLimit(int limit, std::size_t value) {
  CU_NEED_CONTEXT(context);
  if (limit < 0 || limit >= kLimits) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetCacheConfig(int* config) {
  CU_NEED_CONTEXT(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = 0;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxSetCacheConfig(int config) {
  CU_NEED_CONTEXT(context);
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxGetSharedMemConfig(int* config) {
  CU_NEED_CONTEXT(context);
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = 1;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxSetSharedMemConfig(int config) {
  CU_NEED_CONTEXT(context);
  return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxResetPersistingL2Cache() {
  CU_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  CU_NEED_INIT();
  if (context == nullptr) context = t_current;
  if (!alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context->api_version;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  CU_NEED_CONTEXT(context);
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuCtxAttach(CUcontext* out, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(Driver::get().mutex());
  ++context->users;
  *out = context;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxDetach(CUcontext context) {
  CU_NEED_INIT();
  if (!alive(context) || context->primary || t_current != context) return CUDA_ERROR_INVALID_CONTEXT;
  {
    const MutexLock lock(Driver::get().mutex());
    if (--context->users > 0) return CUDA_SUCCESS;
  }
  return cuCtxDestroy_v2(context);
}

CU_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CU_NEED_CONTEXT(context);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!alive(peer) || peer->device == context->device) return CUDA_ERROR_INVALID_CONTEXT;
  const Machine& machine = Driver::get().machine();
  if (link_between(machine, context->device->card, peer->device->card) == Link::kOtherNode)
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const MutexLock lock(context->mutex);
  if (std::find(context->peers.begin(), context->peers.end(), peer) != context->peers.end())
    return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  context->peers.push_back(peer);
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CU_NEED_CONTEXT(context);
  const MutexLock lock(context->mutex);
  return std::erase(context->peers, peer) > 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace carve::sim::cu
