// The look-up behind cuGetProcAddress: which exported symbol implements a name at a version. It reads a generated
// table, has no state and is callable from any thread. The entry points cuGetProcAddress and cuGetProcAddress_v2, which
// differ in their error codes, are in sim/cuda.
#pragma once

#include <cstdint>

namespace carve::sim {

/// One variant of a driver function. The table is sorted by base name; legacy variants come before per-thread ones,
/// then by version.
struct ProcVariant {
  const char* base;  ///< the name that a program passes: no _v2, no _ptsz
  int version;       ///< driver version (1000·major + 10·minor) from which this variant is returned
  bool per_thread;   ///< the _ptds or _ptsz variant
  void* entry;
};
extern const ProcVariant kProcTable[];
extern const unsigned kProcCount;

/// CUdriverProcAddressQueryResult, same numbers.
enum class ProcStatus : int { kFound = 0, kUnknownSymbol = 1, kVersionTooLow = 2 };

struct ProcAnswer {
  ProcStatus status;
  void* entry;  ///< nullptr unless kFound
};

/// Finds the newest variant of `name` that existed in driver version `version`.
///   in      name: base name; a versioned name ("cuMemAlloc_v2") and "" are unknown symbols
///           version: 1000·major + 10·minor; negative, or newer than everything, means newest
///           flags: 0 or 1 legacy, 2 per-thread default stream (a name with per-thread variants never falls back to a
///                  legacy one). 3 acts like 2; the caller refuses > 3.
///   errors  none; see status
///   cost    one binary search over about 700 rows, no allocation
///   source  measured on the 535 and 555 drivers; a 535 driver returns the same for every name × version × flag
///           (tests/thirdparty/cases.py, proc_address_oracle)
ProcAnswer find_proc(const char* name, int version, std::uint64_t flags);

}  // namespace carve::sim
