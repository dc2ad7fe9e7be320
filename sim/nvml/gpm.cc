// GPM, the performance counters of Hopper and later cards. A sample has the card's busy time; two samples give the part
// of the time in which a kernel ran. The simulated kernels use no tensor core, so these figures are 0. Everything else
// that GPM has is not modelled: the metric's own code says NOT_SUPPORTED.
#include <new>

#include "sim/nvml/call.h"
#include "sim/nvml/gpm_abi.h"

namespace carve::sim::nvml {

struct GpmSample {
  std::uint32_t minor = 0;
  std::uint64_t up_ns = 0;  // 0: not taken yet
  std::uint64_t busy_ns = 0;
};

namespace {

constexpr std::uint32_t kMostMetrics = 210;  // that every caller has room for

bool has_gpm(const Here& h) { return h.model.compute_major >= 9; }

void fill(const GpmSample& from, const GpmSample& to, GpmMetric* metric) {
  metric->info = {};
  metric->result = kSuccess;
  metric->value = 0;
  switch (metric->id) {
    case kGpmGraphics:
    case kGpmSm:
      metric->value =
          100.0 * static_cast<double>(to.busy_ns - from.busy_ns) / static_cast<double>(to.up_ns - from.up_ns);
      return;
    case kGpmAnyTensor:
    case kGpmDfmaTensor:
    case kGpmHmmaTensor:
    case kGpmImmaTensor:
      return;
    default:
      metric->result = kNotSupported;
  }
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlGpmQueryDeviceSupport(Device device, GpmSupport* out) {
  if (out == nullptr) return kInvalidArgument;
  if (out->version != kGpmVersion) return kVersionMismatch;
  return on_card(device, [&](const Here& h) { return put(&out->supported, has_gpm(h) ? 1 : 0); });
}

CARVE_NVML_EXPORT Return nvmlGpmSampleAlloc(GpmSample** out) {
  return on_library([&](Session&) { return put(out, new (std::nothrow) GpmSample); });
}

CARVE_NVML_EXPORT Return nvmlGpmSampleFree(GpmSample* sample) {
  return on_library([&](Session&) {
    if (sample == nullptr) return kInvalidArgument;
    delete sample;
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlGpmSampleGet(Device device, GpmSample* sample) {
  return on_card(device, [&](const Here& h) -> Return {
    if (sample == nullptr) return kInvalidArgument;
    if (!has_gpm(h)) return kNotSupported;
    sample->minor = h.card.minor;
    return h.session.lifetime(h.card, &sample->up_ns, &sample->busy_ns);
  });
}

CARVE_NVML_EXPORT Return nvmlGpmMetricsGet(GpmMetricsGet* get) {
  return on_library([&](Session&) -> Return {
    if (get == nullptr || get->first == nullptr || get->second == nullptr || get->count > kMostMetrics)
      return kInvalidArgument;
    if (get->version != kGpmVersion) return kVersionMismatch;
    const GpmSample& from = *get->first;
    const GpmSample& to = *get->second;
    if (from.minor != to.minor || from.up_ns == 0 || to.up_ns <= from.up_ns) return kInvalidArgument;
    for (std::uint32_t i = 0; i < get->count; ++i) fill(from, to, &get->metrics[i]);
    return kSuccess;
  });
}

}  // namespace carve::sim::nvml
