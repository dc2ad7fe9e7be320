#include "preload/owner.h"

#include "preload/memory.h"

namespace carve::preload {

namespace {

std::uint16_t index_of_device(CUdevice device) {
  const Card* card = card_of_device(device);
  return card == nullptr ? kForeignCard : index_of(*card);
}

bool in_host(int location) {
  return location >= CU_MEM_LOCATION_TYPE_HOST && location <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/// For a pool that no hook has seen created: a card's default pool, or an imported pool.
std::uint16_t ask_for_card(CUmemoryPool pool) {
  for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
    CUmemoryPool own = nullptr;
    if (driver.cuDeviceGetDefaultMemPool(&own, device) != CUDA_SUCCESS) {
      break;
    }
    if (own == pool) {
      return index_of_device(device);
    }
  }
  int type = 0;
  int id = 0;
  int allocation = 0;
  if (driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) != CUDA_SUCCESS ||
      driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_LOCATION_ID, &id) != CUDA_SUCCESS ||
      driver.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &allocation) != CUDA_SUCCESS) {
    return kAnyCard;  // a driver before CUDA 13 does not have these attributes
  }
  return card_of_location(type, id, allocation);
}

}  // namespace

std::uint16_t card_of_location(int type, int id, int allocation) {
  if (type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return index_of_device(id);
  }
  if (type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN) {
    return index_of_device(id & 0xff);  // the device and the domain have one byte each
  }
  return in_host(type) && allocation != CU_MEM_ALLOCATION_TYPE_MANAGED ? kInHost : kAnyCard;
}

bool device_of_stream(CUstream stream, bool per_thread, CUdevice* device) {
  if (stream == nullptr || stream == legacy_stream() || stream == per_thread_stream()) {
    return driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
  }
  const CUresult known = per_thread ? driver.cuStreamGetDevice_ptsz(stream, device)
                                    : driver.cuStreamGetDevice(stream, device);
  if (known == CUDA_SUCCESS) {
    return true;
  }
  // A driver before CUDA 12.8: use the stream's context.
  CUcontext context = nullptr;
  if (driver.cuStreamGetCtx(stream, &context) != CUDA_SUCCESS ||
      driver.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) {
    return false;
  }
  const bool found = driver.cuCtxGetDevice(device) == CUDA_SUCCESS;
  driver.cuCtxPopCurrent_v2(&context);
  return found;
}

std::uint16_t card_of_pool(CUmemoryPool pool) {
  const auto key = reinterpret_cast<std::uint64_t>(pool);
  std::uint16_t card = kAnyCard;
  const bool known = memory.objects.update(key, [&](const Entry& entry) {
    card = entry.card;
    return true;
  });
  if (!known) {
    card = ask_for_card(pool);
    memory.objects.insert_new({key, 0, 0, card, Kind::kPooled, 0, 1});  // if this fails, the next call asks again
  }
  return card;
}

Card* card_of_address(CUdeviceptr address) {
  int device = -1;
  if (driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS) {
    return current_card();
  }
  return card_of_device(device);
}

bool is_gone(CUdeviceptr address) {
  int device = -1;
  return driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
         CUDA_ERROR_INVALID_VALUE;
}

}  // namespace carve::preload
