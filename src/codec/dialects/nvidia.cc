#include "codec/dialects/dialect.h"

// nvidia.com/gpu: whole cards, as NVIDIA's own device plugin serves them. Rancher's users request part of a card by the
// same name ("Shared") and choose the nodes that share cards by a node selector; which system serves the name depends
// on the node. There a unit is one of N equal parts of a card, each of another card.
//   source  of the selector: Rancher's documentation (spec: systems.md R4)
namespace carve::codec {

Result<Request> read_nvidia(const Words& words, const PodAsk& pod, const DialectSettings& settings) {
  std::vector<Error> errors;
  const bool shared = settings.rancher_containers != 0 && selects_shared_nodes(pod);
  const auto cards = words.count("nvidia.com/gpu", kMaxCardsPerRequest,
                                 shared ? "parts, each of another card" : "whole cards", &errors);
  CARVE_TRY_VOID(joined(errors));
  return equal_parts(static_cast<std::uint32_t>(*cards), shared ? settings.rancher_containers : 1);
}

}  // namespace carve::codec
