#include "sim/cuda/array.h"

#include <algorithm>

#include "sim/cuda/capture.h"

namespace carve::sim::cu {
namespace {

constexpr unsigned kLayered = 1, kCubemap = 4, kSparse = 0x40, kDeferred = 0x80;
constexpr std::uint64_t kAlignment = 512;

std::uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  switch (shape.Format) {
    case 0x01:
    case 0x08:
      return shape.NumChannels;
    case 0x02:
    case 0x09:
    case 0x10:
      return 2ULL * shape.NumChannels;
    case 0x03:
    case 0x0a:
    case 0x20:
      return 4ULL * shape.NumChannels;
    default:
      return 0;  // compressed and planar formats
  }
}

CUresult check_shape(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (shape.Width == 0 || (shape.NumChannels != 1 && shape.NumChannels != 2 && shape.NumChannels != 4))
    return CUDA_ERROR_INVALID_VALUE;
  if (element_bytes(shape) == 0 || (shape.Flags & (kSparse | kDeferred)) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return CUDA_SUCCESS;
}

std::uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  std::uint64_t bytes = element_bytes(shape);
  for (const std::uint64_t factor :
       {shape.Width, std::max<std::size_t>(shape.Height, 1), std::max<std::size_t>(shape.Depth, 1)}) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) return ~0ULL;
  }
  return bytes;
}

/// The shape of a mipmap level: each side is half of the previous level's; the number of layers stays.
CUDA_ARRAY3D_DESCRIPTOR level_of(CUDA_ARRAY3D_DESCRIPTOR shape, unsigned level) {
  const auto half = [level](std::size_t side) {
    return side == 0 ? 0 : std::max<std::size_t>(side >> std::min(level, 63U), 1);
  };
  shape.Width = half(shape.Width);
  shape.Height = half(shape.Height);
  if ((shape.Flags & (kLayered | kCubemap)) == 0) shape.Depth = half(shape.Depth);
  return shape;
}

CUresult take(std::uint64_t bytes, std::uint64_t* base) {
  CU_NEED_CONTEXT(context);
  if (const CUresult unsafe = refuse_unsafe_call(); unsafe != CUDA_SUCCESS) return unsafe;
  if (bytes > ~0ULL - kGranuleBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  Block block;
  const CUresult rc = Memory::get().allocate(context, bytes, BlockKind::kArray, 0, &block);
  *base = block.base;
  return rc;
}

CUresult give(std::uint64_t base) {
  Block block;
  if (Memory::get().find(base, &block) && alive(block.context)) wait_context(block.context);
  return Memory::get().free(base, BlockKind::kArray);
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (const CUresult rc = check_shape(shape); rc != CUDA_SUCCESS) return rc;
  auto array = std::make_unique<Array>();
  array->shape = shape;
  array->bytes = bytes_of(shape);
  const CUresult rc = take(array->bytes, &array->base);
  if (rc == CUDA_SUCCESS) *out = array.release();
  return rc;
}

Mipmap* checked_mipmap(void* handle) {
  auto* mipmap = static_cast<Mipmap*>(handle);
  return mipmap != nullptr && mipmap->magic == kMipmapMagic ? mipmap : nullptr;
}

CUresult requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, std::uint64_t bytes, CUdevice dev) {
  if (Driver::get().device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = {bytes, kAlignment, {}};
  return CUDA_SUCCESS;
}

}  // namespace

std::uint64_t Array::row_bytes() const { return shape.Width * element_bytes(shape); }

Array* checked_array(CUarray handle) {
  auto* array = static_cast<Array*>(handle);
  return array != nullptr && array->magic == kArrayMagic ? array : nullptr;
}

CUresult side_of_array(CUarray handle, std::uint64_t* base, std::uint64_t* pitch, std::uint64_t* slice) {
  const Array* array = checked_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *base = array->base;
  *pitch = array->row_bytes();
  *slice = *pitch * std::max<std::size_t>(array->shape.Height, 1);
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  CU_NEED_INIT();
  return out == nullptr || shape == nullptr ? CUDA_ERROR_INVALID_VALUE : create(out, *shape);
}
CU_EXPORT CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* shape) {
  CU_NEED_INIT();
  if (out == nullptr || shape == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0});
}

CU_EXPORT CUresult cuArrayDestroy(CUarray handle) {
  CU_NEED_INIT();
  Array* array = checked_array(handle);
  if (array == nullptr || array->level) return CUDA_ERROR_INVALID_HANDLE;
  array->magic = 0;
  const CUresult rc = give(array->base);
  delete array;
  return rc;
}

CU_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  CU_NEED_INIT();
  const Array* array = checked_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = array->shape;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  CUDA_ARRAY3D_DESCRIPTOR shape = {};
  const CUresult rc = cuArray3DGetDescriptor_v2(out == nullptr ? nullptr : &shape, handle);
  if (rc == CUDA_SUCCESS) *out = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
  return rc;
}

CU_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray handle, CUdevice dev) {
  CU_NEED_INIT();
  const Array* array = checked_array(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : requirements(out, array->bytes, dev);
}

CU_EXPORT CUresult cuMipmappedArrayCreate(void** out, const CUDA_ARRAY3D_DESCRIPTOR* shape, unsigned count) {
  CU_NEED_INIT();
  if (out == nullptr || shape == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult rc = check_shape(*shape); rc != CUDA_SUCCESS) return rc;
  unsigned most = 1;  // down to one element
  for (std::size_t side = std::max({shape->Width, shape->Height, shape->Depth}); side > 1; side /= 2) ++most;
  auto mipmap = std::make_unique<Mipmap>();
  for (unsigned level = 0; level < std::min(count, most); ++level) {
    const std::uint64_t bytes = bytes_of(level_of(*shape, level));
    if (mipmap->bytes + bytes < bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    mipmap->bytes += bytes;
  }
  if (const CUresult rc = take(mipmap->bytes, &mipmap->base); rc != CUDA_SUCCESS) return rc;
  std::uint64_t at = mipmap->base;
  for (unsigned level = 0; level < std::min(count, most); ++level) {
    auto* array = new Array();
    array->shape = level_of(*shape, level);
    array->base = at;
    array->bytes = bytes_of(array->shape);
    array->level = true;
    at += array->bytes;
    mipmap->levels.push_back(array);
  }
  *out = mipmap.release();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMipmappedArrayGetLevel(CUarray* out, void* handle, unsigned level) {
  CU_NEED_INIT();
  const Mipmap* mipmap = checked_mipmap(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || level >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = mipmap->levels[level];
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuMipmappedArrayDestroy(void* handle) {
  CU_NEED_INIT();
  Mipmap* mipmap = checked_mipmap(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  mipmap->magic = 0;
  for (Array* level : mipmap->levels) {
    level->magic = 0;
    delete level;
  }
  const CUresult rc = give(mipmap->base);
  delete mipmap;
  return rc;
}

CU_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, void* handle,
                                                         CUdevice dev) {
  CU_NEED_INIT();
  const Mipmap* mipmap = checked_mipmap(handle);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return out == nullptr ? CUDA_ERROR_INVALID_VALUE : requirements(out, mipmap->bytes, dev);
}

}  // namespace carve::sim::cu
