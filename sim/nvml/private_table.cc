// The one table of functions without names that NVIDIA's own tools ask a driver for before they start (nvidia-smi).
#include <cstddef>
#include <cstring>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

/// What the table's functions take and return is NVIDIA's own. Each says that it is not supported, as a driver's does
/// on a card without the feature: the tool then shows "N/A", or leaves the feature out.
Return not_supported() { return kNotSupported; }

// As nvidia-smi 535 to 555 use it: the table's size in bytes, then functions. They call some of the first 216.
constexpr std::size_t kSlots = 512;
struct Table {
  std::size_t bytes;
  Return (*slots[kSlots])();
};

const Table& table() {
  static const Table made = [] {
    Table t{sizeof(Table), {}};
    for (auto& slot : t.slots) slot = not_supported;
    return t;
  }();
  return made;
}

constexpr unsigned char kOfTheTools[16] = {0xC4, 0xFE, 0x3E, 0x6C, 0xC9, 0x8F, 0x6C, 0x4E,
                                           0xA3, 0x27, 0xEE, 0x69, 0x6E, 0x12, 0xF7, 0xC4};

}  // namespace

CARVE_NVML_EXPORT Return nvmlInternalGetExportTable(const void** out, const void* id) {
  if (out == nullptr || id == nullptr) return kInvalidArgument;
  if (std::memcmp(id, kOfTheTools, sizeof kOfTheTools) != 0) return kNotSupported;
  *out = &table();
  return kSuccess;
}

}  // namespace carve::sim::nvml
