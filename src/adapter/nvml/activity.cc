#include "adapter/nvml/activity.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace carve::nvml {
namespace {

constexpr auto kRefresh = std::chrono::milliseconds(100);

enum Metric : unsigned { kGraphics = 1, kSm = 2, kTensor = 5, kMemory = 10 };  // nvmlGpmMetricId_t

/// The driver's percent as a ratio; nullopt: the driver has no such figure.
std::optional<double> ratio(const GpmMetric& metric) {
  if (metric.status != kSuccess || !std::isfinite(metric.value)) return std::nullopt;
  return std::clamp(metric.value / 100, 0.0, 1.0);
}

void free_sample(const Api& api, GpmSample* sample) {
  if (*sample != nullptr) api.gpm_free(*sample);
  *sample = nullptr;
}

}  // namespace

void ActivityReader::reset(const Api& api, std::size_t cards) {
  for (Samples& samples : cards_) {
    free_sample(api, &samples.before);
    free_sample(api, &samples.now);
  }
  cards_.assign(cards, {});
}

bool ActivityReader::take_first(const Api& api, Device device, Samples* samples) {
  GpmSupport support = {kGpmVersion, 0};
  if (api.gpm_support == nullptr || api.gpm_alloc == nullptr || api.gpm_free == nullptr || api.gpm_sample == nullptr ||
      api.gpm_metrics == nullptr || api.gpm_support(device, &support) != kSuccess || support.supported == 0)
    return false;
  return api.gpm_alloc(&samples->before) == kSuccess && api.gpm_alloc(&samples->now) == kSuccess &&
         api.gpm_sample(device, samples->before) == kSuccess;
}

CardActivity ActivityReader::read(const Api& api, std::size_t card, Device device) {
  Samples& samples = cards_[card];
  if (samples.unsupported) return {};
  const auto now = std::chrono::steady_clock::now();
  if (!samples.taken) {
    samples.unsupported = !take_first(api, device, &samples);
    samples.taken = now;
    return {};
  }
  if (now - *samples.taken < kRefresh) return samples.last;
  GpmMetricsGet get = {};
  get.version = kGpmVersion;
  for (const unsigned id : {kGraphics, kSm, kTensor, kMemory}) get.metrics[get.count++].id = id;
  get.first = samples.before;
  get.second = samples.now;
  samples.last = {};
  if (api.gpm_sample(device, samples.now) != kSuccess) return {};
  if (api.gpm_metrics(&get) == kSuccess)
    samples.last = {ratio(get.metrics[0]), ratio(get.metrics[1]), ratio(get.metrics[2]), ratio(get.metrics[3])};
  std::swap(samples.before, samples.now);
  samples.taken = now;
  return samples.last;
}

}  // namespace carve::nvml
