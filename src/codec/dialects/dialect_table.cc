#include <algorithm>
#include <array>

#include "codec/dialects/dialect.h"

// The dialects, one row each. docs/dialects.md is printed from them (carve dialects -o markdown).
namespace carve::codec {
namespace {

Bytes mib(const DialectSettings&) { return Bytes::mib(1); }
Bytes gib(const DialectSettings&) { return Bytes::gib(1); }
Bytes blocks_of_vcuda(const DialectSettings&) { return Bytes::mib(256); }
Bytes gpushare_unit(const DialectSettings& settings) { return settings.gpushare_unit; }
Bytes volcano_unit(const DialectSettings& settings) { return settings.volcano_unit; }

bool nvidia_is_served(const DialectSettings& settings) { return settings.nvidia_by_slots; }
bool hami_is_served(const DialectSettings& settings) { return settings.nvidia_by_slots && settings.hami; }
bool deepomatic_is_served(const DialectSettings& settings) { return settings.deepomatic_containers != 0; }

constexpr std::string_view kMibOfEachCard = "MiB of each card: 1 to 4194304";
constexpr std::string_view kGibOfEachCard = "GiB of each card: 1 to 4096";
constexpr std::string_view kCores = "hundredths of each card: 1 to 100, or k*100 for k whole cards";
constexpr std::string_view kTflopsInstead =
    "TFLOPS (FP32, by the card's model) of each card, instead of hundredths: 1 to 10000";
constexpr std::string_view kMemoryAndCompute = "memory and compute";

constexpr std::array kNative = {
    ResourceName{"elasticgpu.io/gpu-memory", kMibOfEachCard, Total::kMemory, mib},
    ResourceName{"elasticgpu.io/gpu-core", kCores, Total::kHundredths},
    ResourceName{"elasticgpu.io/gpu-tflops", kTflopsInstead},
    ResourceName{"elasticgpu.io/gpu", "cards: 1 to 16; whole ones if alone, else equal fractions", Total::kSlots}};

constexpr std::array kElastic = {
    ResourceName{"elasticgpu.com/gpu-memory", kMibOfEachCard, Total::kMemory, mib},
    ResourceName{"elasticgpu.com/gpu-core", kCores, Total::kHundredths},
    ResourceName{"gpushare.provisioner.elasticgpu.io/gpu-memory", kGibOfEachCard, Total::kMemory, gib},
    ResourceName{"gpushare.provisioner.elasticgpu.io/gpu-core", kCores, Total::kHundredths}};
constexpr std::array<std::string_view, 2> kElasticShown = {"elasticgpu.io/assumed", "elasticgpu.io/container-"};

constexpr std::array kGpushare = {
    ResourceName{"aliyun.com/gpu-mem", "GiB or MiB (setting): at least 1; divided among the cards of label gpu-count",
                 Total::kMemory, gpushare_unit, true, Requested::kFractions},
    ResourceName{.name = "aliyun.com/gpu-count", .amounts = "cards", .total = Total::kCards, .asked = false}};
// What the gpushare extender writes when it binds, and what its inspect tools read.
constexpr std::array<std::string_view, 2> kGpushareShown = {"ALIYUN_COM_GPU_MEM_", "scheduler.framework.gpushare."};
constexpr std::array<std::string_view, 1> kGpushareLabels = {"aliyun.com/gpu-count"};

constexpr std::array kCgpu = {
    ResourceName{"aliyun.com/gpu-core.percentage", "hundredths of the card: 5 to 100 in steps of 5"},
    ResourceName{"aliyun.com/gpu-core.tflops", kTflopsInstead},
    ResourceName{.name = "aliyun.com/gpu-mem", .amounts = "as with gpushare", .owned = false}};
constexpr std::array<std::string_view, 3> kCgpuShown = {"ALIYUN_COM_GPU_MEM_", "scheduler.framework.gpushare.",
                                                        "gpushare.alibabacloud.com/"};

constexpr std::array kNvidia = {
    ResourceName{"nvidia.com/gpu", "whole cards: 1 to 16; on Rancher's shared nodes (setting) parts",
                 Total::kCardsOfNvidia, nullptr, true, Requested::kWholeCards}};

constexpr std::array kHami = {
    ResourceName{"nvidia.com/gpumem", "MiB of each card: 0 to 4194304"},
    ResourceName{"nvidia.com/gpumem-percentage", "hundredths of each card's memory: 0 to 100"},
    ResourceName{"nvidia.com/gpucores", "hundredths of each card: 0 to 100; 0: no cap"},
    ResourceName{.name = "nvidia.com/priority", .amounts = "0: high, 1: low", .zero = true},
    ResourceName{.name = "nvidia.com/gpu", .amounts = "cards: 1 to 16", .owned = false}};
constexpr std::array<std::string_view, 2> kHamiAnnotations = {"nvidia.com/", "hami.io/"};
constexpr std::array<std::string_view, 3> kHamiCardWords = {"numa", "mutex", "topology-aware"};
constexpr std::array kHamiRankings = {RankingAnnotation{"hami.io/node-scheduler-policy", true},
                                      RankingAnnotation{"hami.io/gpu-scheduler-policy", false, kHamiCardWords}};

// Under best-effort, the default, pods may together request more than 100 hundredths of a card. So the names of cores
// of qGPU and cGPU have no total.
constexpr std::array kQgpu = {
    ResourceName{"tke.cloud.tencent.com/qgpu-core",
                 "hundredths of the card: 5 to 100 in steps of 5, or k*100 for k whole cards"},
    ResourceName{"tke.cloud.tencent.com/qgpu-memory", kGibOfEachCard, Total::kMemory, gib},
    ResourceName{"tke.cloud.tencent.com/qgpu-core-greedy", "hundredths of the card: 1 to 100; offline pods only"}};
constexpr std::array<std::string_view, 1> kQgpuAnnotations = {"tke.cloud.tencent.com/"};

constexpr std::array kVcuda = {
    ResourceName{"tencent.com/vcuda-core", "hundredths of the card: 1 to 100, or k*100 for k whole cards",
                 Total::kHundredths},
    ResourceName{"tencent.com/vcuda-memory", "blocks of 256 MiB: 1 to 16384", Total::kMemory, blocks_of_vcuda}};
constexpr std::array<std::string_view, 2> kVcudaShown = {"tencent.com/predicate-", "tencent.com/gpu-assigned"};
constexpr std::array<std::string_view, 1> kVcudaAnnotations = {"tencent.com/vcuda-"};

constexpr std::array kRancher = {ResourceName{"rancher.io/gpu-mem", "GiB of the card: 1 to 4096", Total::kMemory, gib,
                                              true, Requested::kFractions}};

constexpr std::array kDeepomatic = {
    ResourceName{"deepomatic.com/shared-gpu", "equal parts, each of another card: 1 to 16", Total::kCardsOfDeepomatic,
                 nullptr, true, Requested::kFractions}};

constexpr std::array kVolcano = {
    ResourceName{"volcano.sh/gpu-memory", "MiB times the factor (setting) of each card: at least 1", Total::kMemory,
                 volcano_unit, true, Requested::kFractions},
    ResourceName{"volcano.sh/gpu-number", "cards: 1 to 16; whole ones if alone", Total::kSlots}};
constexpr std::array<std::string_view, 3> kVolcanoShown = {"volcano.sh/gpu-index", "volcano.sh/gpu-assigned",
                                                           "volcano.sh/predicate-time"};

constexpr Dialect kNativeDialect{
    .name = "native", .names = kNative, .read = read_native, .enforced = kMemoryAndCompute, .original = "Carve's own"};

constexpr std::array kDialects = {
    kNativeDialect,
    Dialect{.name = "elastic",
            .names = kElastic,
            .read = read_elastic,
            .enforced = kMemoryAndCompute,
            .original = "Elastic GPU's agent: nothing",
            .shown = kElasticShown,
            .show = show_elastic},
    Dialect{.name = "gpushare",
            .names = kGpushare,
            .read = read_gpushare,
            .setting = "dialects.gpushare-unit",
            .enforced = "memory",
            .original = "gpushare: nothing",
            .shown = kGpushareShown,
            .show = show_gpushare,
            .environment = environment_of_gpushare,
            .together = "gpushare",
            .labels = kGpushareLabels},
    Dialect{.name = "nvidia",
            .names = kNvidia,
            .read = read_nvidia,
            .served = nvidia_is_served,
            .setting = "dialects.nvidia = slots; dialects.rancher-containers",
            .enforced = "the card alone",
            .original = "NVIDIA's device plugin: the card alone"},
    Dialect{.name = "hami",
            .names = kHami,
            .read = read_hami,
            .served = hami_is_served,
            .setting = "dialects.hami = on",
            .enforced = kMemoryAndCompute,
            .original = "HAMi: memory and compute, by a library",
            .annotations = kHamiAnnotations,
            .rankings = kHamiRankings},
    // From here on no row has a name of NVIDIA's domain: the chart removes those names from lists that go on.
    Dialect{.name = "cgpu",
            .names = kCgpu,
            .read = read_cgpu,
            .setting = "dialects.cgpu-policy",
            .enforced = kMemoryAndCompute,
            .original = "cGPU: memory and compute, by a kernel module",
            .shown = kCgpuShown,
            .show = show_cgpu,
            .environment = environment_of_cgpu,
            .together = "gpushare",
            .labels = kGpushareLabels},
    Dialect{.name = "qgpu",
            .names = kQgpu,
            .read = read_qgpu,
            .setting = "dialects.qgpu-policy",
            .enforced = kMemoryAndCompute,
            .original = "qGPU: memory and compute, by a kernel module",
            .annotations = kQgpuAnnotations},
    Dialect{.name = "vcuda",
            .names = kVcuda,
            .read = read_vcuda,
            .enforced = kMemoryAndCompute,
            .original = "vCUDA: memory and compute, by a replaced library",
            .shown = kVcudaShown,
            .show = show_vcuda,
            .annotations = kVcudaAnnotations},
    Dialect{.name = "rancher",
            .names = kRancher,
            .read = read_rancher,
            .enforced = "memory",
            .original = "Rancher's GPU sharing: nothing",
            .together = "rancher",
            .scheduler = "rancher-gpushare-scheduler"},
    Dialect{.name = "deepomatic",
            .names = kDeepomatic,
            .read = read_deepomatic,
            .served = deepomatic_is_served,
            .setting = "dialects.deepomatic-containers",
            .enforced = kMemoryAndCompute,
            .original = "Deepomatic's plugin: nothing",
            .environment = environment_of_deepomatic},
    Dialect{.name = "volcano",
            .names = kVolcano,
            .read = read_volcano,
            .setting = "dialects.volcano-factor",
            .enforced = "memory",
            .original = "Volcano's device plugin: nothing",
            .shown = kVolcanoShown,
            .show = show_volcano,
            .environment = environment_of_volcano,
            .scheduler = "volcano"},
};

bool has_name(const Dialect& dialect, std::string_view name) {
  return std::any_of(dialect.names.begin(), dialect.names.end(),
                     [&](const ResourceName& one) { return one.name == name; });
}

}  // namespace

std::span<const Dialect> dialects() { return kDialects; }

const Dialect& native_dialect() { return kNativeDialect; }

bool is_served(const Dialect& dialect, const DialectSettings& settings) {
  return dialect.served == nullptr || dialect.served(settings);
}

std::vector<std::string_view> asked_names(const Dialect& dialect) {
  std::vector<std::string_view> names;
  for (const ResourceName& one : dialect.names) {
    if (one.asked) names.push_back(one.name);
  }
  return names;
}

std::vector<ResourceName> names_on_nodes(const DialectSettings& settings) {
  std::vector<ResourceName> names;
  for (const Dialect& dialect : kDialects) {
    if (!is_served(dialect, settings)) continue;
    for (const ResourceName& one : dialect.names) {
      if (one.total != Total::kNone) names.push_back(one);
    }
  }
  return names;
}

const Dialect* owner_of(std::string_view resource) {
  for (const Dialect& dialect : kDialects) {
    for (const ResourceName& one : dialect.names) {
      if (one.owned && one.name == resource) return &dialect;
    }
  }
  return nullptr;
}

std::vector<const Dialect*> dialects_with(std::string_view resource) {
  std::vector<const Dialect*> found;
  for (const Dialect& dialect : kDialects) {
    if (has_name(dialect, resource)) found.push_back(&dialect);
  }
  return found;
}

bool is_shown(std::string_view annotation) {
  return std::any_of(kDialects.begin(), kDialects.end(), [&](const Dialect& dialect) {
    return std::any_of(dialect.shown.begin(), dialect.shown.end(),
                       [&](std::string_view start) { return annotation.substr(0, start.size()) == start; });
  });
}

}  // namespace carve::codec
