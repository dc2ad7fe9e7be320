#include "codec/dialects/dialect.h"

// nvidia.com/gpu: whole cards, as NVIDIA's own device plugin serves them.
namespace carve::codec {

Result<Request> read_nvidia(const Words& words, const PodAsk&, const DialectSettings&) {
  std::vector<Error> errors;
  const auto cards = words.count("nvidia.com/gpu", kMaxCardsPerRequest, "whole cards", &errors);
  CARVE_TRY_VOID(joined(errors));
  return whole_cards(static_cast<std::uint32_t>(*cards));
}

}  // namespace carve::codec
