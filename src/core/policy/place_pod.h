#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/ledger/ledger.h"
#include "core/model/request.h"
#include "core/policy/policy.h"
#include "core/topology/links.h"

namespace carve {

/// Chooses cards on one machine for all parts of one owner, together: what is returned,
/// Ledger::add() books while the ledger is the same. Parts that run beside each other are placed in
/// spec order; an init part's k-th card is the owner's k-th card in spec order, since it has ended
/// before the others begin, and only what is more than they hold needs room. Parts that stand together
/// (PartRequest::together) are placed as one request: on each card the larger of any init part of
/// them and the sum of the others.
///   errors  kInvalidArgument: a request is illegal, a part is named twice or there is none, or
///           parts that stand together ask for different numbers of cards or shares of a card; else
///           place()'s of the first part that finds no room, with the part's name; where all want
///           whole cards and there are too few: "needs 4 whole cards, 2 are free: …"
///   cost    place() per part; with several parts a copy of the ledger
[[nodiscard]] Result<std::vector<Slice>> place_pod(const Ledger& ledger, const LinkMatrix& links,
                                                   const Owner& owner,
                                                   const std::vector<PartRequest>& parts,
                                                   const PolicyRow& policy);

}  // namespace carve
