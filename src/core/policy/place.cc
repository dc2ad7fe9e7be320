#include <fmt/format.h>

#include <algorithm>

#include "core/policy/choose.h"
#include "core/policy/policy.h"
#include "core/policy/refusals.h"

namespace carve {
namespace {

/// More than any two scores differ by, so that fewer cards with the opposite priority class always win.
constexpr std::int64_t kMixed = std::int64_t{1} << 50;

/// The named cards that this machine does not have, as text; empty: it has all of them.
std::string absent_cards(const Ledger& ledger, const Request& request) {
  std::string text;
  for (const CardId& card : request.constraints.cards) {
    if (ledger.find(card) == nullptr) text += (text.empty() ? "" : ", ") + card.str();
  }
  return text;
}

tl::unexpected<Error> refuse(const Ledger& ledger, const Request& request, std::size_t fitting,
                             const std::vector<RefusedCard>& refused) {
  std::size_t possible = fitting;
  for (const RefusedCard& card : refused) possible += is_final(card.why) ? 0 : 1;
  std::string text = fmt::format("no room for {}: ", to_human(request));
  if (ledger.cards().empty()) {
    text += "this machine has no card";
  } else if (fitting > 0) {
    text +=
        fmt::format("{} of {} cards fit{}", fitting, request.count, refused.empty() ? "" : "; ");
  }
  text += explain(request, refused);
  if (const std::string absent = absent_cards(ledger, request); !absent.empty()) {
    text += fmt::format("; not on this machine: {}", absent);
  }
  return fail(possible < request.count ? Code::kFailedPrecondition : Code::kResourceExhausted,
              std::move(text));
}

}  // namespace

Result<std::vector<PlacedCard>> place(const Ledger& ledger, const LinkMatrix& links,
                                      const Request& request, const PolicyRow& policy,
                                      std::uint32_t kept_back) {
  CARVE_TRY_VOID(joined(validate(request)));
  std::vector<Candidate> candidates;
  std::vector<RefusedCard> refused;
  candidates.reserve(ledger.cards().size());
  for (const CardState& card : ledger.cards()) {
    const Offer offer = offer_of(card, request, kept_back);
    if (const auto why = refusal_of(card, request, offer)) {
      refused.push_back(RefusedCard{&card, offer, *why});
    } else {
      const auto mixed = has_opposite_class(card, request.priority) ? kMixed : 0;
      candidates.push_back(Candidate{&card.card.id, policy.score(card, offer) - mixed});
    }
  }
  if (candidates.size() < request.count) {
    return refuse(ledger, request, candidates.size(), refused);
  }
  std::vector<PlacedCard> placed;
  for (const std::size_t at : choose_set(candidates, request.count, links, request.whole)) {
    placed.push_back(placed_on(*ledger.find(*candidates[at].card), request));
  }
  return placed;
}

}  // namespace carve
