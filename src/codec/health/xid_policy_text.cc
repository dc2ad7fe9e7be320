#include "codec/health/xid_policy_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace carve::codec {
namespace {

constexpr std::size_t kMaxText = 256 * 1024;
constexpr std::size_t kMaxMeaning = 100;
constexpr std::size_t kMaxProblems = 20;

std::string shown(std::string_view word) {
  std::string out;
  for (const char c : word.substr(0, 40)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return "\"" + out + "\"";
}

/// Words separated by blanks; a quoted text is one word, including its quotes.
Result<std::vector<std::string_view>> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') return words;
    line.remove_prefix(begin);
    std::size_t end = line.find_first_of(" \t\r");
    if (line.front() == '"') {
      end = line.find('"', 1);
      if (end == std::string_view::npos) return fail(Code::kInvalidArgument, "meaning: the closing quote is missing");
      ++end;
    }
    end = std::min(end, line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

std::optional<std::uint32_t> number_of(std::string_view text, std::uint32_t most) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text) value = value * 10 + static_cast<std::uint32_t>(c - '0');
  if (value < 1 || value > most) return std::nullopt;
  return value;
}

Result<std::vector<std::uint32_t>> codes_of(std::string_view text) {
  std::vector<std::uint32_t> codes;
  const auto wrong = [](std::string_view word) {
    return fail(Code::kInvalidArgument,
                fmt::format("codes: {} is illegal; legal: numbers from 1 to {} and ranges such as 96-105, separated by "
                            "commas, or `other`",
                            shown(word), kMostXid));
  };
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    const auto word = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const auto dash = word.find('-');
    const auto first = number_of(word.substr(0, dash), kMostXid);
    const auto last = dash == std::string_view::npos ? first : number_of(word.substr(dash + 1), kMostXid);
    if (!first || !last || *last < *first) return wrong(word);
    for (std::uint32_t code = *first; code <= *last; ++code) codes.push_back(code);
    if (codes.size() > 4 * kMostXid) return wrong(word);
  }
  return codes;
}

Result<XidAction> action_of(std::string_view word) {
  for (const auto action : {XidAction::kIgnore, XidAction::kApplication, XidAction::kUnhealthy, XidAction::kReset,
                            XidAction::kLost}) {
    if (word == to_string(action)) return action;
  }
  return fail(Code::kInvalidArgument,
              fmt::format("action: {} is unknown; legal: ignore, application, unhealthy, reset and lost", shown(word)));
}

Result<Clock::Duration> duration_of(std::string_view text) {
  struct Unit {
    char word;
    std::uint32_t seconds;
  };
  constexpr std::array kUnits = {Unit{'s', 1}, Unit{'m', 60}, Unit{'h', 3600}};
  constexpr std::uint32_t kDay = 86400;
  for (const auto& unit : kUnits) {
    if (text.empty() || text.back() != unit.word) continue;
    if (const auto count = number_of(text.substr(0, text.size() - 1), kDay / unit.seconds))
      return Clock::Duration(std::chrono::seconds(std::uint64_t{*count} * unit.seconds));
  }
  return fail(Code::kInvalidArgument,
              fmt::format("heal-after: {} is not a duration; legal: 1s to 24h, with s, m or h", shown(text)));
}

Result<std::string> meaning_of(std::string_view quoted) {
  const auto text = quoted.substr(1, quoted.size() - 2);
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (text.empty() || text.size() > kMaxMeaning || !plain)
    return fail(Code::kInvalidArgument,
                fmt::format("meaning: {}; legal: 1 to {} printable ASCII characters", shown(text), kMaxMeaning));
  return std::string(text);
}

Result<void> apply_line(const std::vector<std::string_view>& words, XidPolicy* policy) {
  if (words[0] != "xid" || words.size() < 3)
    return fail(Code::kInvalidArgument,
                fmt::format("{}: not a rule; legal: xid <codes> <action> [heal-after=<duration>] [\"<meaning>\"]",
                            shown(words[0])));
  const bool other = words[1] == "other";
  std::vector<std::uint32_t> codes;
  if (!other) {
    CARVE_TRY(codes, codes_of(words[1]));
  }
  CARVE_TRY(const auto action, action_of(words[2]));
  std::optional<Clock::Duration> heal_after;
  std::optional<std::string> meaning;
  constexpr std::string_view kHealAfter = "heal-after=";
  for (std::size_t i = 3; i < words.size(); ++i) {
    if (words[i].front() == '"') {
      CARVE_TRY(meaning, meaning_of(words[i]));
    } else if (words[i].substr(0, kHealAfter.size()) == kHealAfter) {
      CARVE_TRY(heal_after, duration_of(words[i].substr(kHealAfter.size())));
    } else {
      return fail(Code::kInvalidArgument,
                  fmt::format("{}: unknown word; legal after the action: heal-after=<duration> and \"<meaning>\"",
                              shown(words[i])));
    }
  }
  if (heal_after && action != XidAction::kUnhealthy)
    return fail(Code::kInvalidArgument,
                fmt::format("heal-after: applies only to `unhealthy`, not to `{}`", to_string(action)));
  const auto change = [&](XidRow* row) {
    row->action = action;
    row->heal_after = heal_after.value_or(XidRow().heal_after);
    if (meaning) row->meaning = *meaning;
  };
  if (other) change(&policy->other);
  for (const auto code : codes) change(&policy->rows[code]);
  return {};
}

}  // namespace

Result<XidPolicy> parse_xid_policy(std::string_view name, std::string_view text, const XidPolicy& base) {
  if (text.size() > kMaxText)
    return fail(Code::kInvalidArgument, fmt::format("{}: {} bytes; legal: at most {}", name, text.size(), kMaxText));
  XidPolicy policy = base;
  std::string problems;
  std::size_t wrong = 0;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const auto words = words_of(line);
    Result<void> applied;
    if (!words) {
      applied = tl::unexpected(words.error());
    } else if (!words->empty()) {
      applied = apply_line(*words, &policy);
    }
    if (!applied && ++wrong <= kMaxProblems)
      problems += fmt::format("\n  {}:{}: {}", name, number, applied.error().what);
  }
  if (wrong > kMaxProblems) problems += fmt::format("\n  and {} more", wrong - kMaxProblems);
  if (wrong > 0) return fail(Code::kInvalidArgument, "health policy:" + problems);
  return policy;
}

}  // namespace carve::codec
