#include "base/mutex.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/stream.h"

namespace carve::sim::cu {
namespace {

CUresult create(CUstream* out, unsigned flags, int priority) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  const CUresult rc = open_stream(context, false, (flags & CU_STREAM_NON_BLOCKING) == 0, &stream);
  if (rc != CUDA_SUCCESS) return rc;
  stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  *out = stream;
  return CUDA_SUCCESS;
}

CUresult synchronize(CUstream handle, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (const CUresult rc = refuse_while_capturing(stream); rc != CUDA_SUCCESS) return rc;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  return wait_stream(stream);
}

CUresult query(CUstream handle, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (const CUresult rc = refuse_while_capturing(stream); rc != CUDA_SUCCESS) return rc;
  if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  if (stream->legacy && stream->context->blocking_streams.load() > 0) {
    const MutexLock lock(stream->context->mutex);
    for (const Stream* s : stream->context->streams)
      if (s->blocking && !reached({s->index, s->cell->submitted.load()}))
        return CUDA_ERROR_NOT_READY;
  }
  return reached({stream->index, stream->cell->submitted.load(std::memory_order_acquire)})
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_READY;
}

CUresult get_flags(CUstream handle, unsigned* flags, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}
CUresult get_priority(CUstream handle, int* priority, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}
CUresult get_context(CUstream handle, CUcontext* context, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = stream->context;
  return CUDA_SUCCESS;
}
CUresult get_context_v2(CUstream handle, CUcontext* context, void** green, std::uintptr_t zero) {
  if (green != nullptr) *green = nullptr;
  return get_context(handle, context, zero);
}
CUresult get_id(CUstream handle, unsigned long long* id, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id;
  return CUDA_SUCCESS;
}
CUresult get_device(CUstream handle, CUdevice* device, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult add_callback(CUstream handle, CUstreamCallback callback, void* data, unsigned flags,
                      std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  append_host(stream, [=] { callback(handle, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}

CUresult launch_host(CUstream handle, CUhostFn function, void* data, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() != nullptr) return capture_host(stream, function, data);
  append_host(stream, [=] { function(data); });
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuStreamCreate(CUstream* out, unsigned flags) { return create(out, flags, 0); }
CU_EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return create(out, flags, priority);
}

CU_EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  CU_NEED_INIT();
  if (reinterpret_cast<std::uintptr_t>(handle) <= kStreamPerThread)
    return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = checked(handle);
  if (stream == nullptr || stream->legacy || stream->thread != 0) return CUDA_ERROR_INVALID_HANDLE;
  abandon_capture(stream);
  if (stream->host_pending.load() > 0) wait_stream(stream);
  close_stream(stream);  // commands in flight still run
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

// Defines both forms of a call. The handle 0 (`zero`) is the legacy default stream in the plain form, and the default
// stream of the calling thread in the form with _ptsz.
#define CU_BOTH(name, implementation, parameters, arguments) \
  CU_EXPORT CUresult name parameters {                       \
    constexpr std::uintptr_t zero = kStreamLegacy;           \
    return implementation arguments;                         \
  }                                                          \
  CU_EXPORT CUresult name##_ptsz parameters {                \
    constexpr std::uintptr_t zero = kStreamPerThread;        \
    return implementation arguments;                         \
  }

CU_BOTH(cuStreamSynchronize, synchronize, (CUstream s), (s, zero))
CU_BOTH(cuStreamQuery, query, (CUstream s), (s, zero))
CU_BOTH(cuStreamGetFlags, get_flags, (CUstream s, unsigned* flags), (s, flags, zero))
CU_BOTH(cuStreamGetPriority, get_priority, (CUstream s, int* priority), (s, priority, zero))
CU_BOTH(cuStreamGetCtx, get_context, (CUstream s, CUcontext* context), (s, context, zero))
CU_BOTH(cuStreamGetCtx_v2, get_context_v2, (CUstream s, CUcontext* context, void** green),
        (s, context, green, zero))
CU_BOTH(cuStreamGetId, get_id, (CUstream s, unsigned long long* id), (s, id, zero))
CU_BOTH(cuStreamGetDevice, get_device, (CUstream s, CUdevice* device), (s, device, zero))
CU_BOTH(cuStreamAddCallback, add_callback,
        (CUstream s, CUstreamCallback callback, void* data, unsigned flags),
        (s, callback, data, flags, zero))
CU_BOTH(cuLaunchHostFunc, launch_host, (CUstream s, CUhostFn function, void* data),
        (s, function, data, zero))

// syncMode selects how the host thread waits. The simulator always sleeps.
CU_BOTH(cuLaunchHostFunc_v2, launch_host,
        (CUstream s, CUhostFn function, void* data, unsigned /*sync_mode*/),
        (s, function, data, zero))

}  // namespace carve::sim::cu
