#pragma once

#include <memory>
#include <vector>

#include "sim/cuda/memory.h"
#include "sim/cuda/stream.h"

// Arrays: memory with a shape. Rows are stored one after the other, without gaps and without a swizzle.
namespace carve::sim::cu {

inline constexpr std::uint32_t kArrayMagic = 0xC0DE000B;
inline constexpr std::uint32_t kMipmapMagic = 0xC0DE000C;

struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t Width, Height;
  int Format;
  unsigned NumChannels;
};
static_assert(sizeof(CUDA_ARRAY_DESCRIPTOR) == 24);

struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t Width, Height, Depth;
  int Format;
  unsigned NumChannels, Flags;
};
static_assert(sizeof(CUDA_ARRAY3D_DESCRIPTOR) == 40);

struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  std::size_t size, alignment;
  unsigned reserved[4];
};
static_assert(sizeof(CUDA_ARRAY_MEMORY_REQUIREMENTS) == 32);

struct Array {
  std::uint32_t magic = kArrayMagic;
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  bool level = false;  // one level of a mipmapped array, which owns the memory

  [[nodiscard]] std::uint64_t row_bytes() const;
};

struct Mipmap {
  std::uint32_t magic = kMipmapMagic;
  std::uint64_t base = 0, bytes = 0;
  std::vector<Array*> levels;
};

/// nullptr when the handle is not valid.
Array* checked_array(CUarray handle);
/// Returns the address of the array's first byte, the pitch of its rows and of its slices.
CUresult side_of_array(CUarray handle, std::uint64_t* base, std::uint64_t* pitch, std::uint64_t* slice);

}  // namespace carve::sim::cu
