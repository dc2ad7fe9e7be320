#include "preload/hooks.h"
#include "preload/memory.h"
#include "preload/meter.h"

// A context takes card memory itself. The hook charges it in advance, an amount per card model, and refuses the context
// when it does not fit. Memory that was allocated in a context is freed with it.
using namespace carve::preload;

namespace {

/// For a device that is not in the slice: a refusal, or the driver's own error when the driver does not know the
/// device.
template <class Call>
CUresult for_foreign(CUdevice device, Call call) {
  CUuuid uuid{};
  return driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS ? call() : CUDA_ERROR_SYSTEM_NOT_READY;
}

/// False: it does not fit. The price of a context may change later, so `bytes` returns what was charged. Give back
/// exactly this.
bool charge_context(Card& card, std::uint64_t& bytes) {
  bytes = card.grant->context_bytes;
  if (!charge(card, bytes)) {
    return false;
  }
  card.entry->context_bytes.fetch_add(bytes);
  return true;
}

void give_back_context(Card& card, std::uint64_t bytes) {
  card.entry->context_bytes.fetch_sub(bytes);
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
  std::uint64_t bytes = 0;
  if (!charge_context(*card, bytes)) {
    return refused_request(*card, bytes);
  }
  const CUresult result = make();
  if (result == CUDA_SUCCESS && memory.objects.insert({reinterpret_cast<std::uint64_t>(*context), bytes, 0,
                                                       index_of(*card), Kind::kContext, 0, 1})) {
    return result;
  }
  if (result == CUDA_SUCCESS) {
    CARVE_DRIVER(cuCtxDestroy_v2)(*context);
  }
  give_back_context(*card, bytes);
  return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/// Removes one user of the context; `all`: removes all users.
template <class Call>
CUresult leave(CUcontext context, bool all, Call call) REQUIRES(memory.context_lock) {
  const auto key = reinterpret_cast<std::uint64_t>(context);
  Entry entry{};
  memory.objects.update(key, [&](const Entry& found) {
    entry = found;
    return true;
  });
  const bool last = all || entry.references <= 1;
  if (last) {
    forget_work(context);
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS || entry.kind != Kind::kContext) {
    return result;
  }
  if (!last) {
    memory.objects.update(key, [](Entry& found) {
      --found.references;
      return true;
    });
    return result;
  }
  memory.objects.take(key, entry);
  Card& card = process.cards[entry.card];
  forget_context(card, key);
  give_back_context(card, entry.bytes);
  return result;
}

template <class Destroy>
CUresult destroy(CUcontext context, bool all, Destroy call) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? call() : refusal();
  }
  const Hold hold(memory.context_lock);
  return leave(context, all, call);
}

/// Call it after a release or reset. If the primary context is gone, its charge and the charge of all memory that was
/// allocated in it are given back.
void settle_primary(CUdevice device) REQUIRES(memory.context_lock) {
  Card* card = card_of_device(device);
  unsigned flags = 0;
  int active = 1;
  if (card == nullptr || driver.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active != 0) {
    return;
  }
  std::uint64_t& context = memory.primary_context[index_of(*card)];
  if (context != 0) {
    forget_context(*card, context);
    give_back_context(*card, memory.primary_bytes[index_of(*card)]);
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
  if (first && !charge_context(*card, memory.primary_bytes[index_of(*card)])) {
    return refused_request(*card, memory.primary_bytes[index_of(*card)]);
  }
  const CUresult result = CARVE_DRIVER(cuDevicePrimaryCtxRetain)(context, device);
  if (result == CUDA_SUCCESS) {
    primary = reinterpret_cast<std::uint64_t>(*context);
  } else if (first) {
    give_back_context(*card, memory.primary_bytes[index_of(*card)]);
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
  return destroy(context, true, [=] { return CARVE_DRIVER(cuCtxDestroy)(context); });
}
CARVE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  return destroy(context, true, [=] { return CARVE_DRIVER(cuCtxDestroy_v2)(context); });
}
// Each attach adds a reference, so a context survives the same number of detaches.
CARVE_EXPORT CUresult cuCtxAttach(CUcontext* context, unsigned flags) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuCtxAttach)(context, flags) : refusal();
  }
  const Hold hold(memory.context_lock);
  const CUresult result = CARVE_DRIVER(cuCtxAttach)(context, flags);
  if (result == CUDA_SUCCESS) {
    memory.objects.update(reinterpret_cast<std::uint64_t>(*context), [](Entry& entry) {
      entry.references += entry.kind == Kind::kContext ? 1 : 0;
      return true;
    });
  }
  return result;
}
CARVE_EXPORT CUresult cuCtxDetach(CUcontext context) {
  return destroy(context, false, [=] { return CARVE_DRIVER(cuCtxDetach)(context); });
}

CARVE_EXPORT CUresult cuGLCtxCreate(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, device, [=] { return CARVE_DRIVER(cuGLCtxCreate)(context, flags, device); });
}
CARVE_EXPORT CUresult cuGLCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return create(context, device, [=] { return CARVE_DRIVER(cuGLCtxCreate_v2)(context, flags, device); });
}
CARVE_EXPORT CUresult cuVDPAUCtxCreate(CUcontext* context, unsigned flags, CUdevice device, unsigned vdpau,
                                       void* lookup) {
  return create(context, device,
                [=] { return CARVE_DRIVER(cuVDPAUCtxCreate)(context, flags, device, vdpau, lookup); });
}
CARVE_EXPORT CUresult cuVDPAUCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device, unsigned vdpau,
                                          void* lookup) {
  return create(context, device,
                [=] { return CARVE_DRIVER(cuVDPAUCtxCreate_v2)(context, flags, device, vdpau, lookup); });
}

// A green context retains the primary context of its device, and may be the first to retain it.
CARVE_EXPORT CUresult cuGreenCtxCreate(void** green, void* resources, CUdevice device, unsigned flags) {
  const auto make = [=] { return CARVE_DRIVER(cuGreenCtxCreate)(green, resources, device, flags); };
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? make() : refusal();
  }
  Card* card = card_of_device(device);
  if (card == nullptr) {
    return for_foreign(device, make);
  }
  const Hold hold(memory.context_lock);
  std::uint64_t& primary = memory.primary_context[index_of(*card)];
  const bool first = primary == 0;
  if (first && !charge_context(*card, memory.primary_bytes[index_of(*card)])) {
    return refused_request(*card, memory.primary_bytes[index_of(*card)]);
  }
  const CUresult result = make();
  CUcontext context = nullptr;
  if (first && result == CUDA_SUCCESS && CARVE_DRIVER(cuDevicePrimaryCtxRetain)(&context, device) == CUDA_SUCCESS) {
    primary = reinterpret_cast<std::uint64_t>(context);
    CARVE_DRIVER(cuDevicePrimaryCtxRelease_v2)(device);
  } else if (first) {
    give_back_context(*card, memory.primary_bytes[index_of(*card)]);
  }
  return result;
}
CARVE_EXPORT CUresult cuGreenCtxDestroy(void* green) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuGreenCtxDestroy)(green) : refusal();
  }
  const Hold hold(memory.context_lock);
  const CUresult result = CARVE_DRIVER(cuGreenCtxDestroy)(green);
  if (result == CUDA_SUCCESS) {
    for (CUdevice device = 0; device < static_cast<CUdevice>(kMaxOrdinals); ++device) {
      settle_primary(device);
    }
  }
  return result;
}
