#include "codec/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>

#include "base/ascii.h"

namespace carve::codec {
namespace {

constexpr std::string_view kByteForms =
    "bytes as a number with an optional suffix: 4Gi, 4096Mi, 1.5Gi (powers of 1024: Ki Mi Gi Ti Pi "
    "Ei), 4G, 500M (powers of 1000: k M G T P E) or 4294967296";
constexpr std::size_t kMaxText = 64;
constexpr int kMaxDecimals = 18;

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};
constexpr std::array<Suffix, 13> kSuffixes = {{
    {"", 1},
    {"Ki", 1ULL << 10},
    {"Mi", 1ULL << 20},
    {"Gi", 1ULL << 30},
    {"Ti", 1ULL << 40},
    {"Pi", 1ULL << 50},
    {"Ei", 1ULL << 60},
    {"k", 1'000ULL},
    {"M", 1'000'000ULL},
    {"G", 1'000'000'000ULL},
    {"T", 1'000'000'000'000ULL},
    {"P", 1'000'000'000'000'000ULL},
    {"E", 1'000'000'000'000'000'000ULL},
}};


/// The value in a form that is safe in an error text: unprintable characters are replaced, a long value is truncated.
std::string shown(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxText)) {
    out += c >= ' ' && c <= '~' && c != '"' ? c : '?';
  }
  if (text.size() > kMaxText) out += "…";
  return out + "\"";
}

tl::unexpected<Error> refuse(std::string_view field, std::string_view text, std::string_view why,
                             std::string_view legal) {
  return fail(Code::kInvalidArgument,
              fmt::format("{}: {} {}; legal: {}", field, shown(text), why, legal));
}

/// digits [. digits], as a whole part and a fraction in units of 10^-18.
struct Decimal {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;
  bool overflow = false;
  bool too_fine = false;
  std::size_t length = 0;  // characters read; 0 when there is no digit at all
};

Decimal read_decimal(std::string_view text) {
  Decimal out;
  std::size_t at = 0;
  bool digits = false;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    digits = true;
    const auto digit = static_cast<std::uint64_t>(text[at] - '0');
    if (out.whole > (Bytes::max().count() - digit) / 10) out.overflow = true;
    out.whole = out.overflow ? 0 : out.whole * 10 + digit;
  }
  if (at < text.size() && text[at] == '.') {
    ++at;
    int decimals = 0;
    for (; at < text.size() && is_digit(text[at]); ++at, ++decimals) {
      digits = true;
      if (decimals >= kMaxDecimals) {
        out.too_fine = true;
      } else {
        out.fraction = out.fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
      }
    }
    for (; decimals < kMaxDecimals; ++decimals) out.fraction *= 10;
  }
  out.length = digits ? at : 0;
  return out;
}

/// The factor of a suffix or an exponent; nullopt when `suffix` is neither.
std::optional<std::uint64_t> factor_of(std::string_view suffix) {
  for (const Suffix& known : kSuffixes) {
    if (known.text == suffix) return known.factor;
  }
  if (suffix.size() < 2 || suffix.size() > 3 || (suffix[0] != 'e' && suffix[0] != 'E')) {
    return std::nullopt;
  }
  unsigned exponent = 0;
  for (const char c : suffix.substr(1)) {
    if (!is_digit(c)) return std::nullopt;
    exponent = exponent * 10 + static_cast<unsigned>(c - '0');
  }
  if (exponent > 18) return std::nullopt;
  std::uint64_t factor = 1;
  for (; exponent > 0; --exponent) factor *= 10;
  return factor;
}

/// A hint about an unknown suffix: what the user most likely meant.
std::string suffix_hint(std::string_view suffix) {
  if (suffix == "m") return "has suffix m, thousandths of a byte (megabytes are M or Mi)";
  if (suffix == "%") return "is a percentage, but an amount is required";
  const bool byte_word = suffix.size() >= 2 && (suffix.back() == 'B' || suffix.back() == 'b');
  const std::string_view stem = byte_word ? suffix.substr(0, suffix.size() - 1) : suffix;
  if (byte_word && stem != "e" && factor_of(stem)) {
    return fmt::format("has unit {}: write {} without the {}", suffix, stem, suffix.back());
  }
  if (suffix == "g" || suffix == "gi" || suffix == "t" || suffix == "K") {
    return fmt::format("has unit {}, which does not exist in this spelling", suffix);
  }
  return fmt::format("has an unknown unit {}", shown(suffix));
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view field, std::string_view text) {
  if (text.empty()) return refuse(field, text, "is empty", kByteForms);
  if (text.size() > kMaxText) return refuse(field, text, "is too long", kByteForms);
  if (text.front() == '-' || text.front() == '+') {
    return refuse(field, text, "has a sign", kByteForms);
  }
  const Decimal number = read_decimal(text);
  if (number.length == 0) return refuse(field, text, "does not start with a number", kByteForms);
  const std::string_view suffix = text.substr(number.length);
  const std::optional<std::uint64_t> factor = factor_of(suffix);
  if (!factor) return refuse(field, text, suffix_hint(suffix), kByteForms);
  if (number.too_fine) return refuse(field, text, "has more than 18 decimals", kByteForms);
  constexpr std::uint64_t kOne = 1'000'000'000'000'000'000ULL;  // 10^kMaxDecimals
  const auto fraction =
      (static_cast<unsigned __int128>(number.fraction) * *factor + (kOne - 1)) / kOne;
  const auto total = static_cast<unsigned __int128>(number.whole) * *factor + fraction;
  if (number.overflow || total > Bytes::max().count()) {
    return fail(Code::kOutOfRange,
                fmt::format("{}: {} is more than 2^64 - 1 bytes (15.9 EiB)", field, shown(text)));
  }
  if (total == 0) return refuse(field, text, "is zero", "amounts above 0, in bytes, such as 4Gi");
  return Bytes(static_cast<std::uint64_t>(total));
}

namespace {

/// No useful request is smaller than 1 MiB: a user who writes 0.1 or 4 forgot the unit.
bool lacks_unit(std::string_view text, Bytes bytes) {
  constexpr Bytes kSmallest = Bytes::mib(1);
  const auto last = text.find_last_of("0123456789.");
  return bytes < kSmallest && last + 1 == text.size() && text.find_first_of("eE") == std::string_view::npos;
}

}  // namespace

Result<MemoryAsk> parse_memory(std::string_view field, std::string_view text) {
  if (!text.empty() && text.back() == '%') {
    const std::string_view digits = text.substr(0, text.size() - 1);
    auto percent = parse_count(field, digits, 1, 100, "per cent of each card's memory");
    if (!percent) return tl::unexpected<Error>(percent.error());
    return MemoryAsk::of_percent(static_cast<std::uint32_t>(*percent));
  }
  CARVE_TRY(const Bytes bytes, parse_bytes(field, text));
  if (lacks_unit(text, bytes)) {
    return refuse(field, text, "is a number of bytes, less than 1 MiB: write the unit",
                  fmt::format("{}Gi, {}Mi and so on, or 1% to 100%", text, text));
  }
  return MemoryAsk::of(bytes);
}

namespace {

std::string legal_cores() {
  return fmt::format("1 to 100 hundredths of each card, or 200, 300, … {} for whole cards", kMaxCardsPerRequest * 100);
}

/// `text`: the value as the user wrote it, for the errors.
Result<CoresAsk> cores_of(std::string_view field, std::uint64_t hundredths, std::string_view text) {
  if (hundredths == 0) return refuse(field, text, "is zero", legal_cores());
  if (hundredths > 100 && (hundredths % 100 != 0 || hundredths > kMaxCardsPerRequest * 100))
    return refuse(field, text, "is neither a share of one card nor a number of whole cards", legal_cores());
  return CoresAsk{CoreShare(static_cast<std::uint32_t>(std::min<std::uint64_t>(hundredths, 100))),
                  static_cast<std::uint32_t>(hundredths / 100)};
}

}  // namespace

Result<CoresAsk> parse_cores(std::string_view field, std::string_view text) {
  std::string_view digits = text;
  const bool percent = !digits.empty() && digits.back() == '%';
  if (percent) digits.remove_suffix(1);
  std::uint32_t value = 0;
  for (const char c : digits) {
    if (!is_digit(c) || value > 100'000) return refuse(field, text, "is not a legal number", legal_cores());
    value = value * 10 + static_cast<std::uint32_t>(c - '0');
  }
  if (digits.empty()) return refuse(field, text, "is empty", legal_cores());
  if (percent && value > 100) return refuse(field, text, "is more than one card", legal_cores());
  return cores_of(field, value, text);
}

Result<CoresAsk> cores_of(std::string_view field, std::uint64_t hundredths) {
  return cores_of(field, hundredths, std::to_string(hundredths));
}

Result<CoreShare> parse_core_limit(std::string_view field, std::string_view text) {
  CARVE_TRY(const auto hundredths, parse_count(field, text, 1, 100, "hundredths of each card"));
  return CoreShare(static_cast<std::uint32_t>(hundredths));
}

Result<std::uint64_t> parse_count(std::string_view field, std::string_view text, std::uint64_t low,
                                  std::uint64_t high, std::string_view unit) {
  const std::string legal = fmt::format("{} to {} {}", low, high, unit);
  if (text.empty()) return refuse(field, text, "is empty", legal);
  if (text.size() > 20) return refuse(field, text, "is not a legal number", legal);
  const Decimal number = read_decimal(text);
  if (number.length != text.size() || text.find('.') != std::string_view::npos) {
    return refuse(field, text, "is not a whole number", legal);
  }
  if (number.overflow || number.whole < low || number.whole > high) {
    return refuse(field, text, "is out of range", legal);
  }
  return number.whole;
}

Result<std::uint64_t> parse_amount(std::string_view field, std::string_view text, std::uint64_t low,
                                   std::uint64_t high, std::string_view unit) {
  const std::string legal = fmt::format("{} to {} {}", low, high, unit);
  const Decimal number = text.size() > kMaxText ? Decimal() : read_decimal(text);
  const std::string_view suffix = text.substr(std::min(number.length, text.size()));
  if (number.length == 0 || suffix.empty()) return parse_count(field, text, low, high, unit);
  const std::optional<std::uint64_t> factor = factor_of(suffix);
  if (!factor && suffix != "m" && suffix != "u" && suffix != "n") {
    return refuse(field, text, "is not a number of " + std::string(unit), legal);
  }
  constexpr std::uint64_t kOne = 1'000'000'000'000'000'000ULL;  // 10^kMaxDecimals
  const auto fraction = static_cast<unsigned __int128>(number.fraction) * factor.value_or(0);
  if (!factor || number.too_fine || fraction % kOne != 0) {
    return refuse(field, text, "is not a whole number", legal);
  }
  const auto total = static_cast<unsigned __int128>(number.whole) * *factor + fraction / kOne;
  if (number.overflow || total > std::numeric_limits<std::uint64_t>::max()) {
    return refuse(field, text, "is out of range", legal);
  }
  const auto count = static_cast<std::uint64_t>(total);
  if (count < low || count > high) {
    return refuse(field, text, fmt::format("is {} {}, out of range", count, unit), legal);
  }
  return count;
}

}  // namespace carve::codec
