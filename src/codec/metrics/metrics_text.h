#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace carve::codec {

/// Writes Prometheus' text format. The caller is responsible for the form of the names ([a-z_]+, base units, `_total`
/// for counters) and for keeping the samples of a family together. Label values and help texts may be any text.
///   source  Prometheus, exposition formats, text format 0.0.4
class MetricsText {
 public:
  enum class Kind : std::uint8_t { kCounter, kGauge, kHistogram };
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::span<const Label>;

  /// Begins a family: the following samples belong to it.
  void family(std::string_view name, Kind kind, std::string_view help);
  /// One sample. `suffix` is added to the family's name.
  void sample(double value, Labels labels = {}, std::string_view suffix = "");
  void sample(std::uint64_t value, Labels labels = {}, std::string_view suffix = "");
  void sample(double value, std::initializer_list<Label> labels, std::string_view suffix = "") {
    sample(value, Labels(labels.begin(), labels.size()), suffix);
  }
  void sample(std::uint64_t value, std::initializer_list<Label> labels, std::string_view suffix = "") {
    sample(value, Labels(labels.begin(), labels.size()), suffix);
  }

  /// The samples of one histogram, with the label `le` after `labels`.
  ///   in   counts: in each interval, not added up; one more than `bounds`, the last one for all longer values
  ///        bounds: the upper ends of the intervals, ascending, in the unit of the name; sum: in the same unit
  void histogram(std::span<const std::uint64_t> counts, std::span<const double> bounds, double sum, Labels labels);

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void head(Labels labels, std::string_view suffix);

  std::string text_;
  std::string name_;
};

/// The content type of the text.
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

/// A number in this format: the shortest text that reads back equal; "+Inf", "-Inf", "NaN".
[[nodiscard]] std::string metrics_number(double value);

}  // namespace carve::codec
