#include "preload/driver.h"
#include "preload/export.h"
#include "preload/memory.h"
#include "preload/meter.h"

// Connects the process to its slice: finds the slice's cards and decides what each call must do.
namespace carve::preload {

Process process;

namespace {

void put_hex(char*& at, const unsigned char* bytes, int count) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < count; ++i) {
    *at++ = kDigits[bytes[i] >> 4];
    *at++ = kDigits[bytes[i] & 15];
  }
}

/// True when the UUID in the page has these 16 bytes. Both "GPU-…" and "MIG-…" end in the 36 characters of the UUID.
bool same_card(const char* card_uuid, const CUuuid& uuid) {
  char text[36];
  char* at = text;
  put_hex(at, uuid.bytes, 4);
  constexpr int kFrom[] = {4, 6, 8, 10};
  for (const int from : kFrom) {
    *at++ = '-';
    put_hex(at, uuid.bytes + from, from == 10 ? 6 : 2);
  }
  std::size_t length = 0;
  while (length < sizeof(abi::GrantPage::card_uuid) && card_uuid[length] != 0) {
    ++length;
  }
  if (length < sizeof text) {
    return false;
  }
  const char* tail = card_uuid + length - sizeof text;
  for (std::size_t i = 0; i < sizeof text; ++i) {
    const char letter = tail[i] >= 'A' && tail[i] <= 'F' ? static_cast<char>(tail[i] - 'A' + 'a') : tail[i];
    if (letter != text[i]) {
      return false;
    }
  }
  return true;
}

/// Fills `card_of_ordinal`. A device that the driver shows and that is not in the slice stays 0 and is refused later.
/// If a container has two slices on one card (two requests of a claim), the first counts, as in nvml.cc.
void match_cards(int devices) {
  for (int i = 0; i < devices && i < static_cast<int>(kMaxOrdinals); ++i) {
    CUdevice device = i;
    CUuuid uuid{};
    if (driver.cuDeviceGet(&device, i) != CUDA_SUCCESS || device < 0 ||
        device >= static_cast<CUdevice>(kMaxOrdinals)) {
      continue;
    }
    if (driver.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS &&
        driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
      continue;
    }
    for (std::uint32_t c = 0; c < process.card_count; ++c) {
      if (same_card(process.cards[c].grant->card_uuid, uuid)) {
        process.card_of_ordinal[device] = static_cast<std::int8_t>(c + 1);
        break;
      }
    }
  }
}

}  // namespace

void prepare_for_fork() {
  if (__atomic_load_n(&process.wiped, __ATOMIC_ACQUIRE) == 0) {
    wipe_on_fork(&process, sizeof process);
    wipe_on_fork(&memory, sizeof memory);
    wipe_on_fork(&meter, sizeof meter);
    __atomic_store_n(&process.wiped, 1U, __ATOMIC_RELEASE);
  }
}

Duty connect_slowly() {
  prepare_for_fork();
  if (!resolve_driver()) {
    process.refusal = CUDA_ERROR_SYSTEM_NOT_READY;
    return Duty::kUnknown;
  }
  int devices = 0;
  const CUresult initialised = driver.cuDeviceGetCount(&devices);
  if (initialised != CUDA_SUCCESS) {
    __atomic_store_n(&process.refusal, initialised, __ATOMIC_RELAXED);
    return Duty::kUnknown;
  }
  const Hold hold(process.connecting);
  if (process.duty != Duty::kUnknown) {
    return process.duty;
  }
  if (!connect_to_slices(process, abi::LibraryKind::kCuda)) {
    __atomic_store_n(&process.refusal, CUDA_ERROR_SYSTEM_NOT_READY, __ATOMIC_RELAXED);
    return Duty::kUnknown;
  }
  match_cards(devices);
  attach_gates();
  const Duty found = unlimited(process) ? Duty::kNone : Duty::kMeter;
  publish_duty(found);
  return found;
}

Card* card_of_device(CUdevice device) {
  if (device < 0 || device >= static_cast<CUdevice>(kMaxOrdinals) || process.card_of_ordinal[device] == 0) {
    return nullptr;
  }
  return &process.cards[process.card_of_ordinal[device] - 1];
}

Card* current_card() {
  CUdevice device = 0;
  if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return nullptr;
  }
  return card_of_device(device);
}

}  // namespace carve::preload

using namespace carve::preload;

CARVE_EXPORT CUresult cuInit(unsigned flags) {
  prepare_for_fork();
  if (!resolve_driver()) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  using Init = CUresult (*)(unsigned);
  const CUresult result = reinterpret_cast<Init>(driver_function[static_cast<unsigned>(Hook::cuInit)])(flags);
  if (result != CUDA_SUCCESS || duty() != Duty::kUnknown) {
    return result;
  }
  return refusal();
}
