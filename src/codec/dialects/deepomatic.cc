#include <fmt/format.h>

#include <vector>

#include "codec/dialects/projection.h"

// deepomatic.com/shared-gpu: equal parts of cards. The original advertises every card several times and lets the
// kubelet pick any of them, so two parts may be of one card, and no container knows its share. Carve gives each part of
// another card, limits it to 1/N of memory and compute, and states the share in the environment.
//   source  Deepomatic/shared-gpu-nvidia-k8s-device-plugin (spec: systems.md R3)
namespace carve::codec {

Result<Request> read_deepomatic(const Words& words, const PodAsk&, const DialectSettings& settings) {
  std::vector<Error> errors;
  const auto parts =
      words.count("deepomatic.com/shared-gpu", kMaxCardsPerRequest, "parts, each of another card", &errors);
  CARVE_TRY_VOID(joined(errors));
  return equal_parts(static_cast<std::uint32_t>(*parts), settings.deepomatic_containers);
}

/// The number of containers per card under the name that the original's plugin has, and the size of each part.
Texts environment_of_deepomatic(const Shown& shown, const RecordPart& part) {
  Texts texts;
  texts["DP_NUMBER_CONTAINERS_PER_GPU"] = std::to_string(shown.settings.deepomatic_containers);
  const RecordCard& first = part.cards.front();
  texts["DP_SHARED_GPU_MEMORY_BYTES"] = std::to_string(first.memory.count());
  texts["DP_SHARED_GPU_CORES"] = std::to_string(first.compute.hundredths());
  return texts;
}

}  // namespace carve::codec
