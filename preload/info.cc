#include "preload/export.h"
#include "preload/memory.h"

// The driver's memory figures, replaced with the slice's figures.
using namespace carve::preload;

namespace {

struct View {
  std::uint64_t free;
  std::uint64_t total;
};

View view_of(Card& card, std::uint64_t real_free, std::uint64_t real_total) {
  const std::uint64_t limit = limit_bytes(card);
  const std::uint64_t used = used_bytes(card);
  const std::uint64_t left = used < limit ? limit - used : 0;
  return {left < real_free ? left : real_free, limit < real_total ? limit : real_total};
}

/// Limits a figure to the largest 32-bit number. The driver does the same: it reports a card of 6 GiB as 4 GiB less one
/// byte, not as 2 GiB (BOINC issue 1773 and pull request 4757 show both calls next to each other).
unsigned narrow(std::uint64_t bytes) { return bytes > 0xffffffffU ? 0xffffffffU : static_cast<unsigned>(bytes); }

unsigned smaller(unsigned a, unsigned b) { return a < b ? a : b; }

std::uint64_t slice_total(CUdevice device, std::uint64_t real) {
  const Card* card = card_of_device(device);
  if (card == nullptr) {
    return 0;  // the driver shows the card, but it is not in the slice
  }
  const std::uint64_t limit = limit_bytes(*card);
  return limit < real ? limit : real;
}

/// Asks the driver for both figures. The driver decides whether a null pointer of the program is an error.
template <class Bytes, class Ask>
CUresult ask_both(const Bytes* free_bytes, const Bytes* total_bytes, Bytes* real_free, Bytes* real_total, Ask ask) {
  if (free_bytes == nullptr || total_bytes == nullptr) {
    const CUresult result =
        ask(free_bytes == nullptr ? nullptr : real_free, total_bytes == nullptr ? nullptr : real_total);
    if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  return ask(real_free, real_total);
}

}  // namespace

CARVE_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemGetInfo_v2)(free_bytes, total_bytes) : refusal();
  }
  std::size_t real_free = 0;
  std::size_t real_total = 0;
  const CUresult result = ask_both(free_bytes, total_bytes, &real_free, &real_total, [](auto* now_free, auto* all) {
    return CARVE_DRIVER(cuMemGetInfo_v2)(now_free, all);
  });
  if (result != CUDA_SUCCESS) {
    return result;
  }
  Card* card = current_card();
  if (card == nullptr) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  if (memory.pool_count != 0) {
    refresh_pools(*card, false);
  }
  const View view = view_of(*card, real_free, real_total);
  if (free_bytes != nullptr) {
    *free_bytes = view.free;
  }
  if (total_bytes != nullptr) {
    *total_bytes = view.total;
  }
  return result;
}

CARVE_EXPORT CUresult cuMemGetInfo(unsigned* free_bytes, unsigned* total_bytes) {
  const Duty now = duty();
  if (now != Duty::kMeter) {
    return now == Duty::kNone ? CARVE_DRIVER(cuMemGetInfo)(free_bytes, total_bytes) : refusal();
  }
  unsigned said_free = 0;
  unsigned said_total = 0;
  CUresult result = ask_both(free_bytes, total_bytes, &said_free, &said_total, [](auto* now_free, auto* all) {
    return CARVE_DRIVER(cuMemGetInfo)(now_free, all);
  });
  if (result != CUDA_SUCCESS) {
    return result;
  }
  std::size_t real_free = 0;
  std::size_t real_total = 0;
  result = cuMemGetInfo_v2(&real_free, &real_total);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  if (free_bytes != nullptr) {
    *free_bytes = smaller(narrow(real_free), said_free);
  }
  if (total_bytes != nullptr) {
    *total_bytes = smaller(narrow(real_total), said_total);
  }
  return result;
}

CARVE_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuDeviceTotalMem_v2)(bytes, device);
  if (result == CUDA_SUCCESS && now == Duty::kMeter && bytes != nullptr) {
    *bytes = slice_total(device, *bytes);
  }
  return result;
}

CARVE_EXPORT CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  const Duty now = duty();
  if (now == Duty::kUnknown) {
    return refusal();
  }
  const CUresult result = CARVE_DRIVER(cuDeviceTotalMem)(bytes, device);
  if (result == CUDA_SUCCESS && now == Duty::kMeter && bytes != nullptr) {
    std::size_t real = 0;
    const CUresult known = CARVE_DRIVER(cuDeviceTotalMem_v2)(&real, device);
    *bytes = smaller(narrow(slice_total(device, known == CUDA_SUCCESS ? real : *bytes)), *bytes);
  }
  return result;
}
