#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "port/agent_api.h"

namespace carve::cli {

/// By what the slices are sorted: the largest first, names in their order.
enum class SortSlices : std::uint8_t { kName, kUsed, kLimit, kDelivered, kNode };
inline constexpr const char* kSortWords = "name, used, limit, delivered, node";

/// One of kSortWords; false: it is another word.
bool sort_from(const std::string& word, SortSlices* sort);

/// One line per slice and card of all nodes, sorted and filtered, with the trend of the delivered compute since the
/// first call: `carve top --sort`. One caller.
class SliceTable {
 public:
  ///   in   filter: words that must all occur in a line's slice, node, card or state
  SliceTable(SortSlices sort, std::string filter) : sort_(sort), filter_(std::move(filter)) {}

  [[nodiscard]] std::string render(const std::vector<NodeView>& nodes);
  /// The same lines as CSV, without the trend.
  [[nodiscard]] std::string csv(const std::vector<NodeView>& nodes) const;

  static constexpr std::size_t kTrend = 12;  // values

 private:
  const SortSlices sort_;
  const std::string filter_;
  std::map<std::string, std::deque<double>> trends_;  // by node, slice and card
};

}  // namespace carve::cli
