#include "preload/hooks.h"
#include "preload/memory.h"

// cuMemAlloc and the related calls that return an address immediately, and cuMemFree.
using namespace carve::preload;

namespace {

std::uint64_t current_context() {
  CUcontext context = nullptr;
  driver.cuCtxGetCurrent(&context);
  return reinterpret_cast<std::uint64_t>(context);
}

/// Charges the bytes, calls `take(address)` and remembers the entry. `take` sets the address and returns the driver's
/// result.
template <class Take>
CUresult allocate(std::uint64_t bytes, Take take) {
  Card* card = current_card();
  if (card == nullptr || bytes == 0) {
    CUdeviceptr unused = 0;
    // Without a current context the driver returns its own error. A card that is not in the slice is refused.
    return card == nullptr && current_context() != 0 ? CUDA_ERROR_SYSTEM_NOT_READY : take(unused);
  }
  Charge charge{};
  if (!charge_request(*card, bytes, charge)) {
    return refused_request(*card, bytes);
  }
  CUdeviceptr address = 0;
  const std::uint64_t context = current_context();
  const std::uint32_t destroyed = contexts_destroyed();
  const CUresult result = take(address);
  if (result != CUDA_SUCCESS) {
    give_back_request(*card, bytes, charge);
    return result;
  }
  if (!remember_in_context({address, bytes, context, index_of(*card), charge.kind, charge.stock, 1}, destroyed)) {
    CARVE_DRIVER(cuMemFree_v2)(address);
    give_back_request(*card, bytes, charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

/// The driver chooses the pitch. On all known cards it is at most the width, rounded up to a multiple of this.
constexpr std::uint64_t kPitchUnit = 512;

template <class Free>
CUresult release(CUdeviceptr address, Free call) {
  Entry entry{};
  const std::uint32_t destroyed = contexts_destroyed();
  if (!memory.addresses.take(address, entry)) {
    return call();
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    put_back(entry, destroyed);
    return result;
  }
  Card& card = process.cards[entry.card];
  if (entry.kind == Kind::kPooled) {
    Pool& pool = memory.pools[entry.owner];
    const Hold hold(pool.lock);
    leave_pool(pool, entry.bytes);
    return result;
  }
  give_back_request(card, entry.bytes, charge_of(entry));
  return result;
}

}  // namespace

CARVE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemAlloc_v2)(address, bytes) : refusal();
  }
  return allocate(bytes, [=](CUdeviceptr& at) {
    const CUresult result = CARVE_DRIVER(cuMemAlloc_v2)(address, bytes);
    at = result == CUDA_SUCCESS ? *address : 0;
    return result;
  });
}

CARVE_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1* address, unsigned bytes) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemAlloc)(address, bytes) : refusal();
  }
  return allocate(bytes, [=](CUdeviceptr& at) {
    const CUresult result = CARVE_DRIVER(cuMemAlloc)(address, bytes);
    at = result == CUDA_SUCCESS ? *address : 0;
    return result;
  });
}

CARVE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemAllocManaged)(address, bytes, flags) : refusal();
  }
  return allocate(bytes, [=](CUdeviceptr& at) {
    const CUresult result = CARVE_DRIVER(cuMemAllocManaged)(address, bytes, flags);
    at = result == CUDA_SUCCESS ? *address : 0;
    return result;
  });
}

CARVE_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* address, std::size_t* pitch, std::size_t width,
                                         std::size_t height, unsigned element) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemAllocPitch_v2)(address, pitch, width, height, element)
                              : refusal();
  }
  std::uint64_t bytes = 0;
  if (width > kUnlimitedBytes - kPitchUnit ||
      __builtin_mul_overflow(round_up(width, kPitchUnit), std::uint64_t{height}, &bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return allocate(bytes, [=](CUdeviceptr& at) {
    const CUresult result = CARVE_DRIVER(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    at = result == CUDA_SUCCESS ? *address : 0;
    return result;
  });
}

CARVE_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1* address, unsigned* pitch, unsigned width, unsigned height,
                                      unsigned element) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemAllocPitch)(address, pitch, width, height, element) : refusal();
  }
  return allocate(round_up(width, kPitchUnit) * height, [=](CUdeviceptr& at) {
    const CUresult result = CARVE_DRIVER(cuMemAllocPitch)(address, pitch, width, height, element);
    at = result == CUDA_SUCCESS ? *address : 0;
    return result;
  });
}

CARVE_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemFree_v2)(address) : refusal();
  }
  return release(address, [=] { return CARVE_DRIVER(cuMemFree_v2)(address); });
}

CARVE_EXPORT CUresult cuMemFree(CUdeviceptr_v1 address) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemFree)(address) : refusal();
  }
  return release(address, [=] { return CARVE_DRIVER(cuMemFree)(address); });
}
