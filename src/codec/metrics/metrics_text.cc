#include "codec/metrics/metrics_text.h"

#include <fmt/core.h>

#include <cmath>
#include <string>
#include <vector>

namespace carve::codec {
namespace {

/// The number of bytes of the UTF-8 character at the beginning; 0: it is not one.
std::size_t character(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xF0 && first <= 0xF4 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (size == 0 || first > 0xF4 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);  // overlong forms, surrogates, beyond U+10FFFF
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
      (first == 0xF4 && second > 0x8F))
    return 0;
  return size;
}

/// Escapes backslash and line end, and the quote in a label's value. Bytes that are not UTF-8 become "?", because a
/// single one of them makes Prometheus refuse the whole scrape.
void append_escaped(std::string_view text, bool quoted, std::string* out) {
  while (!text.empty()) {
    const auto size = character(text);
    if (size == 0) {
      *out += '?';
    } else if (text[0] == '\\') {
      *out += "\\\\";
    } else if (text[0] == '\n') {
      *out += "\\n";
    } else if (text[0] == '"' && quoted) {
      *out += "\\\"";
    } else {
      *out += text.substr(0, size);
    }
    text.remove_prefix(size == 0 ? 1 : size);
  }
}

std::string_view word_for(MetricsText::Kind kind) {
  switch (kind) {
    case MetricsText::Kind::kCounter: return "counter";
    case MetricsText::Kind::kGauge: return "gauge";
    case MetricsText::Kind::kHistogram: return "histogram";
  }
  return "untyped";
}

}  // namespace

std::string metrics_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

void MetricsText::family(std::string_view name, Kind kind, std::string_view help) {
  name_ = name;
  text_ += "# HELP " + name_ + " ";
  append_escaped(help, false, &text_);
  text_ += "\n# TYPE " + name_ + " ";
  text_ += word_for(kind);
  text_ += '\n';
}

void MetricsText::head(Labels labels, std::string_view suffix) {
  text_ += name_;
  text_ += suffix;
  char before = '{';
  for (const auto& [name, value] : labels) {
    text_ += before;
    text_ += name;
    text_ += "=\"";
    append_escaped(value, true, &text_);
    text_ += '"';
    before = ',';
  }
  if (before == ',') text_ += '}';
  text_ += ' ';
}

void MetricsText::sample(double value, Labels labels, std::string_view suffix) {
  head(labels, suffix);
  text_ += metrics_number(value);
  text_ += '\n';
}

void MetricsText::sample(std::uint64_t value, Labels labels, std::string_view suffix) {
  head(labels, suffix);
  text_ += std::to_string(value);
  text_ += '\n';
}

void MetricsText::histogram(std::span<const std::uint64_t> counts, std::span<const double> bounds, double sum,
                            Labels labels) {
  std::vector<Label> with_end(labels.begin(), labels.end());
  with_end.emplace_back("le", "");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    below += counts[i];
    const std::string end = i < bounds.size() ? metrics_number(bounds[i]) : "+Inf";
    with_end.back().second = end;
    sample(below, with_end, "_bucket");
  }
  sample(sum, labels, "_sum");
  sample(below, labels, "_count");
}

}  // namespace carve::codec
