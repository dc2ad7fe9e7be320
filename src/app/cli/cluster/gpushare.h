#pragma once

#include <map>
#include <string>

#include "codec/views/gpushare_inspect.h"

namespace carve::cli {

/// The output of `kubectl inspect gpushare`, with the same columns and blanks, for programs that parse it: a line per
/// node, or with `details` a table per node with a line per pod. It differs where the original was wrong: nodes and
/// pods are sorted, cards may be of different sizes, the unit is the one of the installation instead of a guess, and a
/// pod with several cards is one line. It has no column for pods that wait for a card on their node, because Carve has
/// no such pods.
///   in      addresses: by node name; a node that is missing there has the address "unknown"
///   source  gpushare-device-plugin, cmd/inspect
[[nodiscard]] std::string render_gpushare(const codec::ClusterView& view, Bytes unit,
                                          const std::map<std::string, std::string>& addresses, bool details);

}  // namespace carve::cli
