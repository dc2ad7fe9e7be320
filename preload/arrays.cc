#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/owner.h"

// Arrays, and memory that another process or another library created.
using namespace carve::preload;

namespace {

std::uint64_t element_bytes(int format, unsigned channels) {
  std::uint64_t one = 1;
  switch (format) {
    case 0x02: case 0x09: case 0x10: one = 2; break;  // 16-bit integers, half
    case 0x03: case 0x0a: case 0x20: one = 4; break;  // 32-bit integers, float
    case 0x01: case 0x08: one = 1; break;             // 8-bit integers
    default: one = 4; break;                          // block formats and similar: never more than this
  }
  return one * channels;
}

/// The size from the shape, used before the driver call; after it, the driver reports its own figure.
std::uint64_t shape_bytes(std::uint64_t width, std::uint64_t height, std::uint64_t depth, int format,
                          unsigned channels) {
  std::uint64_t bytes = width;
  const std::uint64_t factors[] = {height == 0 ? 1 : height, depth == 0 ? 1 : depth,
                                   element_bytes(format, channels)};
  for (const std::uint64_t factor : factors) {
    if (__builtin_mul_overflow(bytes, factor, &bytes)) {
      return kUnlimitedBytes;
    }
  }
  return bytes > kUnlimitedBytes - kGranule ? kUnlimitedBytes : round_up(bytes, 65536);
}

/// The size of all levels of a mipmapped array: each level halves the sides and keeps the layers and faces.
std::uint64_t chain_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  constexpr unsigned kLayered = 1;
  constexpr unsigned kCubemap = 4;
  constexpr unsigned kMostLevels = 64;
  const auto half = [](std::uint64_t side, unsigned level) {
    return side >> level == 0 && side != 0 ? 1 : side >> level;
  };
  const bool flat = (shape.flags & (kLayered | kCubemap)) != 0;
  std::uint64_t sum = 0;
  for (unsigned level = 0; level < levels && level < kMostLevels; ++level) {
    const std::uint64_t bytes =
        shape_bytes(half(shape.width, level), half(shape.height, level),
                    flat ? std::uint64_t{shape.depth} : half(shape.depth, level), shape.format, shape.num_channels);
    if (__builtin_add_overflow(sum, bytes, &sum)) {
      return kUnlimitedBytes;
    }
    if ((half(shape.width, level) | half(shape.height, level) | (flat ? 1 : half(shape.depth, level))) <= 1) {
      break;
    }
  }
  return sum;
}

template <class Make, class Ask, class Destroy>
CUresult create(std::uint64_t bytes, Make make, Ask ask, Destroy destroy) {
  const Duty now = duty();
  std::uint64_t handle = 0;
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? make(handle) : refusal();
  }
  Card* card = current_card();
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  if (card == nullptr) {
    return context != nullptr ? CUDA_ERROR_SYSTEM_NOT_READY : make(handle);
  }
  if (!charge(*card, bytes)) {
    return refused_request(*card, bytes);
  }
  const CUresult result = make(handle);
  if (result != CUDA_SUCCESS) {
    give_back(*card, bytes);
    return result;
  }
  CUdevice device = 0;
  CUDA_ARRAY_MEMORY_REQUIREMENTS real{};
  driver.cuCtxGetDevice(&device);
  std::uint64_t taken = bytes;
  if (ask(handle, &real, device) == CUDA_SUCCESS && real.size != 0) {
    taken = real.size;
  }
  const bool fits = taken <= bytes || charge(*card, taken - bytes);
  if (taken < bytes) {
    give_back(*card, bytes - taken);
  }
  if (!fits || !memory.objects.insert(
                   {handle, taken, reinterpret_cast<std::uint64_t>(context), index_of(*card), Kind::kArray, 0, 1})) {
    destroy(handle);
    give_back(*card, fits ? taken : bytes);
    return fits ? CUDA_ERROR_OUT_OF_MEMORY : refused_request(*card, taken);
  }
  return result;
}

template <class Make>
CUresult create_array(std::uint64_t bytes, CUarray* array, Make make) {
  return create(
      bytes,
      [=](std::uint64_t& handle) {
        const CUresult result = make();
        handle = result == CUDA_SUCCESS ? reinterpret_cast<std::uint64_t>(*array) : 0;
        return result;
      },
      [](std::uint64_t handle, CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUdevice device) {
        return driver.cuArrayGetMemoryRequirements(out, reinterpret_cast<CUarray>(handle), device);
      },
      [](std::uint64_t handle) { CARVE_DRIVER(cuArrayDestroy)(reinterpret_cast<CUarray>(handle)); });
}

template <class Call>
CUresult destroy_object(std::uint64_t handle, Call call) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? call() : refusal();
  }
  Entry entry{};
  const bool known = memory.objects.take(handle, entry);
  const CUresult result = call();
  if (known && result == CUDA_SUCCESS && --entry.references == 0) {
    give_back(process.cards[entry.card], entry.bytes);
  } else if (known) {
    memory.objects.insert(entry);
  }
  return result;
}

/// The allocation that contains an address: its card and its whole size.
struct Found {
  Card* card;
  std::size_t size;
};
Found found_at(CUdeviceptr address) {
  Found found{card_of_address(address), 0};
  CUdeviceptr base = 0;
  if (driver.cuMemGetAddressRange_v2(&base, &found.size, address) != CUDA_SUCCESS) {
    found.card = nullptr;
  }
  return found;
}

/// Opened memory stays allocated while this process holds it, even when the process that created it dies. Therefore
/// this process is charged for it too, on the memory's own card, and only once for any number of opens.
template <class Open>
CUresult open_shared(CUdeviceptr* address, Open open) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = open();
  if (result != CUDA_SUCCESS || now == Duty::kNone) {
    return result;
  }
  const auto again = [](Entry& entry) {
    ++entry.references;
    return true;
  };
  if (memory.objects.update(*address, again)) {
    return result;
  }
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  const Found found = found_at(*address);
  const bool charged = found.card != nullptr && charge(*found.card, found.size);
  if (charged) {
    switch (memory.objects.insert_new(
        {*address, found.size, reinterpret_cast<std::uint64_t>(context), index_of(*found.card), Kind::kImport, 0, 1})) {
      case Table<4>::Added::kDone:
        return result;
      case Table<4>::Added::kTaken:  // another thread has opened it in the meantime
        give_back(*found.card, found.size);
        if (memory.objects.update(*address, again)) {
          return result;
        }
        break;
      case Table<4>::Added::kNoMemory:
        give_back(*found.card, found.size);
        break;
    }
  }
  CARVE_DRIVER(cuIpcCloseMemHandle)(*address);
  return charged || found.card == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : refused_request(*found.card, found.size);
}

}  // namespace

CARVE_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* shape) {
  const std::uint64_t bytes =
      shape == nullptr ? 0 : shape_bytes(shape->width, shape->height, 1, shape->format, shape->num_channels);
  return create_array(bytes, array, [=] { return CARVE_DRIVER(cuArrayCreate_v2)(array, shape); });
}
CARVE_EXPORT CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* shape) {
  const std::uint64_t bytes =
      shape == nullptr ? 0 : shape_bytes(shape->width, shape->height, 1, shape->format, shape->num_channels);
  return create_array(bytes, array, [=] { return CARVE_DRIVER(cuArrayCreate)(array, shape); });
}
CARVE_EXPORT CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape) {
  const std::uint64_t bytes = shape == nullptr ? 0
                                               : shape_bytes(shape->width, shape->height, shape->depth,
                                                             shape->format, shape->num_channels);
  return create_array(bytes, array, [=] { return CARVE_DRIVER(cuArray3DCreate_v2)(array, shape); });
}
CARVE_EXPORT CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* shape) {
  const std::uint64_t bytes = shape == nullptr ? 0
                                               : shape_bytes(shape->width, shape->height, shape->depth,
                                                             shape->format, shape->num_channels);
  return create_array(bytes, array, [=] { return CARVE_DRIVER(cuArray3DCreate)(array, shape); });
}
CARVE_EXPORT CUresult cuArrayDestroy(CUarray array) {
  return destroy_object(reinterpret_cast<std::uint64_t>(array),
                        [=] { return CARVE_DRIVER(cuArrayDestroy)(array); });
}

CARVE_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                                             unsigned levels) {
  const std::uint64_t bytes = shape == nullptr ? 0 : chain_bytes(*shape, levels);
  return create(
      bytes,
      [=](std::uint64_t& handle) {
        const CUresult result = CARVE_DRIVER(cuMipmappedArrayCreate)(array, shape, levels);
        handle = result == CUDA_SUCCESS ? reinterpret_cast<std::uint64_t>(*array) : 0;
        return result;
      },
      [](std::uint64_t handle, CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUdevice device) {
        return driver.cuMipmappedArrayGetMemoryRequirements(out, reinterpret_cast<CUmipmappedArray>(handle),
                                                            device);
      },
      [](std::uint64_t handle) {
        CARVE_DRIVER(cuMipmappedArrayDestroy)(reinterpret_cast<CUmipmappedArray>(handle));
      });
}
CARVE_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy_object(reinterpret_cast<std::uint64_t>(array),
                        [=] { return CARVE_DRIVER(cuMipmappedArrayDestroy)(array); });
}

CARVE_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_shared(address, [=] { return CARVE_DRIVER(cuIpcOpenMemHandle)(address, handle, flags); });
}
CARVE_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open_shared(address, [=] { return CARVE_DRIVER(cuIpcOpenMemHandle_v2)(address, handle, flags); });
}
CARVE_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return destroy_object(address, [=] { return CARVE_DRIVER(cuIpcCloseMemHandle)(address); });
}

CARVE_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool, void* shared) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemPoolImportPointer)(address, pool, shared);
  if (result != CUDA_SUCCESS || now == Duty::kNone) {
    return result;
  }
  const Found found = found_at(*address);
  const bool charged = found.card != nullptr && charge(*found.card, found.size);
  if (charged && remember({*address, found.size, 0, index_of(*found.card), Kind::kExact, 0, 1})) {
    return result;
  }
  if (charged) {
    give_back(*found.card, found.size);
  }
  CARVE_DRIVER(cuMemFree_v2)(*address);
  return charged || found.card == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : refused_request(*found.card, found.size);
}

CARVE_EXPORT CUresult cuImportExternalMemory(CUexternalMemory* out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* what) {
  const std::uint64_t bytes = what == nullptr ? 0 : what->size;
  return create(
      bytes,
      [=](std::uint64_t& handle) {
        const CUresult result = CARVE_DRIVER(cuImportExternalMemory)(out, what);
        handle = result == CUDA_SUCCESS ? reinterpret_cast<std::uint64_t>(*out) : 0;
        return result;
      },
      [](std::uint64_t, CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUdevice) { return CUDA_ERROR_NOT_SUPPORTED; },
      [](std::uint64_t handle) {
        CARVE_DRIVER(cuDestroyExternalMemory)(reinterpret_cast<CUexternalMemory>(handle));
      });
}
CARVE_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory what) {
  return destroy_object(reinterpret_cast<std::uint64_t>(what),
                        [=] { return CARVE_DRIVER(cuDestroyExternalMemory)(what); });
}
