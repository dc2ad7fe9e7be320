// Clocks, power, temperature, PCIe, error counters. Nothing here is measured: the figures are computed from the
// activity of the last second by the plain formulas below, so that tools show values that move in the right direction.
// Error counters stay 0.
#include <algorithm>
#include <vector>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

constexpr std::uint32_t kIdleCelsius = 32, kBusyRiseCelsius = 33;
constexpr std::uint32_t kShutdownCelsius = 92, kSlowdownCelsius = 89, kMaxCelsius = 85,
                        kMemoryMaxCelsius = 95;
constexpr std::uint32_t kIdleMemoryMhz = 405;
constexpr std::uint32_t kLowestLimitMw = 100000;
constexpr std::uint64_t kLastSecondUs = 1000000;

enum ClockDomain : int { kGraphics = 0, kSm = 1, kMemoryClock = 2, kVideo = 3 };

std::uint32_t full_clock(const Model& m, int domain) {
  if (domain == kMemoryClock) return m.memory_clock_mhz;
  return domain == kVideo ? m.sm_clock_mhz * 9 / 10 : m.sm_clock_mhz;
}

Return clock_now(const Here& h, int domain, unsigned* out) {
  if (out == nullptr || domain < kGraphics || domain > kVideo) return kInvalidArgument;
  Vitals v;
  if (Return r = read_vitals(h, &v); r != kSuccess) return r;
  *out = domain == kMemoryClock ? v.memory_mhz : v.sm_mhz;
  if (domain == kVideo) *out = *out * 9 / 10;
  return kSuccess;
}

Return clock_full(const Here& h, int domain, unsigned* out) {
  if (domain < kGraphics || domain > kVideo) return kInvalidArgument;
  return put(out, full_clock(h.model, domain));
}

template <class T, class F>
Return vital(Device device, T* out, F f) {
  return on_card(device, [&](const Here& h) -> Return {
    Vitals v;
    if (Return r = read_vitals(h, &v); r != kSuccess) return r;
    return put(out, f(v));
  });
}

Return zero_count(Device device, unsigned long long* out) {
  return on_card(device, [&](const Here&) { return put(out, 0); });
}

bool has_ecc(const Model& m) { return m.compute_major >= 7; }
bool has_row_remap(const Model& m) { return m.compute_major >= 8; }
std::uint32_t lowest_limit(const Model& m) {
  return std::min(kLowestLimitMw, m.power_limit_mw * 6 / 7);
}

}  // namespace

Return read_vitals(const Here& h, Vitals* out) {
  std::vector<UsageSample> samples;
  if (Return r = h.session.usage(h.card, 0, &samples); r != kSuccess) return r;
  std::vector<ProcessUse> processes;
  if (Return r = h.session.processes(h.card, &processes); r != kSuccess) return r;
  std::erase_if(samples, [](const UsageSample& s) { return s.pid != 0; });
  std::uint32_t heat = 0, periods = 0;
  *out = {};
  for (auto s = samples.rbegin(); s != samples.rend(); ++s) {
    if (s == samples.rbegin()) {
      out->gpu_percent = s->sm;
      out->memory_percent = s->memory;
    }
    if (s->time_us + kLastSecondUs <= samples.back().time_us) break;
    heat += s->sm;
    ++periods;
  }
  heat = periods != 0 ? heat / periods : 0;
  const Model& m = h.model;
  out->contexts = !processes.empty();
  const bool awake = out->contexts || heat != 0;
  // A context alone raises the clocks and, with them, the power by a tenth of the range.
  const std::uint32_t load = awake ? 10 + heat * 85 / 100 : 0;
  out->power_mw = m.power_idle_mw + (m.power_limit_mw - m.power_idle_mw) / 100 * load;
  out->celsius = kIdleCelsius + kBusyRiseCelsius * load / 100;
  out->sm_mhz = awake ? m.sm_clock_mhz : m.sm_clock_idle_mhz;
  out->memory_mhz = awake ? m.memory_clock_mhz : std::min(kIdleMemoryMhz, m.memory_clock_mhz);
  out->pstate = awake ? 0 : 8;
  if (m.memory_bus_bits > 1024) {  // idle HBM cards stay in P0 with the memory at full clock
    out->memory_mhz = m.memory_clock_mhz;
    out->pstate = 0;
  }
  return kSuccess;
}

CARVE_NVML_EXPORT Return nvmlDeviceGetClockInfo(Device device, int domain, unsigned* out) {
  return on_card(device, [&](const Here& h) { return clock_now(h, domain, out); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMaxClockInfo(Device device, int domain, unsigned* out) {
  return on_card(device, [&](const Here& h) { return clock_full(h, domain, out); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMaxCustomerBoostClock(Device device, int domain,
                                                            unsigned* out) {
  return on_card(device, [&](const Here& h) { return clock_full(h, domain, out); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetApplicationsClock(Device device, int domain, unsigned* out) {
  return on_card(device, [&](const Here& h) { return clock_full(h, domain, out); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDefaultApplicationsClock(Device device, int domain,
                                                               unsigned* out) {
  return on_card(device, [&](const Here& h) { return clock_full(h, domain, out); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetClock(Device device, int domain, int id, unsigned* out) {
  constexpr int kCurrent = 0, kLast = 3;
  return on_card(device, [&](const Here& h) -> Return {
    if (id < kCurrent || id > kLast) return kInvalidArgument;
    return id == kCurrent ? clock_now(h, domain, out) : clock_full(h, domain, out);
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedMemoryClocks(Device device, unsigned* count,
                                                            unsigned* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (count == nullptr) return kInvalidArgument;
    const unsigned capacity = out == nullptr ? 0 : *count;
    *count = 1;
    if (capacity < 1) return kInsufficientSize;
    *out = h.model.memory_clock_mhz;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedGraphicsClocks(Device device, unsigned memory_mhz,
                                                              unsigned* count, unsigned* out) {
  constexpr unsigned kStepMhz = 15;
  return on_card(device, [&](const Here& h) -> Return {
    if (count == nullptr) return kInvalidArgument;
    if (memory_mhz != h.model.memory_clock_mhz) return kNotFound;
    const unsigned steps = (h.model.sm_clock_mhz - h.model.sm_clock_idle_mhz) / kStepMhz + 1;
    const unsigned capacity = out == nullptr ? 0 : *count;
    *count = steps;
    if (capacity < steps) return kInsufficientSize;
    for (unsigned i = 0; i < steps; ++i) out[i] = h.model.sm_clock_mhz - i * kStepMhz;
    return kSuccess;
  });
}

namespace {
constexpr unsigned long long kReasonIdle = 1, kReasonsKnown = 0x1FF;
Return clock_reasons(Device device, unsigned long long* out) {
  return vital(device, out, [](const Vitals& v) { return v.contexts ? 0 : kReasonIdle; });
}
Return known_reasons(Device device, unsigned long long* out) {
  return card_value(device, out, [](const Here&) { return kReasonsKnown; });
}
}  // namespace
CARVE_NVML_EXPORT Return nvmlDeviceGetCurrentClocksEventReasons(Device d, unsigned long long* o) {
  return clock_reasons(d, o);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Device d,
                                                                   unsigned long long* o) {
  return clock_reasons(d, o);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedClocksEventReasons(Device d,
                                                                  unsigned long long* o) {
  return known_reasons(d, o);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSupportedClocksThrottleReasons(Device d,
                                                                     unsigned long long* o) {
  return known_reasons(d, o);
}

CARVE_NVML_EXPORT Return nvmlDeviceGetPerformanceState(Device device, unsigned* out) {
  return vital(device, out, [](const Vitals& v) { return v.pstate; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerState(Device device, unsigned* out) {
  return vital(device, out, [](const Vitals& v) { return v.pstate; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerUsage(Device device, unsigned* out) {
  return vital(device, out, [](const Vitals& v) { return v.power_mw; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerManagementMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 1; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerSource(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerManagementLimit(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.power_limit_mw; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.power_limit_mw; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.power_limit_mw; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* low,
                                                                      unsigned* high) {
  return on_card(device, [&](const Here& h) -> Return {
    if (low == nullptr || high == nullptr) return kInvalidArgument;
    *low = lowest_limit(h.model);
    *high = h.model.power_limit_mw;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetTotalEnergyConsumption(Device device,
                                                             unsigned long long* out_mj) {
  return on_card(device, [&](const Here& h) -> Return {
    std::uint64_t up_ns = 0, busy_ns = 0;
    if (Return r = h.session.lifetime(h.card, &up_ns, &busy_ns); r != kSuccess) return r;
    const std::uint64_t range_mw = h.model.power_limit_mw - h.model.power_idle_mw;
    const std::uint64_t up_ms = up_ns / 1000000, busy_ms = busy_ns / 1000000;
    return put(out_mj, (up_ms * h.model.power_idle_mw + busy_ms * (range_mw * 95 / 100)) / 1000);
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetTemperature(Device device, int sensor, unsigned* out) {
  if (sensor != 0) return sensor == 1 ? kNotSupported : kInvalidArgument;
  return vital(device, out, [](const Vitals& v) { return v.celsius; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetTemperatureV(Device device, Temperature* out) {
  if (out == nullptr) return kInvalidArgument;
  if (out->version != struct_version<Temperature>(1)) return kVersionMismatch;
  if (out->sensor != 0) return out->sensor == 1 ? kNotSupported : kInvalidArgument;
  return vital(device, &out->celsius, [](const Vitals& v) { return v.celsius; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetTemperatureThreshold(Device device, int which,
                                                           unsigned* out) {
  constexpr std::uint32_t kThresholds[] = {kShutdownCelsius, kSlowdownCelsius, kMemoryMaxCelsius,
                                           kMaxCelsius};
  if (which < 0 || which > 7) return kInvalidArgument;
  if (which > 3) return kNotSupported;
  return card_value(device, out, [&](const Here&) { return kThresholds[which]; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMarginTemperature(Device device, MarginTemperature* out) {
  if (out == nullptr) return kInvalidArgument;
  if (out->version != struct_version<MarginTemperature>(1)) return kVersionMismatch;
  return vital(device, &out->celsius, [](const Vitals& v) { return kMaxCelsius - v.celsius; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNumFans(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });  // these models are cooled passively
}

CARVE_NVML_EXPORT Return nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.pcie_generation; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGpuMaxPcieLinkGeneration(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.pcie_generation; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.pcie_generation; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 16; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 16; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPcieSpeed(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return 1000U << h.model.pcie_generation; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPcieLinkMaxSpeed(Device device, unsigned* out) {
  return card_value(device, out, [](const Here& h) { return h.model.pcie_generation; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetPcieReplayCounter(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 0; });
}
// The simulated card does not count bytes over the bus; this is a plausible idle figure.
CARVE_NVML_EXPORT Return nvmlDeviceGetPcieThroughput(Device device, int counter, unsigned* out) {
  if (counter < 0 || counter > 1) return kInvalidArgument;
  return card_value(device, out, [](const Here&) { return 0; });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetEccMode(Device device, unsigned* now, unsigned* pending) {
  return on_card(device, [&](const Here& h) -> Return {
    if (now == nullptr || pending == nullptr) return kInvalidArgument;
    if (!has_ecc(h.model)) return kNotSupported;
    *now = *pending = 1;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDefaultEccMode(Device device, unsigned* out) {
  return card_value(device, out, [](const Here&) { return 1; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter,
                                                     unsigned long long* out) {
  return kind > 1 || counter > 1 ? kInvalidArgument : zero_count(device, out);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMemoryErrorCounter(Device device, unsigned kind,
                                                         unsigned counter, unsigned place,
                                                         unsigned long long* out) {
  if (kind > 1 || counter > 1 || place > 7) return kInvalidArgument;
  return zero_count(device, out);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDetailedEccErrors(Device device, unsigned kind,
                                                        unsigned counter, EccCounts* out) {
  if (out == nullptr || kind > 1 || counter > 1) return kInvalidArgument;
  *out = {};
  return on_card(device, [](const Here&) { return kSuccess; });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetSramEccErrorStatus(Device device, EccSramStatus* out) {
  if (out == nullptr) return kInvalidArgument;
  if (out->version != struct_version<EccSramStatus>(1)) return kVersionMismatch;
  return on_card(device, [&](const Here&) {
    *out = EccSramStatus{out->version, {}, 0};
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetRemappedRows(Device device, unsigned* corrected,
                                                   unsigned* uncorrected, unsigned* pending,
                                                   unsigned* failed) {
  return on_card(device, [&](const Here& h) -> Return {
    if (!corrected || !uncorrected || !pending || !failed) return kInvalidArgument;
    if (!has_row_remap(h.model)) return kNotSupported;
    *corrected = *uncorrected = *pending = *failed = 0;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetRowRemapperHistogram(Device device,
                                                           RowRemapperHistogram* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    if (!has_row_remap(h.model)) return kNotSupported;
    *out = {h.model.memory_bus_bits / 8, 0, 0, 0, 0};
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetRetiredPages(Device device, unsigned cause, unsigned* count,
                                                   unsigned long long*) {
  if (cause > 1) return kInvalidArgument;
  return on_card(device, [&](const Here& h) -> Return {
    return has_row_remap(h.model) ? kNotSupported : put(count, 0);
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned* out) {
  return on_card(device, [&](const Here& h) -> Return {
    return has_row_remap(h.model) ? kNotSupported : put(out, 0);
  });
}

}  // namespace carve::sim::nvml
