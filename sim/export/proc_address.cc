#include "sim/export/proc_address.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace carve::sim {
namespace {

constexpr std::uint64_t kPerThreadDefaultStream = 2;

}  // namespace

ProcAnswer find_proc(const char* name, int version, std::uint64_t flags) {
  if (version < 0) version = std::numeric_limits<int>::max();
  const ProcVariant* end = kProcTable + kProcCount;
  const ProcVariant* at =
      std::lower_bound(kProcTable, end, name, [](const ProcVariant& row, const char* wanted) {
        return std::strcmp(row.base, wanted) < 0;
      });
  const ProcVariant* stop = at;
  bool has_per_thread = false;
  for (; stop != end && std::strcmp(stop->base, name) == 0; ++stop) {
    has_per_thread = has_per_thread || stop->per_thread;
  }
  if (stop == at) return {ProcStatus::kUnknownSymbol, nullptr};
  const bool per_thread = (flags & kPerThreadDefaultStream) != 0 && has_per_thread;
  const ProcVariant* best = nullptr;
  for (; at != stop; ++at) {
    if (at->per_thread == per_thread && at->version <= version) best = at;
  }
  if (best == nullptr) return {ProcStatus::kVersionTooLow, nullptr};
  return {ProcStatus::kFound, best->entry};
}

}  // namespace carve::sim
