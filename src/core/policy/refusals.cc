#include "core/policy/refusals.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/card_rates.h"

namespace carve {
namespace {

bool contains(const std::vector<CardId>& cards, const CardId& card) {
  return std::find(cards.begin(), cards.end(), card) != cards.end();
}

bool is_permitted(const Request& request, const CardId& card) {
  const std::vector<CardId>& named = request.constraints.cards;
  return (named.empty() || contains(named, card)) && !contains(request.constraints.not_cards, card);
}

const BarredModel* barred(const Request& request, const Card& card) {
  const auto& all = request.constraints.barred;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const BarredModel& one) { return one.model == card.model; });
  return found == all.end() ? nullptr : &*found;
}

std::string too_slow(const Request& request, const Card& card) {
  const auto peak = fp32_peak(card.model);
  if (!peak) return fmt::format("Carve does not know the FP32 TFLOPS of {}", card.model);
  return fmt::format("total compute {}.{} TFLOPS < {}", *peak / 10, *peak % 10, request.compute.tflops());
}

/// The common text for the cards of one group; `best` is the card that came nearest to serving the request.
std::string reason(Refusal why, const Request& request, const RefusedCard& best) {
  const CardState& card = *best.card;
  switch (why) {
    case Refusal::kMemory:
      return "largest free slice " + human_less(card.free_memory(), best.offer.memory);
    case Refusal::kCompute:
      return fmt::format("largest free compute {} < {}", card.free_compute().hundredths(),
                         best.offer.guarantee.hundredths());
    case Refusal::kSlices:
      return best.offer.most_slices == kMaxSlicesPerCard
                 ? fmt::format("{} slices are on it, a card has at most {}", card.use.slices, kMaxSlicesPerCard)
                 : fmt::format("{} slices are on it, and {} of {} are kept for root", card.use.slices,
                               kMaxSlicesPerCard - best.offer.most_slices, kMaxSlicesPerCard);
    case Refusal::kHeldAlone:
      return "held exclusively";
    case Refusal::kNotEmpty:
      return "not empty, but the request is exclusive";
    case Refusal::kUnhealthy:
      return card.card.health.reason.empty() ? "unhealthy"
                                             : "unhealthy: " + card.card.health.reason;
    case Refusal::kClosed:
      return card.card.closed;
    case Refusal::kMode:
      return card.card.mode == CardMode::kExclusive ? "in mode exclusive, accepts only requests for whole cards"
                                                    : "in mode shared, accepts no request for a whole card";
    case Refusal::kQuota:
      return barred(request, card.card)->why;
    case Refusal::kTooSmall:
      return "total memory " + human_less(card.card.memory, best.offer.memory);
    case Refusal::kTooSlow:
      return too_slow(request, card.card);
    case Refusal::kModel:
      return "model is not " + request.constraints.model;
    case Refusal::kNotNamed:
      return contains(request.constraints.not_cards, card.card.id) ? "excluded by the request"
                                                                   : "not one of the cards that the request names";
  }
  return "refused";
}

/// True when `a` came nearer to serving the request than `b`, both refused for the same reason.
bool nearer(const RefusedCard& a, const RefusedCard& b) {
  switch (a.why) {
    case Refusal::kMemory:
      return a.card->free_memory() > b.card->free_memory();
    case Refusal::kCompute:
      return a.card->free_compute() > b.card->free_compute();
    case Refusal::kSlices:
      return a.card->use.slices < b.card->use.slices;
    case Refusal::kTooSmall:
      return a.card->card.memory > b.card->card.memory;
    case Refusal::kTooSlow:
      return fp32_peak(a.card->card.model) > fp32_peak(b.card->card.model);
    default:
      return false;
  }
}

}  // namespace

Offer offer_of(const CardState& card, const Request& request, std::uint32_t kept_back) {
  const CoreShare compute = request.compute.on(card.card.model).value_or(CoreShare());
  return Offer{request.memory.on(card.card.memory), compute,
               request.share == ShareClass::kBestEffort ? CoreShare() : compute,
               kMaxSlicesPerCard - std::min(kept_back, kMaxSlicesPerCard)};
}

PlacedCard placed_on(const CardState& card, const Request& request) {
  const Offer offer = offer_of(card, request);
  return {card.card.id, offer.memory, offer.compute};
}

std::optional<Refusal> refusal_of(const CardState& card, const Request& request,
                                  const Offer& offer) {
  if (!is_permitted(request, card.card.id)) return Refusal::kNotNamed;
  if (!model_matches(card.card.model, request.constraints.model)) return Refusal::kModel;
  if (offer.memory > card.card.memory || offer.memory == Bytes(0)) return Refusal::kTooSmall;
  if (request.compute.is_tflops() && (offer.compute == CoreShare() || offer.compute > card.card.compute))
    return Refusal::kTooSlow;
  if (barred(request, card.card) != nullptr) return Refusal::kQuota;
  if (!card.card.health.ok) return Refusal::kUnhealthy;
  if (!card.card.closed.empty()) return Refusal::kClosed;
  if (!permits(card.card.mode, request.whole)) return Refusal::kMode;
  if (card.use.exclusive) return Refusal::kHeldAlone;
  if (request.constraints.exclusive && card.use.slices > 0) return Refusal::kNotEmpty;
  if (offer.memory > card.free_memory()) return Refusal::kMemory;
  if (offer.guarantee > card.free_compute()) return Refusal::kCompute;
  if (!request.whole && card.use.slices >= offer.most_slices) return Refusal::kSlices;
  return std::nullopt;
}

std::string explain(const Request& request, const std::vector<RefusedCard>& refused) {
  std::string text;
  for (int kind = 0; kind <= static_cast<int>(Refusal::kNotNamed); ++kind) {
    const auto why = static_cast<Refusal>(kind);
    const RefusedCard* best = nullptr;
    std::size_t count = 0;
    for (const RefusedCard& card : refused) {
      if (card.why != why) continue;
      ++count;
      if (best == nullptr || nearer(card, *best)) best = &card;
    }
    if (count == 0) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} card{}: {}", count, count == 1 ? "" : "s", reason(why, request, *best));
  }
  return text;
}

}  // namespace carve
