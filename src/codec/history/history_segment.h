#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "codec/web_query.h"
#include "core/history/history.h"

namespace carve::codec {

/// Writes the frames of one file of the history. The file begins with kHistoryMagic; each record is its length and its
/// CRC-32C (4 bytes each, little-endian), then the payload. A key is written once and then referred to by its number.
/// A sample takes about 12 bytes. Memory is kept in MiB, rounded to the nearest.
class HistoryWriter {
 public:
  /// The bytes to append for this frame; for the first frame the file's beginning too. Samples that would make them
  /// longer than `most` are left out, the last ones first.
  [[nodiscard]] std::string encode(const HistoryFrame& frame, std::size_t most);
  /// The samples that were left out so far.
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  std::map<HistoryKey, std::uint32_t> numbers_;
  bool begun_ = false;
  std::uint64_t left_out_ = 0;
};

inline constexpr std::string_view kHistoryMagic = "carve-history-1\n";

/// Passes the frames of a file to `use`, up to the first record that is torn or damaged: a file whose writer was killed
/// ends like this.
///   errors  kInvalidArgument: not a file of the history
[[nodiscard]] Result<void> decode_history(std::string_view bytes, const std::function<void(const HistoryFrame&)>& use);

/// {"step_seconds", "series": [{"card", "slice", "name", "unix_seconds": […], "seconds": […], "memory_granted": […],
/// "memory_used", "cores_granted", "cores_delivered", "temperature", "power"}]}. The arrays have one value per
/// interval; null: not known. Memory is in bytes, cores are hundredths of a card, averaged over the interval.
[[nodiscard]] std::string to_json(const HistoryAnswer& answer);
/// The history of one node, or why there is none.
struct NamedHistory {
  std::string node;
  HistoryAnswer answer;
  std::string error;  // empty: there is an answer
};
/// {"nodes": [{"node", "history": to_json()'s object} or {"node", "error"}]}
[[nodiscard]] std::string to_json(const std::vector<NamedHistory>& nodes);
/// Reads to_json()'s text.
///   errors  kInvalidArgument
[[nodiscard]] Result<HistoryAnswer> parse_history_answer(std::string_view text);

/// The parameters of a query: card, slice, name, by (cards, slices, namespaces), since, points.
inline constexpr std::string_view kHistoryParameters[] = {"card", "slice", "name", "by", "since", "points"};
/// The values of these parameters for a query.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> history_parameters(const HistoryQuery& query);
///   errors  kInvalidArgument
[[nodiscard]] Result<HistoryQuery> parse_history_query(const WebQuery& query);

/// "15m", "24h", "30d" as a time of at most kHistoryLongest; empty: an hour.
///   errors  kInvalidArgument names `field`
[[nodiscard]] Result<std::chrono::seconds> parse_history_span(std::string_view field, std::string_view text);

}  // namespace carve::codec
