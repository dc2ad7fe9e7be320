#include <dlfcn.h>
#include <sys/mman.h>

#include "lease/memory_account.h"
#include "preload/export.h"
#include "preload/process.h"

// NVML in a slice: it shows the slice's memory and only the slice's processes. The source of the structures is NVML's
// public documentation. Only the names of the fields that are used here are significant.
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
/// The layout that the lists of the private table write (see nvmlInternalGetExportTable below).
struct NamedProcess {
  unsigned pid;
  std::uint64_t used;
  unsigned gpu_instance, compute_instance;
  std::uint64_t reserved;
  char name[4096];
};
static_assert(sizeof(NamedProcess) == 4128);
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

/// The driver's function for a hook. It is looked up at each call, because NVML calls are never on a hot path.
template <class Function>
Function* behind(Hook hook) {
  static_assert(sizeof(carve::abi::kDriverFolder) == sizeof("/usr/lib/carve/driver"));
  void* file = dlopen("/usr/lib/carve/driver/libnvidia-ml.so.1", RTLD_NOLOAD | RTLD_LAZY);
  void* found = file != nullptr ? dlsym(file, kSymbols[static_cast<unsigned>(hook)]) : nullptr;
  if (file != nullptr) {
    dlclose(file);  // drops only the reference that this look-up took
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
  if (!connect_to_slices(process, abi::LibraryKind::kNvml)) {
    return Duty::kUnknown;
  }
  const Duty found = unlimited(process) ? Duty::kNone : Duty::kMeter;
  publish_duty(found);
  return found;
}

}  // namespace carve::preload

using namespace carve::preload;

namespace {

/// The slice's card for an NVML handle; null when it is not a card of the slice.
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
  return card.grant->overhead_bytes.load_relaxed() +
         carve::lease::MemoryAccount::add_up_entries(*card.grant, *card.account, 0).in_use;
}

/// True when a process of this slice has this host PID. The tenant can write the PID in the account entry. A wrong PID
/// shows the tenant the PID and memory of another process; it has no other effect.
bool ours(const Card& card, unsigned pid) {
  std::uint32_t entries = card.grant->high_entry.load_seq_cst();
  entries = entries > carve::abi::kAccountEntries ? carve::abi::kAccountEntries : entries;
  for (std::uint32_t i = 0; i < entries; ++i) {
    const carve::abi::AccountEntry& entry = card.account->entries[i];
    if (entry.instance.load_relaxed() != 0 && entry.host_pid.load_relaxed() == pid) {
      return true;
    }
  }
  return false;
}

/// Moves the slice's entries to the front and returns their number.
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

/// A list call: reads all processes of the card into a buffer of the library and returns those of the slice.
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
    room += kRoomOnStack;  // more processes may start in the meantime
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
  // The memory that is reserved for the driver is not part of the slice: it was subtracted from the card's memory
  // before slices were granted.
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

// nvidia-smi gets its process list from three functions without names: entries 213 to 215 of a table that it requests
// from the driver. In a slice, the hook returns a copy of that table in which these three functions omit the processes
// that are not in the slice.
//   source  tested with nvidia-smi and libnvidia-ml of 535.261, 550.163 and 555.58: the table begins with its size in
//           bytes; it has 245, 251 and 255 entries, and new entries were added only at the end; the functions for
//           compute, graphics and MPS processes each take (device, count, entries) and write entries of 4128 bytes
namespace {

constexpr std::uint64_t kToolsTable[2] = {0x4E6C8FC96C3EFEC4U, 0xC4F7126E69EE27A3U};  // in the byte order of memory
constexpr unsigned kFirstList = 213;
constexpr unsigned kLists = 3;
constexpr std::size_t kTableRoom = 1024;  // entries

using NamedList = nvmlReturn_t(nvmlDevice_t, unsigned*, NamedProcess*);

NamedList* lists_of_driver[kLists];
std::uintptr_t shown_table[kTableRoom];

template <unsigned kWhich>
nvmlReturn_t list_named(nvmlDevice_t device, unsigned* count, NamedProcess* entries) {
  const nvmlReturn_t result = lists_of_driver[kWhich](device, count, entries);
  if (result == kSuccess && count != nullptr && entries != nullptr) {
    const Card* card = card_of(device);
    *count = card != nullptr ? keep_ours(*card, entries, *count) : 0;
  }
  return result;
}

constexpr NamedList* kOurLists[kLists] = {list_named<0>, list_named<1>, list_named<2>};

bool is_tools_table(const void* id) {
  std::uint64_t words[2];
  __builtin_memcpy(words, id, sizeof words);
  return words[0] == kToolsTable[0] && words[1] == kToolsTable[1];
}

/// Fills the copy of the table. Each thread that calls it writes the same words.
const void* shown(const std::uintptr_t* table) {
  const std::size_t entries = table[0] / sizeof(std::uintptr_t);
  if (entries <= kFirstList) {
    return table;  // an older driver without such lists
  }
  for (std::size_t i = 1; i < entries && i < kTableRoom; ++i) {
    const bool is_list = i >= kFirstList && i < kFirstList + kLists && table[i] != 0;
    if (is_list) {
      __atomic_store_n(&lists_of_driver[i - kFirstList], reinterpret_cast<NamedList*>(table[i]), __ATOMIC_RELEASE);
    }
    const std::uintptr_t entry = is_list ? reinterpret_cast<std::uintptr_t>(kOurLists[i - kFirstList]) : table[i];
    __atomic_store_n(&shown_table[i], entry, __ATOMIC_RELEASE);
  }
  const std::size_t told = entries < kTableRoom ? entries : kTableRoom;
  __atomic_store_n(&shown_table[0], told * sizeof(std::uintptr_t), __ATOMIC_RELEASE);
  return shown_table;
}

}  // namespace

CARVE_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void** table, const unsigned char* id) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return kNotReady;
  }
  const nvmlReturn_t result = DRIVER(nvmlInternalGetExportTable)(table, id);
  if (result != kSuccess || now == Duty::kNone || table == nullptr || *table == nullptr || id == nullptr) {
    return result;
  }
  if (is_tools_table(id)) {
    *table = shown(static_cast<const std::uintptr_t*>(*table));
  }
  return result;
}
