#pragma once

#include <map>
#include <string>

#include "codec/views/gpushare_inspect.h"

namespace carve::cli {

/// What `kubectl inspect gpushare` prints, column by column and blank by blank, for programs that read it: a line per
/// node, or with `details` a table per node with a line per pod. It differs where the original was wrong: nodes and
/// pods are sorted, cards may be of different sizes, the unit is the installation's and no guess, a pod over several
/// cards is one line. It has no column of pods that wait for a card on their node: with Carve there are none.
///   in      addresses: of nodes by name; who is missing is "unknown"
///   source  gpushare-device-plugin, cmd/inspect
[[nodiscard]] std::string render_gpushare(const codec::ClusterView& view, Bytes unit,
                                          const std::map<std::string, std::string>& addresses, bool details);

}  // namespace carve::cli
