#include "sim/cuda/copy.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "sim/cuda/array.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/graph.h"
#include "sim/cuda/memory.h"

namespace carve::sim::cu {
namespace {

constexpr std::uint64_t kCopyStartNs = 1500;
constexpr std::uint64_t kFillStartNs = 1000;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSparseFill = 64U << 10;

bool device_memory(std::uint64_t address) {
  Block block;
  return Memory::get().find(address, &block) && block.kind != BlockKind::kHost &&
         block.kind != BlockKind::kRegistered;
}

std::uint64_t extent(std::uint64_t pitch, std::uint64_t slice, const CopyBox& box) {
  if (box.width == 0 || box.height == 0 || box.depth == 0) return 0;
  return (box.depth - 1) * slice + (box.height - 1) * pitch + box.width;
}

/// Zeroes by giving the pages back, so that no page is committed.
void zero(char* to, std::uint64_t bytes) {
  const auto at = reinterpret_cast<std::uint64_t>(to);
  const std::uint64_t begin = round_to(at, kPage);
  const std::uint64_t end = (at + bytes) / kPage * kPage;
  Block block;
  if (bytes < kSparseFill || begin >= end || !Memory::get().find(at, &block) ||
      block.kind == BlockKind::kHost || block.kind == BlockKind::kRegistered) {
    std::memset(to, 0, bytes);
    return;
  }
  const int advice = block.kind == BlockKind::kMapped ? MADV_REMOVE : MADV_DONTNEED;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, advice) != 0) {
    std::memset(to, 0, bytes);
    return;
  }
  std::memset(to, 0, begin - at);
  std::memset(reinterpret_cast<char*>(end), 0, at + bytes - end);
}

struct Side {
  unsigned type;
  std::uint64_t host, device;
  CUarray array;
  std::uint64_t pitch, slice;  // from the record; an array has its own
};

/// The start address of one side of a record, and its rows and slices.
CUresult side_address(Side* side, std::uint64_t* address, bool* device) {
  *device = side->type != CU_MEMORYTYPE_HOST;
  switch (side->type) {
    case CU_MEMORYTYPE_HOST:
      *address = side->host;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
      *address = side->device;
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
      *address = side->device;
      *device = device_memory(side->device);
      return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
      return side_of_array(side->array, address, &side->pitch, &side->slice);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult check(CopyBox* box, bool unified) {
  if (unified) {
    box->to_device = device_memory(box->to);
    box->from_device = device_memory(box->from);
  }
  const std::uint64_t to_bytes = extent(box->to_pitch, box->to_slice, *box);
  if (to_bytes == 0) return CUDA_SUCCESS;
  if (box->to == 0 || box->from == 0) return CUDA_ERROR_INVALID_VALUE;
  if (box->to_device && !Memory::get().covers(box->to, to_bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (box->from_device &&
      !Memory::get().covers(box->from, extent(box->from_pitch, box->from_slice, *box)))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult check(const Fill& fill) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.to % fill.element != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t bytes = (fill.height - 1) * fill.pitch + fill.width * fill.element;
  return Memory::get().covers(fill.to, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult box_of(const CUDA_MEMCPY2D& c, CopyBox* box) {
  CUDA_MEMCPY3D wide = {};
  wide.srcXInBytes = c.srcXInBytes;
  wide.srcY = c.srcY;
  wide.srcMemoryType = c.srcMemoryType;
  wide.srcHost = c.srcHost;
  wide.srcDevice = c.srcDevice;
  wide.srcArray = c.srcArray;
  wide.srcPitch = c.srcPitch;
  wide.dstXInBytes = c.dstXInBytes;
  wide.dstY = c.dstY;
  wide.dstMemoryType = c.dstMemoryType;
  wide.dstHost = c.dstHost;
  wide.dstDevice = c.dstDevice;
  wide.dstArray = c.dstArray;
  wide.dstPitch = c.dstPitch;
  wide.WidthInBytes = c.WidthInBytes;
  wide.Height = c.Height;
  wide.Depth = 1;
  return box_of(wide, box);
}

CUresult box_of(const CUDA_MEMCPY3D& c, CopyBox* box) {
  std::uint64_t from = 0, to = 0;
  const std::uint64_t from_pitch = c.srcPitch != 0 ? c.srcPitch : c.WidthInBytes + c.srcXInBytes;
  const std::uint64_t to_pitch = c.dstPitch != 0 ? c.dstPitch : c.WidthInBytes + c.dstXInBytes;
  Side source{c.srcMemoryType, reinterpret_cast<std::uint64_t>(c.srcHost), c.srcDevice, c.srcArray, from_pitch,
              from_pitch * (c.srcHeight != 0 ? c.srcHeight : c.Height + c.srcY)};
  Side target{c.dstMemoryType, reinterpret_cast<std::uint64_t>(c.dstHost), c.dstDevice, c.dstArray, to_pitch,
              to_pitch * (c.dstHeight != 0 ? c.dstHeight : c.Height + c.dstY)};
  CUresult rc = side_address(&source, &from, &box->from_device);
  rc = rc != CUDA_SUCCESS ? rc : side_address(&target, &to, &box->to_device);
  if (rc != CUDA_SUCCESS) return rc;
  box->width = c.WidthInBytes;
  box->height = c.Height;
  box->depth = c.Depth;
  box->from_pitch = source.pitch;
  box->to_pitch = target.pitch;
  if (box->height > 1 && (box->from_pitch < c.WidthInBytes || box->to_pitch < c.WidthInBytes))
    return CUDA_ERROR_INVALID_VALUE;
  box->from_slice = source.slice;
  box->to_slice = target.slice;
  box->from = from + c.srcZ * box->from_slice + c.srcY * box->from_pitch + c.srcXInBytes;
  box->to = to + c.dstZ * box->to_slice + c.dstY * box->to_pitch + c.dstXInBytes;
  return CUDA_SUCCESS;
}

void move_bytes(const CopyBox& box) {
  for (std::uint64_t z = 0; z < box.depth; ++z)
    for (std::uint64_t y = 0; y < box.height; ++y)
      std::memmove(
          reinterpret_cast<void*>(box.to + z * box.to_slice + y * box.to_pitch),
          reinterpret_cast<const void*>(box.from + z * box.from_slice + y * box.from_pitch),
          box.width);
}

void fill_bytes(const Fill& fill) {
  for (std::uint64_t y = 0; y < fill.height; ++y) {
    char* row = reinterpret_cast<char*>(fill.to + y * fill.pitch);
    const std::uint64_t bytes = fill.width * fill.element;
    if (fill.value == 0) {
      zero(row, bytes);
    } else if (fill.element == 1) {
      std::memset(row, static_cast<int>(fill.value & 0xff), bytes);
    } else if (fill.element == 2) {
      std::fill_n(reinterpret_cast<std::uint16_t*>(row), fill.width,
                  static_cast<std::uint16_t>(fill.value));
    } else {
      std::fill_n(reinterpret_cast<std::uint32_t*>(row), fill.width, fill.value);
    }
  }
}

std::uint64_t duration_of(const CopyBox& box, CommandKind* engine) {
  const Model& model = Driver::get().model();
  const std::uint64_t bytes = box.width * box.height * box.depth;
  const bool within = box.to_device && box.from_device;
  // Copies within the device are kernels; copies between host and device use the copy engine.
  *engine = within ? CommandKind::kCompute : CommandKind::kCopy;
  return kCopyStartNs + bytes / (within ? model.device_copy_gb_per_s : model.host_copy_gb_per_s);
}

std::uint64_t duration_of(const Fill& fill) {
  const std::uint64_t bytes = fill.width * fill.element * fill.height;
  return kFillStartNs + bytes / Driver::get().model().device_copy_gb_per_s;
}

CUresult run_copy(Stream* stream, const CopyBox& box, bool wait) {
  if (stream->capture.load() != nullptr) {
    if (wait) return refuse_while_capturing(stream);
    NodeBody body;
    body.kind = NodeKind::kCopy;
    body.copy = box;
    return capture_node(stream, body);
  }
  if (const CUresult rc = refuse_implicit(stream); rc != CUDA_SUCCESS) return rc;
  if (wait)
    if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  CommandKind engine;
  const std::uint64_t duration = duration_of(box, &engine);
  in_order(stream, [box] { move_bytes(box); });
  const std::uint64_t target = submit(stream, engine, duration);
  return wait ? wait_for({stream->index, target}) : CUDA_SUCCESS;
}

CUresult run_fill(Stream* stream, const Fill& fill, bool wait) {
  if (stream->capture.load() != nullptr) {
    if (wait) return refuse_while_capturing(stream);
    NodeBody body;
    body.kind = NodeKind::kFill;
    body.fill = fill;
    return capture_node(stream, body);
  }
  if (const CUresult rc = refuse_implicit(stream); rc != CUDA_SUCCESS) return rc;
  if (wait)
    if (const CUresult rc = refuse_unsafe_call(); rc != CUDA_SUCCESS) return rc;
  in_order(stream, [fill] { fill_bytes(fill); });
  const std::uint64_t target = submit(stream, CommandKind::kCompute, duration_of(fill));
  return wait ? wait_for({stream->index, target}) : CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
