#include "preload/hooks.h"
#include "preload/memory.h"

// Physical memory by handle. It lives until the last of its handles and mappings is gone, whichever that is:
// releasing the handle right after mapping it is common. One entry per handle counts both.
using namespace carve::preload;

namespace {

/// One handle or mapping less; gives the memory back at the last.
void drop_reference(std::uint64_t handle) {
  Entry gone{};
  memory.objects.update(handle, [&](Entry& entry) {
    if (entry.kind != Kind::kHandle || --entry.references != 0) {
      return true;
    }
    gone = entry;
    return false;
  });
  if (gone.key != 0 && gone.bytes != 0) {
    give_back(process.cards[gone.card], gone.bytes);
  }
}

}  // namespace

CARVE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                  const CUmemAllocationProp* properties, unsigned long long flags) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  if (now == Duty::kNone || properties == nullptr ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CARVE_DRIVER(cuMemCreate)(handle, size, properties, flags);
  }
  Card* card = card_of_device(properties->location.id);
  if (card == nullptr) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (!charge(*card, size)) {
    return revoked(*card) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = CARVE_DRIVER(cuMemCreate)(handle, size, properties, flags);
  if (result == CUDA_SUCCESS &&
      memory.objects.insert({*handle, size, 0, index_of(*card), Kind::kHandle, 1})) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuMemRelease)(*handle);
  }
  give_back(*card, size);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CARVE_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemRelease)(handle);
  if (result == CUDA_SUCCESS && now == Duty::kMeter) {
    drop_reference(handle);
  }
  return result;
}

CARVE_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemMap)(address, size, offset, handle, flags) : refusal();
  }
  // An imported handle has no size before it is mapped: its memory is charged to whoever maps it, too, because
  // it stays when the exporter dies.
  Entry imported{};
  memory.objects.update(handle, [&](Entry& entry) {
    if (entry.kind == Kind::kHandle) {
      imported = entry.bytes == 0 ? entry : Entry{};
      ++entry.references;
    }
    return true;
  });
  Card* card = imported.key != 0 ? current_card() : nullptr;
  if (card != nullptr && !charge(*card, offset + size)) {
    drop_reference(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = CARVE_DRIVER(cuMemMap)(address, size, offset, handle, flags);
  if (result == CUDA_SUCCESS &&
      memory.addresses.insert({address, size, handle, 0, Kind::kMapping, 1})) {
    if (card != nullptr) {
      memory.objects.update(handle, [&](Entry& entry) {
        entry.bytes = offset + size;
        entry.card = index_of(*card);
        return true;
      });
    }
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuMemUnmap)(address, size);
  }
  if (card != nullptr) {
    give_back(*card, offset + size);
  }
  drop_reference(handle);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CARVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemUnmap)(address, size);
  if (result != CUDA_SUCCESS || now == Duty::kNone) {
    return result;
  }
  // One call may undo several mappings that lie side by side.
  for (CUdeviceptr at = address; at < address + size;) {
    Entry entry{};
    const bool known = memory.addresses.take(at, entry) && entry.kind == Kind::kMapping && entry.bytes != 0;
    if (known) {
      drop_reference(entry.owner);
    }
    at += known ? entry.bytes : kGranule;
  }
  return result;
}

CARVE_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemRetainAllocationHandle)(handle, address);
  if (result == CUDA_SUCCESS && now == Duty::kMeter) {
    memory.objects.update(*handle, [](Entry& entry) {
      entry.references += entry.kind == Kind::kHandle ? 1 : 0;
      return true;
    });
  }
  return result;
}

CARVE_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                                     int type) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuMemImportFromShareableHandle)(handle, os_handle, type);
  if (result != CUDA_SUCCESS || now == Duty::kNone) {
    return result;
  }
  bool known = memory.objects.update(*handle, [](Entry& entry) {
    entry.references += entry.kind == Kind::kHandle ? 1 : 0;  // our own, come back
    return true;
  });
  known = known || memory.objects.insert({*handle, 0, 0, 0, Kind::kHandle, 1});
  if (!known) {
    CARVE_DRIVER(cuMemRelease)(*handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}
