#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/history/history.h"

namespace carve::cli {

/// The history of one node, or why there is none.
struct NodeHistory {
  std::string node;
  Result<HistoryAnswer> answer;
};

/// What a person names: a card ("GPU-…", a prefix is enough), a pod ("namespace/pod"), or a slice of `carve run`.
///   in      what: empty: all cards
///   out     the queries that answer it, cards first
[[nodiscard]] std::vector<HistoryQuery> queries_about(const std::string& what, std::chrono::seconds since);

/// `carve timeline`: per card and slice a line for compute and one for memory, as characters of eight heights from 0 to
/// the promise or the highest value.
///   in   width: columns of the terminal
[[nodiscard]] std::string render_timeline(const std::vector<NodeHistory>& nodes, std::size_t width);

/// One row per interval with a value: node,card,slice,name,unix_seconds,seconds,memory_granted_bytes,memory_used_bytes,
/// cores_granted,cores_delivered,temperature_celsius,power_watts. What is not known is empty.
[[nodiscard]] std::string timeline_csv(const std::vector<NodeHistory>& nodes);

/// {"nodes": [{"node", "history": …} or {"node", "error"}]}
[[nodiscard]] std::string timeline_json(const std::vector<NodeHistory>& nodes);

/// The values as characters of eight heights from 0 to `top`; a space where there is none. Neighbours are averaged to
/// fit `columns`.
[[nodiscard]] std::string heights(const std::vector<std::optional<double>>& values, double top, std::size_t columns);

/// A field of a CSV row (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe.
[[nodiscard]] std::string csv_field(const std::string& text);

}  // namespace carve::cli
