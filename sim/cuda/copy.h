#pragma once

#include "sim/cuda/stream.h"

// Moves and fills bytes, as the copy engine and the device's own copy kernels do.
namespace carve::sim::cu {

/// Copies a box of bytes from one pitched buffer to another. Plain copies have depth and height 1.
struct CopyBox {
  std::uint64_t to = 0, from = 0;  // addresses of the box's first byte
  std::uint64_t to_pitch = 0, from_pitch = 0;
  std::uint64_t to_slice = 0, from_slice = 0;
  std::uint64_t width = 0, height = 1, depth = 1;
  bool to_device = false, from_device = false;
};

struct Fill {
  std::uint64_t to = 0, pitch = 0;
  std::uint32_t value = 0, element = 1;  // element bytes: 1, 2 or 4
  std::uint64_t width = 0, height = 1;   // width in elements
};

/// Checks that device sides are device memory. For cuMemcpy's UVA forms it looks the kinds up.
CUresult check(CopyBox* box, bool unified);
CUresult check(const Fill& fill);
/// Translates the driver's records.
CUresult box_of(const CUDA_MEMCPY2D& copy, CopyBox* box);
CUresult box_of(const CUDA_MEMCPY3D& copy, CopyBox* box);

void move_bytes(const CopyBox& box);
void fill_bytes(const Fill& fill);

/// How long the copy takes, and on which engine.
std::uint64_t duration_of(const CopyBox& box, CommandKind* engine);
std::uint64_t duration_of(const Fill& fill);

/// Submits the copy on the stream (or captures it); waits for it when `wait`.
CUresult run_copy(Stream* stream, const CopyBox& box, bool wait);
CUresult run_fill(Stream* stream, const Fill& fill, bool wait);

}  // namespace carve::sim::cu
