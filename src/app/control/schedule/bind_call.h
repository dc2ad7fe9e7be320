#pragma once

#include <string>
#include <string_view>

#include "app/control/schedule/extender.h"

namespace carve::control {

/// kube-scheduler's bind call as a follower forwards it to the leader. If this replica chose the node, because the
/// leader did not answer then, the call carries the cards that this replica chose and why: only this replica knows
/// which cards it chose for the other pods of a burst. Otherwise, and if the call is invalid, it is the call unchanged.
[[nodiscard]] std::string with_chosen_cards(const Extender& extender, std::string_view call);

}  // namespace carve::control
