#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/ledger/ledger.h"
#include "core/model/request.h"
#include "core/policy/policy.h"
#include "core/topology/links.h"

namespace carve {

/// Chooses cards on one machine for all parts of one owner together. Ledger::add() accepts the result while the
/// ledger does not change. Parts that run concurrently are placed in spec order. If that finds no room, up to four of
/// them are placed in every other order, and then on other cards than those that the policy prefers, in at most 64
/// tries: for two parts on up to four cards it finds every solution. The k-th card of an init part is the owner's k-th
/// card in spec order: the init part ends before the others begin, so it needs room only for what exceeds their slices.
/// Parts with the same PartRequest::together are placed as one request: on each card the larger of the largest init
/// part and the sum of the others.
///   errors  kInvalidArgument: a request is illegal, a part is named twice, there is no part, or parts with the same
///           `together` request different numbers of cards, shares of a card's memory, or TFLOPS. Else the error of
///           place() for the first part without room, prefixed by the part's name. Where all parts request whole cards
///           and there are too few: "needs 4 whole cards, 2 are free: …"
///   cost    place() per part; a copy of the ledger when there are several parts. Without room: that for each order,
///           if each part alone would have room
[[nodiscard]] Result<std::vector<Slice>> place_pod(const Ledger& ledger, const LinkMatrix& links,
                                                   const Owner& owner,
                                                   const std::vector<PartRequest>& parts,
                                                   const PolicyRow& policy);

}  // namespace carve
