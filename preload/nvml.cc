#include <dlfcn.h>
#include <sys/mman.h>

#include "preload/export.h"
#include "preload/process.h"

// NVML as the slice sees it: its memory, and no processes but its own. Structures are written from NVML's
// public documentation; only the fields used here have names that matter.
using nvmlReturn_t = int;
using nvmlDevice_t = struct nvmlDevice_st*;

namespace {

constexpr nvmlReturn_t kSuccess = 0;
constexpr nvmlReturn_t kInvalidArgument = 2;
constexpr nvmlReturn_t kNoPermission = 4;
constexpr nvmlReturn_t kInsufficientSize = 7;
constexpr nvmlReturn_t kFunctionNotFound = 13;
constexpr nvmlReturn_t kNotReady = 27;
constexpr nvmlReturn_t kMemory = 20;

struct MemoryV1 {
  std::uint64_t total, free, used;
};
struct MemoryV2 {
  unsigned version;
  std::uint64_t total, reserved, free, used;
};
struct ProcessV1 {
  unsigned pid;
  std::uint64_t used;
};
struct ProcessV2 {
  unsigned pid;
  std::uint64_t used;
  unsigned gpu_instance, compute_instance;
};
struct ProcessDetail {
  unsigned pid;
  std::uint64_t used;
  unsigned gpu_instance, compute_instance;
  std::uint64_t protected_bytes;
};
struct ProcessDetailList {
  unsigned version, mode, count;
  ProcessDetail* entries;
};
struct UtilizationSample {
  unsigned pid;
  std::uint64_t timestamp;
  unsigned sm, memory, encoder, decoder;
};
struct Utilization {
  std::uint64_t timestamp;
  unsigned pid, sm, memory, encoder, decoder, jpeg, ofa;
};
struct UtilizationList {
  unsigned version, count;
  std::uint64_t since;
  Utilization* entries;
};
static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessV1) == 16 && sizeof(ProcessV2) == 24);
static_assert(sizeof(ProcessDetail) == 32 && sizeof(UtilizationSample) == 32 && sizeof(Utilization) == 40);

enum class Hook : unsigned {
#define HOOK(symbol, kind) symbol,
#include "preload/hooks_nvml.def"
#undef HOOK
  kCount
};

constexpr const char* kSymbols[] = {
#define HOOK(symbol, kind) #symbol,
#include "preload/hooks_nvml.def"
#undef HOOK
};

nvmlReturn_t not_in_this_driver() { return kFunctionNotFound; }

/// The driver's function behind a hook. NVML calls are never hot: a look-up each is fine.
template <class Function>
Function* behind(Hook hook) {
  static_assert(sizeof(carve::abi::kDriverFolder) == sizeof("/usr/lib/carve/driver"));
  void* file = dlopen("/usr/lib/carve/driver/libnvidia-ml.so.1", RTLD_NOLOAD | RTLD_LAZY);
  void* found = file != nullptr ? dlsym(file, kSymbols[static_cast<unsigned>(hook)]) : nullptr;
  if (file != nullptr) {
    dlclose(file);  // only the count that this look-up took
  }
  return reinterpret_cast<Function*>(found != nullptr ? found : reinterpret_cast<void*>(not_in_this_driver));
}
#define DRIVER(symbol) behind<decltype(::symbol)>(Hook::symbol)

using GetUuid = nvmlReturn_t(nvmlDevice_t, char*, unsigned);

}  // namespace

namespace carve::preload {

Process process;

Duty connect_slowly() {
  if (__atomic_exchange_n(&process.wiped, 1U, __ATOMIC_ACQ_REL) == 0) {
    wipe_on_fork(&process, sizeof process);
  }
  const Hold hold(process.connecting);
  if (process.duty != Duty::kUnknown) {
    return process.duty;
  }
  if (!map_with_patience(process, abi::LibraryKind::kNvml)) {
    return Duty::kUnknown;
  }
  const Duty found = unlimited(process) ? Duty::kNone : Duty::kMeter;
  publish_duty(found);
  return found;
}

}  // namespace carve::preload

using namespace carve::preload;

namespace {

/// The slice's card behind an NVML handle; null when it is none of ours.
Card* card_of(nvmlDevice_t device) {
  void* file = dlopen("/usr/lib/carve/driver/libnvidia-ml.so.1", RTLD_NOLOAD | RTLD_LAZY);
  auto* get_uuid = file != nullptr ? reinterpret_cast<GetUuid*>(dlsym(file, "nvmlDeviceGetUUID")) : nullptr;
  if (file != nullptr) {
    dlclose(file);
  }
  char uuid[96] = {};
  if (get_uuid == nullptr || get_uuid(device, uuid, sizeof uuid) != kSuccess) {
    return nullptr;
  }
  for (std::uint32_t i = 0; i < process.card_count; ++i) {
    if (__builtin_strcmp(process.cards[i].grant->card_uuid, uuid) == 0) {
      return &process.cards[i];
    }
  }
  return nullptr;
}

std::uint64_t used_of(const Card& card) {
  std::uint32_t slots = card.grant->high_slot.load_seq_cst();
  slots = slots > carve::abi::kAccountSlots ? carve::abi::kAccountSlots : slots;
  std::uint64_t sum = card.grant->overhead_bytes.load_relaxed();
  for (std::uint32_t i = 0; i < slots; ++i) {
    sum += card.account->slots[i].used_bytes.load_relaxed();
  }
  return sum;
}

/// True when a process of this slice has this host PID. The figure in the slot is the tenant's own word: a
/// wrong one shows it another process' PID and memory, nothing more.
bool ours(const Card& card, unsigned pid) {
  std::uint32_t slots = card.grant->high_slot.load_seq_cst();
  slots = slots > carve::abi::kAccountSlots ? carve::abi::kAccountSlots : slots;
  for (std::uint32_t i = 0; i < slots; ++i) {
    const carve::abi::AccountSlot& slot = card.account->slots[i];
    if (slot.instance.load_relaxed() != 0 && slot.host_pid.load_relaxed() == pid) {
      return true;
    }
  }
  return false;
}

/// Moves the slice's entries to the front; returns how many there are.
template <class Entry>
unsigned keep_ours(const Card& card, Entry* entries, unsigned count) {
  unsigned kept = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (ours(card, entries[i].pid)) {
      entries[kept++] = entries[i];
    }
  }
  return kept;
}

struct Limits {
  std::uint64_t total, used, free;
};

Limits limits_of(const Card& card, std::uint64_t real_total, std::uint64_t real_free) {
  const std::uint64_t limit = card.grant->memory_limit.load_relaxed();
  Limits out{};
  out.total = limit < real_total ? limit : real_total;
  const std::uint64_t used = used_of(card);
  out.used = used < out.total ? used : out.total;
  const std::uint64_t left = out.total - out.used;
  out.free = left < real_free ? left : real_free;
  return out;
}

constexpr unsigned kRoomOnStack = 128;

/// A list call: asks for all processes of the card in room of our own, and hands out the slice's.
template <class Info, class Call>
nvmlReturn_t list(nvmlDevice_t device, unsigned* count, Info* infos, Call call) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? call(device, count, infos) : kNotReady;
  }
  if (count == nullptr || (*count != 0 && infos == nullptr)) {
    return kInvalidArgument;
  }
  const Card* card = card_of(device);
  if (card == nullptr) {
    return kNoPermission;
  }
  Info few[kRoomOnStack];
  Info* all = few;
  unsigned room = kRoomOnStack;
  nvmlReturn_t result = call(device, &room, all);
  std::size_t mapped = 0;
  if (result == kInsufficientSize) {
    room += kRoomOnStack;  // some may be born meanwhile
    mapped = room * sizeof(Info);
    void* more = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED) {
      return kMemory;
    }
    all = static_cast<Info*>(more);
    result = call(device, &room, all);
  }
  if (result == kSuccess) {
    const unsigned kept = keep_ours(*card, all, room);
    result = kept > *count ? kInsufficientSize : kSuccess;
    for (unsigned i = 0; result == kSuccess && i < kept; ++i) {
      infos[i] = all[i];
    }
    *count = kept;
  }
  if (mapped != 0) {
    munmap(all, mapped);
  }
  return result;
}

}  // namespace

CARVE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, MemoryV1* out) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlDeviceGetMemoryInfo)(device, out);
  if (result != kSuccess || now == Duty::kNone) {
    return result;
  }
  const Card* card = card_of(device);
  if (card == nullptr) {
    return kNoPermission;
  }
  const Limits limits = limits_of(*card, out->total, out->free);
  *out = {limits.total, limits.free, limits.used};
  return result;
}

CARVE_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, MemoryV2* out) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlDeviceGetMemoryInfo_v2)(device, out);
  if (result != kSuccess || now == Duty::kNone) {
    return result;
  }
  const Card* card = card_of(device);
  if (card == nullptr) {
    return kNoPermission;
  }
  // What is reserved for the driver is not the slice's: it was taken off before the slice was cut.
  const Limits limits = limits_of(*card, out->total, out->free);
  *out = {out->version, limits.total, 0, limits.free, limits.used};
  return result;
}

#define CARVE_LIST(symbol, Info)                                                           \
  CARVE_EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned* count, Info* infos) {    \
    return list(device, count, infos, [](nvmlDevice_t of, unsigned* number, Info* into) {  \
      return DRIVER(symbol)(of, number, into);                                             \
    });                                                                                    \
  }
CARVE_LIST(nvmlDeviceGetComputeRunningProcesses, ProcessV1)
CARVE_LIST(nvmlDeviceGetComputeRunningProcesses_v2, ProcessV2)
CARVE_LIST(nvmlDeviceGetComputeRunningProcesses_v3, ProcessV2)
CARVE_LIST(nvmlDeviceGetGraphicsRunningProcesses, ProcessV1)
CARVE_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessV2)
CARVE_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessV2)
CARVE_LIST(nvmlDeviceGetMPSComputeRunningProcesses, ProcessV1)
CARVE_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessV2)
CARVE_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessV2)

CARVE_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, ProcessDetailList* out) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlDeviceGetRunningProcessDetailList)(device, out);
  if (result == kSuccess && now == Duty::kMeter && out->entries != nullptr) {
    const Card* card = card_of(device);
    out->count = card != nullptr ? keep_ours(*card, out->entries, out->count) : 0;
  }
  return result;
}

CARVE_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, UtilizationSample* samples,
                                                          unsigned* count, unsigned long long since) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlDeviceGetProcessUtilization)(device, samples, count, since);
  if (result == kSuccess && now == Duty::kMeter && samples != nullptr) {
    const Card* card = card_of(device);
    *count = card != nullptr ? keep_ours(*card, samples, *count) : 0;
  }
  return result;
}

CARVE_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, UtilizationList* out) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlDeviceGetProcessesUtilizationInfo)(device, out);
  if (result == kSuccess && now == Duty::kMeter && out->entries != nullptr) {
    const Card* card = card_of(device);
    out->count = card != nullptr ? keep_ours(*card, out->entries, out->count) : 0;
  }
  return result;
}
