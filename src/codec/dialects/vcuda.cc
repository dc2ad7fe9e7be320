#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "codec/dialects/projection.h"
#include "codec/quantity.h"

// Tencent's vCUDA (GaiaGPU, gpu-manager): hundredths of a card, and memory in blocks of 256 MiB. The compute is a cap,
// unless the annotation tencent.com/vcuda-core-limit has a larger one: then the compute is a guarantee, and the
// annotation is the cap.
//   source  tkestack/gpu-manager, vcuda-controller and gpu-admission (spec: systems.md R8)
namespace carve::codec {
namespace {

constexpr std::string_view kVcudaCore = "tencent.com/vcuda-core";
constexpr std::string_view kVcudaMemory = "tencent.com/vcuda-memory";
constexpr std::string_view kCoreLimit = "tencent.com/vcuda-core-limit";
constexpr Bytes kBlock = Bytes::mib(256);

}  // namespace

Result<Request> read_vcuda(const Words& words, const PodAsk& pod, const DialectSettings&) {
  std::vector<Error> errors;
  const auto core = words.hundredths(kVcudaCore, 1, true, &errors);
  const auto blocks = words.count(kVcudaMemory, 16384, "blocks of 256 MiB", &errors);
  std::optional<CoreShare> limit;  // above the guarantee
  if (const auto written = pod.annotations.find(std::string(kCoreLimit)); written != pod.annotations.end()) {
    const auto read =
        parse_count(fmt::format("annotation {}", kCoreLimit), written->second, 1, 100, "hundredths of a card");
    if (!read) errors.push_back(read.error());
    if (read && core && *read > *core) limit = CoreShare(static_cast<std::uint32_t>(*read));
  }
  if (errors.empty() && !core) {
    errors.push_back({Code::kInvalidArgument, fmt::format("{} without {}: how much compute is missing; set {} too",
                                                          kVcudaMemory, kVcudaCore, kVcudaCore)});
  }
  if (errors.empty() && *core < 100 && !blocks) {
    errors.push_back({Code::kInvalidArgument,
                      fmt::format("{}: {} without {}: how much memory is missing; set {} (blocks of 256 MiB) too",
                                  kVcudaCore, *core, kVcudaMemory, kVcudaMemory)});
  }
  CARVE_TRY_VOID(joined(errors));
  if (*core > 100 || !blocks) return whole_cards(static_cast<std::uint32_t>(*core / 100));
  Request request;
  request.memory = MemoryAsk::of(kBlock * *blocks);
  request.compute = CoreShare(static_cast<std::uint32_t>(*core));
  request.share = limit ? ShareClass::kBurst : ShareClass::kFixed;
  request.ceiling = limit.value_or(CoreShare::whole());
  request.constraints.exclusive = *core == 100;
  return request;
}

/// The card indexes by the container's position, as gpu-admission writes them and gpu-manager's readers find them.
Texts show_vcuda(const Shown& shown) {
  Texts texts;
  for (std::size_t i = 0; i < shown.containers.size(); ++i) {
    const RecordPart* part = part_named(shown.record, shown.containers[i]);
    if (part == nullptr || part->dialect != "vcuda") continue;
    if (auto indexes = indexes_of(shown, *part); !indexes.empty()) {
      texts[fmt::format("tencent.com/predicate-gpu-idx-{}", i)] = std::move(indexes);
    }
  }
  if (texts.empty()) return texts;
  texts["tencent.com/predicate-time"] = std::to_string(shown.now);
  if (!shown.node.empty()) texts["tencent.com/predicate-node"] = shown.node;
  texts["tencent.com/gpu-assigned"] = "true";
  return texts;
}

}  // namespace carve::codec
