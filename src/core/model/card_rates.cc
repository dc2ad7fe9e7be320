#include "core/model/card_rates.h"

#include "base/ascii.h"

namespace carve {
namespace {

struct Rate {
  std::string_view name;  // whole words of the model's name; of several rows that match, the longest one applies
  std::uint32_t tenths;
};

constexpr Rate kRates[] = {
    {"P4", 55},          {"P40", 118},       {"P100-SXM2", 106}, {"P100-PCIE", 93}, {"V100-SXM2", 157},
    {"V100-SXM3", 157},  {"V100-PCIE", 140}, {"V100S", 164},     {"T4", 81},        {"A2", 45},
    {"A10", 312},        {"A16", 45},        {"A30", 103},       {"A40", 374},      {"A100", 195},
    {"A800", 195},       {"L4", 303},        {"L40", 905},       {"L40S", 916},     {"H100", 670},
    {"H100 PCIe", 512},  {"H100 NVL", 600},  {"H800", 670},      {"H20", 440},      {"H200", 670},
    {"H200 NVL", 600},   {"GH200", 670},     {"B200", 800},      {"GB200", 800},    {"RTX A6000", 387},
    {"RTX 6000 Ada", 911},
};

bool is_letter_or_digit(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z'); }

bool has_at(std::string_view text, std::size_t at, std::string_view word) {
  if (at + word.size() > text.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (lower(text[at + i]) != lower(word[i])) return false;
  }
  const std::size_t end = at + word.size();
  return (at == 0 || !is_letter_or_digit(text[at - 1])) && (end == text.size() || !is_letter_or_digit(text[end]));
}

bool has_words(std::string_view text, std::string_view words) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (has_at(text, at, words)) return true;
  }
  return false;
}

}  // namespace

std::optional<std::uint32_t> fp32_peak(std::string_view model) {
  const Rate* best = nullptr;
  for (const Rate& rate : kRates) {
    if ((best == nullptr || rate.name.size() > best->name.size()) && has_words(model, rate.name)) best = &rate;
  }
  return best == nullptr ? std::nullopt : std::optional(best->tenths);
}

}  // namespace carve
