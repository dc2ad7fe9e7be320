#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/owner.h"

// Physical memory by handle. It exists until its last handle or mapping is gone, in any order: programs often release
// the handle right after they map it. One entry per handle counts both.
namespace carve::preload {

void drop_handle(std::uint64_t handle) {
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

}  // namespace carve::preload

using namespace carve::preload;

namespace {

constexpr std::uint64_t kImported = 1;  // as `owner` in the entry of a handle

/// Measures the size of the memory of a handle by mapping it, because no driver call reports the size of an imported
/// handle. 0: the driver maps only the whole memory, or had no addresses left. Cost: two driver calls per bit of the
/// answer.
std::uint64_t measured(CUmemGenericAllocationHandle handle, CUdevice device) {
  std::size_t total = 0;
  CUdeviceptr base = 0;
  if (CARVE_DRIVER(cuDeviceTotalMem_v2)(&total, device) != CUDA_SUCCESS ||
      driver.cuMemAddressReserve(&base, round_up(total, kGranule), 0, 0, 0) != CUDA_SUCCESS) {
    return 0;
  }
  const auto fits = [&](std::uint64_t granules) {
    if (granules * kGranule > total ||
        CARVE_DRIVER(cuMemMap)(base, granules * kGranule, 0, handle, 0) != CUDA_SUCCESS) {
      return false;
    }
    CARVE_DRIVER(cuMemUnmap)(base, granules * kGranule);
    return true;
  };
  std::uint64_t fitting = 0;
  std::uint64_t step = 1;
  while (fits(fitting + step)) {
    fitting += step;
    step *= 2;
  }
  for (; step != 0; step /= 2) {
    fitting += fits(fitting + step) ? step : 0;
  }
  driver.cuMemAddressFree(base, round_up(total, kGranule));
  return fitting * kGranule;
}

/// Charges an imported handle that could not be measured for the largest extent that was ever mapped of it. False: it
/// does not fit. `grown`: the increase of the charge.
bool charge_extent(CUmemGenericAllocationHandle handle, std::uint64_t end, std::uint64_t& grown) {
  const Hold hold(memory.import_lock);
  Entry imported{};
  memory.objects.update(handle, [&](const Entry& entry) {
    imported = entry;
    return true;
  });
  grown = imported.kind == Kind::kHandle && imported.owner == kImported && imported.card < process.card_count &&
                  end > imported.bytes
              ? end - imported.bytes
              : 0;
  if (grown == 0) {
    return true;
  }
  if (!charge(process.cards[imported.card], grown)) {
    return false;
  }
  memory.objects.update(handle, [&](Entry& entry) {
    entry.bytes += grown;
    return true;
  });
  return true;
}

void give_back_extent(CUmemGenericAllocationHandle handle, std::uint64_t end, std::uint64_t grown) {
  const Hold hold(memory.import_lock);
  std::uint16_t card = kInHost;
  memory.objects.update(handle, [&](Entry& entry) {
    if (entry.bytes == end) {  // no other thread has mapped more of it in the meantime
      entry.bytes -= grown;
      card = entry.card;
    }
    return true;
  });
  if (card < process.card_count) {
    give_back(process.cards[card], grown);
  }
}

}  // namespace

CARVE_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size,
                                  const CUmemAllocationProp* properties, unsigned long long flags) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const std::uint16_t owner =
      properties == nullptr ? kInHost
                            : card_of_location(properties->location.type, properties->location.id, properties->type);
  if (now == Duty::kNone || owner == kInHost) {
    return CARVE_DRIVER(cuMemCreate)(handle, size, properties, flags);
  }
  // For a location of an unknown kind the current card is charged, or the first card when there is none.
  Card* const current = owner == kAnyCard ? current_card() : nullptr;
  Card* card = owner < process.card_count                   ? &process.cards[owner]
               : owner == kAnyCard && current == nullptr ? &process.cards[0]
                                                         : current;
  if (card == nullptr) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (!charge(*card, size)) {
    return refused_request(*card, size);
  }
  const CUresult result = CARVE_DRIVER(cuMemCreate)(handle, size, properties, flags);
  if (result == CUDA_SUCCESS && memory.objects.insert({*handle, size, 0, index_of(*card), Kind::kHandle, 0, 1})) {
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
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemRelease)(handle) : refusal();
  }
  // Counted before the driver call: after it, another thread's new handle may have the same number.
  Entry before{};
  memory.objects.update(handle, [&](Entry& entry) {
    before = entry;
    return entry.kind != Kind::kHandle || --entry.references != 0;
  });
  const CUresult result = CARVE_DRIVER(cuMemRelease)(handle);
  if (before.kind != Kind::kHandle) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    if (before.references == 1 && before.bytes != 0) {
      give_back(process.cards[before.card], before.bytes);
    }
    return result;
  }
  const bool kept = before.references != 1 && memory.objects.update(handle, [](Entry& entry) {
    ++entry.references;
    return true;
  });
  if (!kept) {
    before.references = 1;
    memory.objects.insert(before);
  }
  return result;
}

CARVE_EXPORT CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset,
                               CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemMap)(address, size, offset, handle, flags) : refusal();
  }
  memory.objects.update(handle, [&](Entry& entry) {
    entry.references += entry.kind == Kind::kHandle ? 1 : 0;
    return true;
  });
  std::uint64_t end = 0;
  std::uint64_t grown = 0;
  if (__builtin_add_overflow(std::uint64_t{offset}, std::uint64_t{size}, &end) ||
      !charge_extent(handle, end, grown)) {
    drop_handle(handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const HoldShared hold(memory.map_lock);
  const CUresult result = CARVE_DRIVER(cuMemMap)(address, size, offset, handle, flags);
  if (result == CUDA_SUCCESS && remember({address, size, handle, 0, Kind::kMapping, 0, 1})) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuMemUnmap)(address, size);
  }
  if (grown != 0) {
    give_back_extent(handle, end, grown);
  }
  drop_handle(handle);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

CARVE_EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t size) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  if (now == Duty::kNone) {
    return CARVE_DRIVER(cuMemUnmap)(address, size);
  }
  // Alone: otherwise a mapping that another thread creates at this address in between would be forgotten.
  const HoldAlone hold(memory.map_lock);
  const CUresult result = CARVE_DRIVER(cuMemUnmap)(address, size);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  // One call may remove several adjacent mappings.
  for (CUdeviceptr at = address; at < address + size;) {
    Entry gone{};
    memory.addresses.update(at, [&](const Entry& entry) {
      gone = entry.kind == Kind::kMapping ? entry : Entry{};
      return entry.kind != Kind::kMapping;
    });
    if (gone.bytes != 0) {
      drop_handle(gone.owner);
    }
    at += gone.bytes != 0 ? gone.bytes : kGranule;
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

// Imported memory stays allocated when the process that created it dies, mapped or not. Therefore the importer is
// charged for it too: for the whole of it, immediately, on the memory's own card. Nothing can be charged on a card that
// is not in the slice.
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
  if (memory.objects.update(*handle, [](Entry& entry) {
        entry.references += entry.kind == Kind::kHandle ? 1 : 0;  // this process already has the handle
        return true;
      })) {
    return result;
  }
  CUmemAllocationProp properties{};
  std::uint16_t owner = kAnyCard;
  if (driver.cuMemGetAllocationPropertiesFromHandle(&properties, *handle) == CUDA_SUCCESS) {
    owner = card_of_location(properties.location.type, properties.location.id, properties.type);
  }
  Card* card = owner < process.card_count ? &process.cards[owner] : owner == kAnyCard ? current_card() : nullptr;
  std::uint64_t bytes = 0;
  if (card != nullptr) {
    const CUdevice device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties.location.id : 0;
    bytes = measured(*handle, device);
  }
  if (card != nullptr && !charge(*card, bytes)) {
    CARVE_DRIVER(cuMemRelease)(*handle);
    return refused_request(*card, bytes);
  }
  if (!memory.objects.insert(
          {*handle, bytes, kImported, card == nullptr ? kInHost : index_of(*card), Kind::kHandle, 0, 1})) {
    CARVE_DRIVER(cuMemRelease)(*handle);
    if (card != nullptr) {
      give_back(*card, bytes);
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return result;
}
