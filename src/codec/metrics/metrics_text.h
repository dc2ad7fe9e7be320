#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace carve::codec {

/// Writes Prometheus' text format. The caller sees to the names' form ([a-z_]+, base units, `_total` for counters) and
/// to a family's samples standing together; values of labels and helps may be any text.
///   source  Prometheus, exposition formats, text format 0.0.4
class MetricsText {
 public:
  enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  /// Begins a family: what follows belongs to it.
  void family(std::string_view name, Kind kind, std::string_view help);
  /// One sample. `suffix` is for histograms: "_bucket", "_sum", "_count".
  void sample(double value, Labels labels = {}, std::string_view suffix = "");
  void sample(std::uint64_t value, Labels labels = {}, std::string_view suffix = "");

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void head(Labels labels, std::string_view suffix);

  std::string text_;
  std::string name_;
};

/// What the answer is announced as.
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

/// A number as the format has it: the shortest text that reads back the same; "+Inf", "-Inf", "NaN".
[[nodiscard]] std::string metrics_number(double value);

}  // namespace carve::codec
