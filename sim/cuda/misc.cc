#include <unistd.h>

#include <cstring>
#include <type_traits>

#include "sim/cuda/copy.h"
#include "sim/cuda/memory.h"

// Small families: batched copies, values written in stream order, stream attributes, the profiler switch.
namespace carve::sim::cu {
namespace {

CUresult batch(CUdeviceptr* to, CUdeviceptr* from, std::size_t* bytes, std::size_t n,
               CUstream handle, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (to == nullptr || from == nullptr || bytes == nullptr || n == 0 || stream->legacy)
    return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < n; ++i) {
    CopyBox box;
    box.to = to[i];
    box.from = from[i];
    box.width = box.to_pitch = box.from_pitch = bytes[i];
    if (const CUresult rc = check(&box, true); rc != CUDA_SUCCESS) return rc;
    if (const CUresult rc = run_copy(stream, box, false); rc != CUDA_SUCCESS) return rc;
  }
  return CUDA_SUCCESS;
}

template <class T>
CUresult write_value(CUstream handle, CUdeviceptr address, T value, unsigned flags,
                     std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (flags > 1 || address % sizeof(T) != 0 || !Memory::get().covers(address, sizeof(T)))
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  append_host(stream,
              [=] { __atomic_store_n(reinterpret_cast<T*>(address), value, __ATOMIC_SEQ_CST); });
  return CUDA_SUCCESS;
}

/// Holds the stream until the memory has the value. The host-function thread polls it. Other host functions of the
/// process wait behind it, so a value that only a later host function writes never arrives.
template <class T>
CUresult wait_value(CUstream handle, CUdeviceptr address, T value, unsigned flags,
                    std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  constexpr unsigned kFlush = 1U << 30;
  const unsigned how = flags & ~kFlush;
  if (how > 3 || address % sizeof(T) != 0 || !Memory::get().covers(address, sizeof(T)))
    return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture.load() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  append_host(stream, [=] {
    for (;;) {
      const T now = __atomic_load_n(reinterpret_cast<const T*>(address), __ATOMIC_SEQ_CST);
      const bool there = how == 0   ? static_cast<std::make_signed_t<T>>(now - value) >= 0
                         : how == 1 ? now == value
                         : how == 2 ? (now & value) != 0
                                    : static_cast<T>(~(now | value)) != 0;
      if (there) return;
      usleep(50);
    }
  });
  return CUDA_SUCCESS;
}

CUresult stream_attribute(CUstream handle, void* value, bool read, std::uintptr_t zero) {
  CU_STREAM(stream, handle, zero);
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (read) std::memset(value, 0, 64);
  return CUDA_SUCCESS;
}

}  // namespace

#define CU_PAIR(name, twin, parameters, call)         \
  CU_EXPORT CUresult name parameters {                \
    constexpr std::uintptr_t zero = kStreamLegacy;    \
    return call;                                      \
  }                                                   \
  CU_EXPORT CUresult twin parameters {                \
    constexpr std::uintptr_t zero = kStreamPerThread; \
    return call;                                      \
  }
CU_PAIR(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t n, void*,
         std::size_t*, std::size_t, std::size_t*, CUstream s),
        batch(to, from, bytes, n, s, zero))
CU_PAIR(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,
        (CUdeviceptr * to, CUdeviceptr* from, std::size_t* bytes, std::size_t n, void*,
         std::size_t*, std::size_t, CUstream s),
        batch(to, from, bytes, n, s, zero))
CU_PAIR(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz,
        (CUstream s, CUdeviceptr a, std::uint32_t v, unsigned flags),
        write_value(s, a, v, flags, zero))
CU_PAIR(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz,
        (CUstream s, CUdeviceptr a, std::uint64_t v, unsigned flags),
        write_value(s, a, v, flags, zero))
CU_PAIR(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz,
        (CUstream s, CUdeviceptr a, std::uint32_t v, unsigned flags),
        wait_value(s, a, v, flags, zero))
CU_PAIR(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz,
        (CUstream s, CUdeviceptr a, std::uint64_t v, unsigned flags),
        wait_value(s, a, v, flags, zero))
CU_PAIR(cuStreamGetAttribute, cuStreamGetAttribute_ptsz, (CUstream s, int, void* value),
        stream_attribute(s, value, true, zero))
CU_PAIR(cuStreamSetAttribute, cuStreamSetAttribute_ptsz, (CUstream s, int, void* value),
        stream_attribute(s, value, false, zero))
CU_PAIR(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, (CUstream to, CUstream from),
        stream_attribute(to, from, false, zero))

CU_EXPORT CUresult cuProfilerStart() {
  CU_NEED_INIT();
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuProfilerStop() {
  CU_NEED_INIT();
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
