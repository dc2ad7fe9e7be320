#include <vector>

#include "codec/dialects/projection.h"

// Volcano's device plugin: memory of a card in MiB times the factor that the plugin is configured with, or whole cards.
//   source  volcano-sh/devices (spec: systems.md R19)
namespace carve::codec {
namespace {

constexpr Bytes kMostOfVolcano = Bytes::gib(4096);

}  // namespace

Result<Request> read_volcano(const Words& words, const PodAsk&, const DialectSettings& settings) {
  std::vector<Error> errors;
  const std::uint64_t factor = settings.volcano_unit.count() / Bytes::mib(1).count();
  const std::string unit = factor == 1 ? "MiB" : std::to_string(factor) + " MiB";
  const auto amount =
      words.count("volcano.sh/gpu-memory", kMostOfVolcano.count() / settings.volcano_unit.count(), unit, &errors);
  const auto cards = words.count("volcano.sh/gpu-number", kMaxCardsPerRequest, "cards", &errors);
  CARVE_TRY_VOID(joined(errors));
  if (!amount) return whole_cards(static_cast<std::uint32_t>(*cards));
  Request request;
  request.count = static_cast<std::uint32_t>(cards.value_or(1));
  request.memory = MemoryAsk::of(settings.volcano_unit * *amount);
  request.compute = CoreShare();
  request.share = ShareClass::kBestEffort;
  return request;
}

/// The cards of the pod's first container that uses the dialect: the original knows one index per pod.
Texts show_volcano(const Shown& shown) {
  Texts texts;
  for (const RecordPart& part : shown.record.parts) {
    if (part.dialect != "volcano" || part.phase == Phase::kInit) continue;
    if (auto indexes = indexes_of(shown, part); !indexes.empty()) {
      texts["volcano.sh/gpu-index"] = std::move(indexes);
      texts["volcano.sh/gpu-assigned"] = "true";
      texts["volcano.sh/predicate-time"] = std::to_string(shown.now);
    }
    break;
  }
  return texts;
}

Texts environment_of_volcano(const Shown& shown, const RecordPart& part) {
  Texts texts;
  const std::uint64_t unit = shown.settings.volcano_unit.count();
  const RecordCard& first = part.cards.front();
  texts["VOLCANO_GPU_ALLOCATED"] = std::to_string(first.memory.count() / unit);
  if (const CountedCard* card = counted(shown, first.card); card != nullptr) {
    texts["VOLCANO_GPU_MEMORY_TOTAL"] = std::to_string(card->memory.count() / unit);
  }
  return texts;
}

}  // namespace carve::codec
