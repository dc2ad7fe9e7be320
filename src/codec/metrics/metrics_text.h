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
  /// One sample. `suffix` is for histograms: "_bucket", "_sum", "_count".
  void sample(double value, Labels labels = {}, std::string_view suffix = "");
  void sample(std::uint64_t value, Labels labels = {}, std::string_view suffix = "");
  void sample(double value, std::initializer_list<Label> labels, std::string_view suffix = "") {
    sample(value, Labels(labels.begin(), labels.size()), suffix);
  }
  void sample(std::uint64_t value, std::initializer_list<Label> labels, std::string_view suffix = "") {
    sample(value, Labels(labels.begin(), labels.size()), suffix);
  }

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
