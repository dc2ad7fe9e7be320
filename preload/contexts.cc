#include "preload/export.h"
#include "preload/memory.h"
#include "preload/meter.h"

// A context takes memory of its own: charged in advance by card model, refused when it does not fit. What was
// allocated in it dies with it.
using namespace carve::preload;

namespace {



/// For a device that is not the slice's: the driver's own answer when it does not know it either.
template <class Call>
CUresult for_foreign(CUdevice device, Call call) {
  CUuuid uuid{};
  return driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS ? call() : CUDA_ERROR_SYSTEM_NOT_READY;
}

bool charge_context(Card& card) {
  const std::uint64_t bytes = card.grant->context_bytes;
  if (!charge(card, bytes)) {
    return false;
  }
  card.slot->context_bytes.fetch_add(bytes);
  return true;
}

void give_back_context(Card& card) {
  const std::uint64_t bytes = card.grant->context_bytes;
  card.slot->context_bytes.fetch_sub(bytes);
  give_back(card, bytes);
}

template <class Make>
CUresult create(CUcontext* context, CUdevice device, Make make) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? make() : refusal();
  }
  Card* card = card_of_device(device);
  if (card == nullptr) {
    return for_foreign(device, make);
  }
  const Hold hold(memory.context_lock);
  if (!charge_context(*card)) {
    return revoked(*card) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = make();
  if (result != CUDA_SUCCESS ||
      !memory.objects.insert({reinterpret_cast<std::uint64_t>(*context), card->grant->context_bytes, 0,
                              index_of(*card), Kind::kContext, 1})) {
    give_back_context(*card);
  }
  return result;
}

template <class Destroy>
CUresult destroy(CUcontext context, Destroy call) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? call() : refusal();
  }
  const Hold hold(memory.context_lock);
  const auto key = reinterpret_cast<std::uint64_t>(context);
  forget_work(context);
  const CUresult result = call();
  Entry entry{};
  if (result != CUDA_SUCCESS || !memory.objects.take(key, entry)) {
    return result;
  }
  Card& card = process.cards[entry.card];
  forget_context(card, key);
  give_back_context(card);
  return result;
}

/// After a release or reset: the primary context may be gone, and all that was allocated in it.
void settle_primary(CUdevice device) {
  Card* card = card_of_device(device);
  unsigned flags = 0;
  int active = 1;
  if (card == nullptr || driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0) {
    return;
  }
  std::uint64_t& context = memory.primary_context[index_of(*card)];
  if (context != 0) {
    forget_context(*card, context);
    give_back_context(*card);
    context = 0;
  }
}

template <class Call>
CUresult let_go(CUdevice device, Call call) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? call() : refusal();
  }
  const Hold hold(memory.context_lock);
  const Card* card = card_of_device(device);
  if (card != nullptr && memory.primary_context[index_of(*card)] != 0) {
    forget_work(reinterpret_cast<CUcontext>(memory.primary_context[index_of(*card)]));
  }
  const CUresult result = call();
  if (result == CUDA_SUCCESS) {
    settle_primary(device);
  }
  return result;
}

}  // namespace

CARVE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuDevicePrimaryCtxRetain)(context, device) : refusal();
  }
  Card* card = card_of_device(device);
  if (card == nullptr) {
    return for_foreign(device, [=] { return CARVE_DRIVER(cuDevicePrimaryCtxRetain)(context, device); });
  }
  const Hold hold(memory.context_lock);
  std::uint64_t& primary = memory.primary_context[index_of(*card)];
  const bool first = primary == 0;
  if (first && !charge_context(*card)) {
    return revoked(*card) ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = CARVE_DRIVER(cuDevicePrimaryCtxRetain)(context, device);
  if (result == CUDA_SUCCESS) {
    primary = reinterpret_cast<std::uint64_t>(*context);
  } else if (first) {
    give_back_context(*card);
  }
  return result;
}

CARVE_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return let_go(device, [=] { return CARVE_DRIVER(cuDevicePrimaryCtxRelease)(device); });
}
CARVE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return let_go(device, [=] { return CARVE_DRIVER(cuDevicePrimaryCtxRelease_v2)(device); });
}
CARVE_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return let_go(device, [=] { return CARVE_DRIVER(cuDevicePrimaryCtxReset)(device); });
}
CARVE_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return let_go(device, [=] { return CARVE_DRIVER(cuDevicePrimaryCtxReset_v2)(device); });
}

CARVE_EXPORT CUresult cuCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, device, [=] { return CARVE_DRIVER(cuCtxCreate)(context, flags, device); });
}
CARVE_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, device, [=] { return CARVE_DRIVER(cuCtxCreate_v2)(context, flags, device); });
}
CARVE_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, void* affinity, int count, unsigned flags,
                                     CUdevice device) {
  return create(context, device,
                [=] { return CARVE_DRIVER(cuCtxCreate_v3)(context, affinity, count, flags, device); });
}
CARVE_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned flags, CUdevice device) {
  return create(context, device,
                [=] { return CARVE_DRIVER(cuCtxCreate_v4)(context, parameters, flags, device); });
}

CARVE_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  return destroy(context, [=] { return CARVE_DRIVER(cuCtxDestroy)(context); });
}
CARVE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy(context, [=] { return CARVE_DRIVER(cuCtxDestroy_v2)(context); });
}
CARVE_EXPORT CUresult cuCtxDetach(CUcontext context) {
  return destroy(context, [=] { return CARVE_DRIVER(cuCtxDetach)(context); });
}
