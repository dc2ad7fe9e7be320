#include "codec/keeper/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace carve::codec {
namespace {

constexpr std::size_t kMostSlots = 4096;
constexpr int kLastCode = static_cast<int>(Code::kUnauthenticated);

// A packet is a head ("allocate 17") and, after a line end, its contents: lines, or one text.
struct Parts {
  std::string_view word;
  std::vector<std::uint64_t> numbers;
  std::optional<std::string_view> rest;  // nullopt: there is no second line
};

tl::unexpected<Error> bad(std::string_view why, std::string_view head) {
  return fail(Code::kInvalidArgument, fmt::format("keeper message: {}: \"{}\"", why, head.substr(0, 64)));
}

Result<Parts> split(std::string_view packet) {
  Parts parts;
  const auto end = packet.find('\n');
  std::string_view head = packet.substr(0, end);
  if (end != std::string_view::npos) parts.rest = packet.substr(end + 1);
  const auto blank = head.find(' ');
  parts.word = head.substr(0, blank);
  while (head.size() > parts.word.size() + 1 && parts.numbers.size() < 3) {
    const auto last = head.rfind(' ');
    const std::string_view text = head.substr(last + 1);
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || stop != text.data() + text.size()) return bad("not a number", packet.substr(0, end));
    parts.numbers.insert(parts.numbers.begin(), number);
    head = head.substr(0, last);
  }
  if (head != parts.word) return bad("extra fields", packet.substr(0, end));
  return parts;
}

/// True: the head has `word` and this number of numbers, and a second part exists exactly if `rest`.
bool has(const Parts& parts, std::string_view word, std::size_t numbers, bool rest) {
  return parts.word == word && parts.numbers.size() == numbers && parts.rest.has_value() == rest;
}

bool is_flag(std::uint64_t number) { return number <= 1; }

std::optional<std::vector<std::string>> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos || lines.size() == kMostSlots) return std::nullopt;
    lines.emplace_back(text.substr(0, end));
    text = text.substr(end + 1);
  }
  return lines;
}

std::optional<std::vector<std::string>> names_of(std::string_view text) {
  auto names = lines_of(text);
  if (!names || names->empty() || !std::all_of(names->begin(), names->end(), is_slot_name)) return std::nullopt;
  return names;
}

std::optional<std::vector<KeptSlot>> list_of(std::string_view text) {
  const auto lines = lines_of(text);
  if (!lines) return std::nullopt;
  std::vector<KeptSlot> slots;
  slots.reserve(lines->size());
  for (const auto& line : *lines) {
    if (line.empty() || (line[0] != '+' && line[0] != '-') || !is_slot_name(line.substr(1))) return std::nullopt;
    slots.push_back({line.substr(1), line[0] == '+'});
  }
  return slots;
}

std::string asked(std::string_view word, std::uint64_t number, const std::vector<std::string>& slots) {
  std::string packet = fmt::format("{} {}\n", word, number);
  for (const auto& slot : slots) packet += slot + "\n";
  return packet;
}

struct KeeperText {
  std::string operator()(const AskAllocate& ask) const { return asked("allocate", ask.number, ask.slots); }
  std::string operator()(const AskStart& ask) const { return asked("start", ask.number, ask.slots); }
  std::string operator()(const AskAlive& ask) const { return fmt::format("alive? {}", ask.number); }
  std::string operator()(const TellListening& tell) const { return tell.listening ? "listening 1" : "listening 0"; }
  std::string operator()(const TellClosed&) const { return "closed"; }
};

struct AgentText {
  std::string operator()(const SayServing&) const { return "serving"; }
  std::string operator()(const SayList& list) const {
    std::string packet = fmt::format("list {}\n", list.settled ? 1 : 0);
    for (const auto& slot : list.slots) packet += (slot.healthy ? "+" : "-") + slot.id + "\n";
    return packet;
  }
  std::string operator()(const AnswerAllocated& answer) const {
    return fmt::format("allocated {}\n{}", answer.number, answer.device);
  }
  std::string operator()(const AnswerStart& answer) const { return fmt::format("started {}", answer.number); }
  std::string operator()(const AnswerRefused& answer) const {
    return fmt::format("refused {} {}\n{}", answer.number, static_cast<int>(answer.code), answer.what);
  }
  std::string operator()(const AnswerAlive& answer) const { return fmt::format("alive {}", answer.number); }
  std::string operator()(const SayLeft&) const { return "left"; }
};

}  // namespace

bool is_slot_name(std::string_view name) {
  return !name.empty() && name.size() <= 63 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string encode(const KeeperWord& word) { return std::visit(KeeperText{}, word); }

std::string encode(const AgentWord& word) { return std::visit(AgentText{}, word); }

Result<KeeperWord> decode_keeper_word(std::string_view packet) {
  CARVE_TRY(const Parts parts, split(packet));
  if (has(parts, "allocate", 1, true)) {
    if (auto slots = names_of(*parts.rest)) return AskAllocate{parts.numbers[0], std::move(*slots)};
  }
  if (has(parts, "start", 1, true)) {
    if (auto slots = names_of(*parts.rest)) return AskStart{parts.numbers[0], std::move(*slots)};
  }
  if (has(parts, "alive?", 1, false)) return AskAlive{parts.numbers[0]};
  if (has(parts, "listening", 1, false) && is_flag(parts.numbers[0])) return TellListening{parts.numbers[0] == 1};
  if (has(parts, "closed", 0, false)) return TellClosed{};
  return bad("not a message of the keeper", parts.word);
}

Result<AgentWord> decode_agent_word(std::string_view packet) {
  CARVE_TRY(const Parts parts, split(packet));
  if (has(parts, "serving", 0, false)) return SayServing{};
  if (has(parts, "list", 1, true) && is_flag(parts.numbers[0])) {
    if (auto slots = list_of(*parts.rest)) return SayList{parts.numbers[0] == 1, std::move(*slots)};
  }
  if (has(parts, "allocated", 1, true) && !parts.rest->empty() && parts.rest->find('\n') == std::string_view::npos)
    return AnswerAllocated{parts.numbers[0], std::string(*parts.rest)};
  if (has(parts, "started", 1, false)) return AnswerStart{parts.numbers[0]};
  if (has(parts, "refused", 2, true) && parts.numbers[1] >= 1 && parts.numbers[1] <= kLastCode)
    return AnswerRefused{parts.numbers[0], static_cast<Code>(parts.numbers[1]), std::string(*parts.rest)};
  if (has(parts, "alive", 1, false)) return AnswerAlive{parts.numbers[0]};
  if (has(parts, "left", 0, false)) return SayLeft{};
  return bad("not a message of the agent", parts.word);
}

}  // namespace carve::codec
