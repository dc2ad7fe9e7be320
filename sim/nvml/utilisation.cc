// The utilisation of the card and its processes. As on a real card, values are whole percent of sampling periods of 1/6
// s and visible only when a period is over: intentionally coarse and late.
#include <algorithm>
#include <map>
#include <vector>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

constexpr unsigned kPeriodUs = 166667;
// A caller that passes time 0 gets the mean of the last second, not of 12 s.
constexpr std::uint64_t kLongestMeanUs = 1000000;

struct Mean {
  std::uint64_t sm = 0, memory = 0, newest_us = 0;
  bool active = false;
};

/// Mean per process over the periods after since_us (at most those of the last second); only processes that were active
/// in them.
Return process_means(const Here& h, std::uint64_t since_us, std::map<std::uint32_t, Mean>* out) {
  std::vector<UsageSample> samples;
  if (Return r = h.session.usage(h.card, since_us, &samples); r != kSuccess) return r;
  std::uint64_t newest = 0;
  for (const UsageSample& s : samples) newest = std::max(newest, s.time_us);
  const std::uint64_t from = newest > kLongestMeanUs ? newest - kLongestMeanUs : 0;
  std::uint64_t periods = 0;
  for (const UsageSample& s : samples) {
    if (s.time_us <= from) continue;
    if (s.pid == 0) {
      ++periods;
      continue;
    }
    Mean& mean = (*out)[s.pid];
    mean.sm += s.sm;
    mean.memory += s.memory;
    mean.newest_us = std::max(mean.newest_us, s.time_us);
    mean.active = mean.active || s.sm != 0 || s.memory != 0;
  }
  std::erase_if(*out, [](const auto& entry) { return !entry.second.active; });
  for (auto& [pid, mean] : *out) {
    mean.sm /= std::max<std::uint64_t>(periods, 1);
    mean.memory /= std::max<std::uint64_t>(periods, 1);
  }
  return kSuccess;
}

/// The common end of both per-process calls: capacity, count, kNotFound when nothing ran.
template <class Record, class Make>
Return hand_out(const std::map<std::uint32_t, Mean>& means, unsigned* count, Record* out,
                Make make) {
  const unsigned capacity = out == nullptr ? 0 : *count;
  *count = static_cast<unsigned>(means.size());
  if (means.empty()) return kNotFound;
  if (means.size() > capacity) return kInsufficientSize;
  for (const auto& [pid, mean] : means) *out++ = make(pid, mean);
  return kSuccess;
}

std::uint32_t narrow(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

// No video engine is simulated: it is present and idle.
Return idle_engine(Device device, unsigned* percent, unsigned* period_us) {
  return on_card(device, [&](const Here&) -> Return {
    if (percent == nullptr || period_us == nullptr) return kInvalidArgument;
    *percent = 0;
    *period_us = kPeriodUs;
    return kSuccess;
  });
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlDeviceGetUtilizationRates(Device device, Utilization* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    Vitals v;
    if (Return r = read_vitals(h, &v); r != kSuccess) return r;
    *out = {v.gpu_percent, v.memory_percent};
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetProcessUtilization(Device device,
                                                         ProcessUtilizationSample* out,
                                                         unsigned* count,
                                                         unsigned long long since_us) {
  return on_card(device, [&](const Here& h) -> Return {
    if (count == nullptr) return kInvalidArgument;
    std::map<std::uint32_t, Mean> means;
    if (Return r = process_means(h, since_us, &means); r != kSuccess) return r;
    return hand_out(means, count, out, [](std::uint32_t pid, const Mean& m) {
      return ProcessUtilizationSample{pid, m.newest_us, narrow(m.sm), narrow(m.memory), 0, 0};
    });
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetProcessesUtilizationInfo(Device device,
                                                               ProcessesUtilizationInfo* info) {
  if (info == nullptr) return kInvalidArgument;
  if (info->version != struct_version<ProcessesUtilizationInfo>(1)) return kVersionMismatch;
  return on_card(device, [&](const Here& h) -> Return {
    std::map<std::uint32_t, Mean> means;
    if (Return r = process_means(h, info->last_seen_us, &means); r != kSuccess) return r;
    return hand_out(means, &info->count, info->entries, [](std::uint32_t pid, const Mean& m) {
      return ProcessUtilizationInfo{m.newest_us, pid, narrow(m.sm), narrow(m.memory), 0, 0, 0, 0};
    });
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetSamples(Device device, int type, unsigned long long since_us,
                                              int* value_type, unsigned* count, Sample* out) {
  constexpr int kGpu = 1, kMemory = 2;
  return on_card(device, [&](const Here& h) -> Return {
    if (value_type == nullptr || count == nullptr) return kInvalidArgument;
    if (type != kGpu && type != kMemory) return kNotSupported;
    std::vector<UsageSample> samples;
    if (Return r = h.session.usage(h.card, since_us, &samples); r != kSuccess) return r;
    std::erase_if(samples, [](const UsageSample& s) { return s.pid != 0; });
    *value_type = kTypeU32;
    if (samples.empty()) return kNotFound;
    const unsigned capacity = *count;
    *count = narrow(samples.size());
    if (out == nullptr) return kSuccess;
    if (samples.size() > capacity) return kInsufficientSize;
    for (const UsageSample& s : samples) {
      out->time_us = s.time_us;
      out->value.u64 = type == kGpu ? s.sm : s.memory;
      ++out;
    }
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetDynamicPstatesInfo(Device device, DynamicPstates* out) {
  return on_card(device, [&](const Here& h) -> Return {
    if (out == nullptr) return kInvalidArgument;
    Vitals v;
    if (Return r = read_vitals(h, &v); r != kSuccess) return r;
    *out = {};
    const std::uint32_t percents[] = {v.gpu_percent, v.memory_percent, 0, 0};
    for (unsigned i = 0; i < 4; ++i) out->domains[i] = {1, percents[i], 0, 0};
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetEncoderUtilization(Device d, unsigned* p, unsigned* us) {
  return idle_engine(d, p, us);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetDecoderUtilization(Device d, unsigned* p, unsigned* us) {
  return idle_engine(d, p, us);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetJpgUtilization(Device d, unsigned* p, unsigned* us) {
  return idle_engine(d, p, us);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetOfaUtilization(Device d, unsigned* p, unsigned* us) {
  return idle_engine(d, p, us);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetEncoderStats(Device device, unsigned* sessions,
                                                   unsigned* fps, unsigned* latency) {
  return on_card(device, [&](const Here&) -> Return {
    if (sessions == nullptr || fps == nullptr || latency == nullptr) return kInvalidArgument;
    *sessions = *fps = *latency = 0;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetEncoderSessions(Device device, unsigned* count, void*) {
  return on_card(device, [&](const Here&) { return put(count, 0); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetFBCStats(Device device, FbcStats* out) {
  return on_card(device, [&](const Here&) -> Return {
    if (out == nullptr) return kInvalidArgument;
    *out = {};
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetFBCSessions(Device device, unsigned* count, void*) {
  return on_card(device, [&](const Here&) { return put(count, 0); });
}

}  // namespace carve::sim::nvml
