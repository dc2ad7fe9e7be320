#include "app/node/compat_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "codec/metrics/metrics_text.h"
#include "port/slice_names.h"

namespace carve::node {
namespace {

using codec::MetricsText;
constexpr auto kGauge = MetricsText::Kind::kGauge;

/// A slice on one card, with its place on the node.
struct Use {
  SliceNames by;
  std::size_t index = 0;  // of the card, in the driver's order
  std::size_t place = 0;  // of the card in the container
  const CardView* card = nullptr;
  const SliceCardView* held = nullptr;
};

double percent(double part, double of) { return of > 0 ? part / of * 100 : 0; }
/// The driver may not report a figure.
bool known(Bytes bytes) { return bytes != Bytes::max(); }
template <class T>
double number_or_nan(const std::optional<T>& value) {
  return value ? static_cast<double>(*value) : std::nan("");
}

/// The slices of pods, each card of each container.
std::vector<Use> uses_of(const AgentView& view) {
  std::vector<Use> all;
  for (const auto& slice : view.slices) {
    const SliceNames by = names_of(slice);
    if (by.pod.empty()) continue;
    for (std::size_t place = 0; place < slice.cards.size(); ++place) {
      for (std::size_t index = 0; index < view.cards.size(); ++index) {
        if (view.cards[index].card.id.str() == slice.cards[place].card)
          all.push_back({by, index, place, &view.cards[index], &slice.cards[place]});
      }
    }
  }
  return all;
}

// --- DCGM's exporter: one series per card, or per container on it

struct CardSeries {
  std::string_view name;
  std::string_view help;
  MetricsText::Kind kind;
  double (*of_card)(const CardView&);
  double (*of_slice)(const SliceCardView&);  // nullptr: the figure belongs to the card
};
constexpr CardSeries kDcgm[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", kGauge,
     [](const CardView& c) { return static_cast<double>(c.utilization_percent); },
     [](const SliceCardView& s) { return s.delivered_percent; }},
    {"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", kGauge,
     [](const CardView& c) { return known(c.used) ? c.used.in_mib() : std::nan(""); },
     [](const SliceCardView& s) { return known(s.used) ? s.used.in_mib() : std::nan(""); }},
    {"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", kGauge,
     [](const CardView& c) { return known(c.used) ? (c.card.memory - c.used).in_mib() : std::nan(""); },
     [](const SliceCardView& s) { return known(s.used) && s.limit > s.used ? (s.limit - s.used).in_mib() : 0.0; }},
    {"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", kGauge,
     [](const CardView& c) { return static_cast<double>(c.temperature_c); }, nullptr},
    {"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", kGauge,
     [](const CardView& c) { return c.sm_clock_mhz == 0 ? std::nan("") : c.sm_clock_mhz; }, nullptr},
    {"DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", kGauge,
     [](const CardView& c) { return c.memory_clock_mhz == 0 ? std::nan("") : c.memory_clock_mhz; }, nullptr},
    {"DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", kGauge,
     [](const CardView& c) { return static_cast<double>(c.last_xid); }, nullptr},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "Time in which memory was read or written (in %).", kGauge,
     [](const CardView& c) { return number_or_nan(c.memory_busy_percent); }, nullptr},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since the driver was loaded (in mJ).", MetricsText::Kind::kCounter,
     [](const CardView& c) { return number_or_nan(c.energy_mj); }, nullptr},
    {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Part of the time in which any work ran (0 to 1).", kGauge,
     [](const CardView& c) { return number_or_nan(c.activity.graphics); }, nullptr},
    {"DCGM_FI_PROF_SM_ACTIVE", "Busy part of the multiprocessors (0 to 1).", kGauge,
     [](const CardView& c) { return number_or_nan(c.activity.sm); }, nullptr},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Part of the time in which tensor cores worked (0 to 1).", kGauge,
     [](const CardView& c) { return number_or_nan(c.activity.tensor); }, nullptr},
    {"DCGM_FI_PROF_DRAM_ACTIVE", "Used part of the bandwidth to the card's memory (0 to 1).", kGauge,
     [](const CardView& c) { return number_or_nan(c.activity.memory); }, nullptr},
    {"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", kGauge,
     [](const CardView& c) { return c.power_mw / 1000.0; }, nullptr},
};

std::string dcgm(const AgentView& view, std::string_view node) {
  MetricsText text;
  const auto uses = uses_of(view);
  for (const CardSeries& row : kDcgm) {
    text.family(row.name, row.kind, row.help);
    for (std::size_t index = 0; index < view.cards.size(); ++index) {
      const CardView& card = view.cards[index];
      const auto number = fmt::to_string(index);
      const auto device = card.card.minor < 0 ? "nvidia" + number : fmt::format("nvidia{}", card.card.minor);
      const auto sample = [&](double value, const SliceNames& by) {
        if (std::isnan(value)) return;
        text.sample(value, {{"gpu", number},
                            {"UUID", card.card.id.str()},
                            {"device", device},
                            {"modelName", card.card.model},
                            {"Hostname", node},
                            {"container", by.container},
                            {"namespace", by.namespace_name},
                            {"pod", by.pod}});
      };
      bool shared = false;
      for (const Use& use : uses) {
        if (use.card != &card || row.of_slice == nullptr) continue;
        sample(row.of_slice(*use.held), use.by);
        shared = true;
      }
      if (!shared) sample(row.of_card(card), {});
    }
  }
  return text.text();
}

// --- HAMi's monitor

std::string hami(const AgentView& view, std::string_view node) {
  MetricsText text;
  const auto of_cards = [&](std::string_view name, std::string_view help, double (*value)(const CardView&)) {
    text.family(name, kGauge, help);
    for (std::size_t index = 0; index < view.cards.size(); ++index) {
      const CardView& card = view.cards[index];
      text.sample(value(card), {{"node", node},
                                {"device_index", fmt::to_string(index)},
                                {"device_uuid", card.card.id.str()},
                                {"device_type", card.card.model}});
    }
  };
  const auto uses = uses_of(view);
  const auto of_slices = [&](std::string_view name, std::string_view help, double (*value)(const SliceCardView&)) {
    text.family(name, kGauge, help);
    for (const Use& use : uses)
      text.sample(value(*use.held), {{"namespace", use.by.namespace_name},
                                     {"pod", use.by.pod},
                                     {"container", use.by.container},
                                     {"vdevice_index", fmt::to_string(use.place)},
                                     {"device_uuid", use.held->card}});
  };
  const auto used = [](const SliceCardView& s) {
    return known(s.used) ? static_cast<double>(s.used.count()) : std::nan("");
  };
  of_cards("hami_host_gpu_memory_used_bytes", "GPU device memory usage in bytes.",
           [](const CardView& c) { return known(c.used) ? static_cast<double>(c.used.count()) : std::nan(""); });
  of_cards("hami_host_gpu_utilization_ratio", "GPU core utilization ratio (0-100).",
           [](const CardView& c) { return static_cast<double>(c.utilization_percent); });
  of_slices("hami_vgpu_memory_used_bytes", "vGPU device memory usage in bytes.", used);
  of_slices("hami_vgpu_memory_limit_bytes", "vGPU device memory limit in bytes.",
            [](const SliceCardView& s) { return static_cast<double>(s.limit.count()); });
  of_slices("hami_container_device_memory_bytes", "Container device memory usage in bytes.", used);
  of_slices("hami_container_device_utilization_ratio", "Container device SM utilization ratio (0-100).",
            [](const SliceCardView& s) { return s.delivered_percent; });
  return text.text();
}

// --- sums per container and pod, for gpu-manager and Elastic GPU's exporter

struct Sum {
  double core = 0;    // hundredths of cards: delivered
  double memory = 0;  // MiB: used
  double core_requested = 0;
  double memory_requested = 0;  // MiB

  void add(const SliceCardView& held) {
    core += held.delivered_percent;
    memory += known(held.used) ? held.used.in_mib() : 0;
    core_requested += held.compute.hundredths();
    memory_requested += held.limit.in_mib();
  }
};
using Key = std::tuple<std::string_view, std::string_view, std::string_view>;  // namespace, pod, container
using Sums = std::map<Key, Sum>;

Sums sums_of(const std::vector<Use>& uses, bool by_container) {
  Sums sums;
  for (const Use& use : uses)
    sums[{use.by.namespace_name, use.by.pod, by_container ? use.by.container : std::string_view()}].add(*use.held);
  return sums;
}

std::string gpu_manager(const AgentView& view, std::string_view node) {
  MetricsText text;
  const auto uses = uses_of(view);
  const auto containers = sums_of(uses, true);
  const auto sample = [&](const Key& key, std::string_view label, std::string_view word, double value) {
    const auto& [namespace_name, pod, container] = key;
    text.sample(value, {{"pod_name", pod},
                        {"namespace", namespace_name},
                        {"node", node},
                        {"container_name", container},
                        {label, word}});
  };
  const auto used = [&](std::string_view name, std::string_view help, std::string_view label, double Sum::*of) {
    text.family(name, kGauge, help);
    for (const Use& use : uses) {
      Sum one;
      one.add(*use.held);
      sample({use.by.namespace_name, use.by.pod, use.by.container}, label, fmt::format("gpu{}", use.index), one.*of);
    }
    for (const auto& [key, sum] : containers) sample(key, label, "total", sum.*of);
  };
  used("container_gpu_utilization", "gpu utilization", "gpu", &Sum::core);
  used("container_gpu_memory_total", "gpu memory usage in MiB", "gpu_memory", &Sum::memory);
  text.family("container_request_gpu_utilization", kGauge, "request of gpu utilization");
  for (const auto& [key, sum] : containers) sample(key, "req_of_gpu", "total", sum.core_requested / 100);
  text.family("container_request_gpu_memory", kGauge, "request of gpu memory in MiB");
  for (const auto& [key, sum] : containers) sample(key, "req_of_gpu_memory", "total", sum.memory_requested);
  return text.text();
}

struct ElasticRow {
  std::string_view name;  // after gpu_, pod_ or container_
  std::string_view help;
  double (*value)(const Sum&);
};
constexpr std::array<ElasticRow, 4> kElasticRows = {
    {{"core_usage", "Delivered compute in hundredths of a card.", [](const Sum& s) { return s.core; }},
     {"core_utilization", "Delivered compute in per cent of the request.",
      [](const Sum& s) { return percent(s.core, s.core_requested); }},
     {"mem_usage", "Memory in use in MiB.", [](const Sum& s) { return s.memory; }},
     {"mem_utilization", "Memory in use in per cent of the request.",
      [](const Sum& s) { return percent(s.memory, s.memory_requested); }}}};

std::string elastic(const AgentView& view, std::string_view node) {
  MetricsText text;
  const auto uses = uses_of(view);
  double all_memory = 0;
  for (const ElasticRow& row : kElasticRows) {
    text.family(fmt::format("gpu_{}", row.name), kGauge, row.help);
    all_memory = 0;
    for (std::size_t index = 0; index < view.cards.size(); ++index) {
      const CardView& card = view.cards[index];
      const double memory = card.card.memory.in_mib();
      all_memory += memory;
      const Sum whole{static_cast<double>(card.utilization_percent), known(card.used) ? card.used.in_mib() : 0, 100,
                      memory};
      text.sample(row.value(whole), {{"node", node}, {"card", fmt::to_string(index)}});
    }
  }
  const double all_core = 100.0 * static_cast<double>(view.cards.size());
  const auto pods = sums_of(uses, false);
  const auto of_pods = [&](std::string_view name, std::string_view help, const auto& value) {
    text.family(name, kGauge, help);
    for (const auto& [key, sum] : pods)
      text.sample(value(sum), {{"node", node}, {"namespace", std::get<0>(key)}, {"pod", std::get<1>(key)}});
  };
  for (const ElasticRow& row : kElasticRows) of_pods(fmt::format("pod_{}", row.name), row.help, row.value);
  of_pods("pod_core_occupy_node", "Delivered compute in per cent of the node's cards.",
          [&](const Sum& sum) { return percent(sum.core, all_core); });
  of_pods("pod_mem_occupy_node", "Memory in use in per cent of the node's cards.",
          [&](const Sum& sum) { return percent(sum.memory, all_memory); });
  of_pods("pod_mem_request", "Requested memory in MiB.", [](const Sum& sum) { return sum.memory_requested; });
  for (const ElasticRow& row : kElasticRows) {
    text.family(fmt::format("container_{}", row.name), kGauge, row.help);
    for (const auto& [key, sum] : sums_of(uses, true))
      text.sample(row.value(sum), {{"node", node},
                                   {"namespace", std::get<0>(key)},
                                   {"pod", std::get<1>(key)},
                                   {"container", std::get<2>(key)}});
  }
  return text.text();
}

constexpr std::array<CompatMetrics, 5> kCompat = {{{"/metrics/dcgm", "NVIDIA's dcgm-exporter", dcgm},
                                                   {"/metrics/hami", "HAMi's vGPUmonitor", hami},
                                                   {"/metrics/gpu-manager", "gpu-manager", gpu_manager},
                                                   {"/metric", "gpu-manager, at its own path", gpu_manager},
                                                   {"/metrics/elastic-gpu", "elastic-gpu-exporter", elastic}}};

}  // namespace

std::span<const CompatMetrics> compat_metrics() { return kCompat; }

}  // namespace carve::node
