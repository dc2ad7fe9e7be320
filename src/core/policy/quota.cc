#include "core/policy/quota.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve {
namespace {

constexpr CardParts kCard = 100;

CardParts parts_of(bool exclusive, Bytes memory, CoreShare compute, const Card& card) {
  if (exclusive || memory >= card.memory) return kCard;  // also of a card whose size is unknown
  // Rounded up. 2^64 bytes are more than any card has, so the product is computed with 128 bits.
  const auto scaled = static_cast<unsigned __int128>(memory.count()) * kCard + card.memory.count() - 1;
  const auto of_memory = static_cast<CardParts>(scaled / card.memory.count());
  return std::min(kCard, std::max(of_memory, CardParts{compute.hundredths()}));
}

}  // namespace

CardParts parts_taken(const Holding& holding, const Card& card) {
  return parts_of(holding.exclusive || holding.whole, holding.memory, holding.compute, card);
}

CardParts parts_taken(const Request& request, const Card& card) {
  const Bytes memory = request.memory.on(card.memory);
  const auto compute = request.compute.on(card.model);
  if (!model_matches(card.model, request.constraints.model) || memory > card.memory || !compute ||
      *compute > card.compute)
    return 0;
  const CoreShare guarantee = request.share == ShareClass::kBestEffort ? CoreShare() : *compute;
  return request.count * parts_of(request.whole || request.constraints.exclusive, memory, guarantee, card);
}

CardParts parts_taken(const std::vector<PartRequest>& parts, const Card& card) {
  CardParts run = 0;
  CardParts init = 0;
  for (const PartRequest& part : parts) {
    const CardParts taken = parts_taken(part.request, card);
    if (part.phase == Phase::kInit) {
      init = std::max(init, taken);
    } else {
      run += taken;
    }
  }
  return std::max(run, init);
}

std::string to_human_cards(CardParts parts) {
  if (parts % kCard == 0) return fmt::format("{}", parts / kCard);
  if (parts % 10 == 0) return fmt::format("{}.{}", parts / kCard, parts % kCard / 10);
  return fmt::format("{}.{:02}", parts / kCard, parts % kCard);
}

}  // namespace carve
