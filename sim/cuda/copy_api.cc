#include "sim/cuda/copy.h"

// The memcpy and memset families. Each name is one line: destination, source, stream.
namespace carve::sim::cu {
namespace {

template <class T>
std::uint64_t address(T* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

CUresult plain(std::uint64_t to, bool to_device, std::uint64_t from, bool from_device,
               std::size_t bytes, CUstream handle, std::uintptr_t zero, bool wait,
               bool unified = false) {
  CU_STREAM(stream, handle, zero);
  if (bytes == 0) return CUDA_SUCCESS;
  CopyBox box;
  box.to = to;
  box.from = from;
  box.width = box.to_pitch = box.from_pitch = bytes;
  box.to_device = to_device;
  box.from_device = from_device;
  if (const CUresult rc = check(&box, unified); rc != CUDA_SUCCESS) return rc;
  return run_copy(stream, box, wait);
}

template <class Record>
CUresult pitched(const Record* record, CUstream handle, std::uintptr_t zero, bool wait) {
  CU_STREAM(stream, handle, zero);
  if (record == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyBox box;
  if (const CUresult rc = box_of(*record, &box); rc != CUDA_SUCCESS) return rc;
  if (box.width == 0 || box.height == 0 || box.depth == 0) return CUDA_SUCCESS;
  if (const CUresult rc = check(&box, false); rc != CUDA_SUCCESS) return rc;
  return run_copy(stream, box, wait);
}

CUresult fill(std::uint64_t to, std::size_t pitch, std::uint32_t value, std::uint32_t element,
              std::size_t width, std::size_t height, CUstream handle, std::uintptr_t zero,
              bool wait) {
  CU_STREAM(stream, handle, zero);
  if (height > 1 && pitch < width * element) return CUDA_ERROR_INVALID_VALUE;
  const Fill body{to, pitch, value, element, width, height};
  if (const CUresult rc = check(body); rc != CUDA_SUCCESS) return rc;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  return run_fill(stream, body, wait);
}

}  // namespace

// A synchronous function and its variant for the per-thread default stream.
#define CU_SYNC(name, twin, parameters, call)         \
  CU_EXPORT CUresult name parameters {                \
    constexpr std::uintptr_t zero = kStreamLegacy;    \
    constexpr CUstream s = nullptr;                   \
    constexpr bool wait = true;                       \
    return call;                                      \
  }                                                   \
  CU_EXPORT CUresult twin parameters {                \
    constexpr std::uintptr_t zero = kStreamPerThread; \
    constexpr CUstream s = nullptr;                   \
    constexpr bool wait = true;                       \
    return call;                                      \
  }
#define CU_ASYNC(name, twin, parameters, call)        \
  CU_EXPORT CUresult name parameters {                \
    constexpr std::uintptr_t zero = kStreamLegacy;    \
    constexpr bool wait = false;                      \
    return call;                                      \
  }                                                   \
  CU_EXPORT CUresult twin parameters {                \
    constexpr std::uintptr_t zero = kStreamPerThread; \
    constexpr bool wait = false;                      \
    return call;                                      \
  }

CU_SYNC(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t n),
        plain(to, false, from, false, n, s, zero, wait, true))
CU_SYNC(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr to, const void* from, std::size_t n),
        plain(to, true, address(from), false, n, s, zero, wait))
CU_SYNC(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void* to, CUdeviceptr from, std::size_t n),
        plain(address(to), false, from, true, n, s, zero, wait))
CU_SYNC(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t n),
        plain(to, true, from, true, n, s, zero, wait))
CU_SYNC(cuMemcpyPeer, cuMemcpyPeer_ptds,
        (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t n),
        plain(to, true, from, true, n, s, zero, wait))
CU_SYNC(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* c), pitched(c, s, zero, wait))
CU_SYNC(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D* c),
        pitched(c, s, zero, wait))
CU_SYNC(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D* c), pitched(c, s, zero, wait))

CU_ASYNC(cuMemcpyAsync, cuMemcpyAsync_ptsz,
         (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s),
         plain(to, false, from, false, n, s, zero, wait, true))
CU_ASYNC(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
         (CUdeviceptr to, const void* from, std::size_t n, CUstream s),
         plain(to, true, address(from), false, n, s, zero, wait))
CU_ASYNC(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
         (void* to, CUdeviceptr from, std::size_t n, CUstream s),
         plain(address(to), false, from, true, n, s, zero, wait))
CU_ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
         (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s),
         plain(to, true, from, true, n, s, zero, wait))
CU_ASYNC(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
         (CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t n, CUstream s),
         plain(to, true, from, true, n, s, zero, wait))
CU_ASYNC(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* c, CUstream s),
         pitched(c, s, zero, wait))
CU_ASYNC(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D* c, CUstream s),
         pitched(c, s, zero, wait))

CU_SYNC(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr to, unsigned char v, std::size_t n),
        fill(to, 0, v, 1, n, 1, s, zero, wait))
CU_SYNC(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr to, unsigned short v, std::size_t n),
        fill(to, 0, v, 2, n, 1, s, zero, wait))
CU_SYNC(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr to, unsigned v, std::size_t n),
        fill(to, 0, v, 4, n, 1, s, zero, wait))
CU_SYNC(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
        (CUdeviceptr to, std::size_t pitch, unsigned char v, std::size_t w, std::size_t h),
        fill(to, pitch, v, 1, w, h, s, zero, wait))
CU_SYNC(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
        (CUdeviceptr to, std::size_t pitch, unsigned short v, std::size_t w, std::size_t h),
        fill(to, pitch, v, 2, w, h, s, zero, wait))
CU_SYNC(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
        (CUdeviceptr to, std::size_t pitch, unsigned v, std::size_t w, std::size_t h),
        fill(to, pitch, v, 4, w, h, s, zero, wait))

CU_ASYNC(cuMemsetD8Async, cuMemsetD8Async_ptsz,
         (CUdeviceptr to, unsigned char v, std::size_t n, CUstream s),
         fill(to, 0, v, 1, n, 1, s, zero, wait))
CU_ASYNC(cuMemsetD16Async, cuMemsetD16Async_ptsz,
         (CUdeviceptr to, unsigned short v, std::size_t n, CUstream s),
         fill(to, 0, v, 2, n, 1, s, zero, wait))
CU_ASYNC(cuMemsetD32Async, cuMemsetD32Async_ptsz,
         (CUdeviceptr to, unsigned v, std::size_t n, CUstream s),
         fill(to, 0, v, 4, n, 1, s, zero, wait))
CU_ASYNC(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
         (CUdeviceptr to, std::size_t pitch, unsigned char v, std::size_t w, std::size_t h,
          CUstream s),
         fill(to, pitch, v, 1, w, h, s, zero, wait))
CU_ASYNC(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
         (CUdeviceptr to, std::size_t pitch, unsigned short v, std::size_t w, std::size_t h,
          CUstream s),
         fill(to, pitch, v, 2, w, h, s, zero, wait))
CU_ASYNC(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
         (CUdeviceptr to, std::size_t pitch, unsigned v, std::size_t w, std::size_t h, CUstream s),
         fill(to, pitch, v, 4, w, h, s, zero, wait))

// The record of the peer forms has contexts where the plain record has reserved words. Addresses are unified.
CU_SYNC(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D* c), pitched(c, s, zero, wait))
CU_ASYNC(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D* c, CUstream s),
         pitched(c, s, zero, wait))
CU_ASYNC(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz,
         (CUdeviceptr to, CUdeviceptr from, std::size_t n, const void*, CUstream s),
         plain(to, false, from, false, n, s, zero, wait, true))

}  // namespace carve::sim::cu
