// The binary facts of GPM, NVML's interface to the performance counters; compared with NVIDIA's header like those of
// nvml_abi.h. The version of these records is 1, without their size.
#pragma once

#include <cstdint>

#include "sim/nvml/nvml_abi.h"

namespace carve::sim::nvml {

inline constexpr std::uint32_t kGpmVersion = 1;
enum GpmMetricId : std::uint32_t {
  kGpmGraphics = 1,
  kGpmSm = 2,
  kGpmAnyTensor = 5,
  kGpmDfmaTensor = 6,
  kGpmHmmaTensor = 7,
  kGpmImmaTensor = 9,
  kGpmMemoryBandwidth = 10,
};

struct GpmSample;  // opaque to callers
struct GpmSupport {
  std::uint32_t version, supported;
};
struct GpmMetric {
  std::uint32_t id;
  Return result;
  double value;
  struct {
    const char *short_name, *long_name, *unit;
  } info;
};
/// Callers reserve room for 210 metrics (header of 12.9) or more and set `count`.
struct GpmMetricsGet {
  std::uint32_t version, count;
  GpmSample *first, *second;
  GpmMetric metrics[210];
};
static_assert(sizeof(GpmMetric) == 40 && sizeof(GpmSupport) == 8);

}  // namespace carve::sim::nvml
