#include "codec/journal/journal_text.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "codec/journal/slice_note_text.h"
#include "codec/record.h"

namespace carve::codec {
namespace {

constexpr std::string_view kMagic = "carve-journal ";
constexpr std::size_t kCrcDigits = 8;

struct Encode {
  Result<std::string> operator()(const PutRecord& put) const {
    CARVE_TRY(const std::string text, encode_record(put.record));
    return "put " + text;
  }
  Result<std::string> operator()(const DropOwner& drop) const {
    return fmt::format("drop {} {}", to_string(drop.owner.kind), drop.owner.uid);
  }
  Result<std::string> operator()(const SetCounter& set) const {
    return fmt::format("count {} {}", set.name, set.value);
  }
  Result<std::string> operator()(const PutNote& put) const {
    CARVE_TRY(const std::string text, encode_slice_note(put.note));
    return fmt::format("note {} {}", put.slice, text);
  }
  Result<std::string> operator()(const DropNote& drop) const { return fmt::format("note {}", drop.slice); }
};

/// Reads words that are separated by one space, from the left.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const std::size_t end = rest_.find(' ');
    const std::string_view word = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    more_ = end != std::string_view::npos;
    return word;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }
  /// True when a space followed the word that next() returned last.
  [[nodiscard]] bool more() const { return more_; }

 private:
  std::string_view rest_;
  bool more_ = true;
};

/// A number in the form that this file writes: digits without a leading zero.
std::optional<std::uint64_t> number(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint32_t> hex(std::string_view text) {
  if (text.size() != kCrcDigits) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

tl::unexpected<Error> damaged(std::string what) { return fail(Code::kDataLoss, std::move(what)); }

Result<JournalEvent> decode_event(std::string_view text) {
  Words words(text);
  const std::string_view kind = words.next();
  if (kind == "put") {
    CARVE_TRY(Record record, decode_record(words.rest()));
    return JournalEvent(PutRecord{std::move(record)});
  }
  if (kind == "drop") {
    const auto owner = owner_kind_from(words.next());
    if (!owner) return damaged("drop: unknown kind of owner");
    return JournalEvent(DropOwner{Owner{*owner, std::string(words.rest())}});
  }
  if (kind == "count") {
    const std::string_view name = words.next();
    const auto value = number(words.rest());
    if (!value) return damaged("count: the number is missing");
    return JournalEvent(SetCounter{std::string(name), *value});
  }
  if (kind == "note") {
    std::string slice(words.next());
    if (!words.more()) return JournalEvent(DropNote{std::move(slice)});
    if (words.rest().empty()) return damaged("note: ends with a space");
    CARVE_TRY(SliceNote note, decode_slice_note(words.rest()));
    return JournalEvent(PutNote{std::move(slice), std::move(note)});
  }
  return damaged("unknown event");
}

/// The events of a line with a correct crc; its number must be `expected`.
Result<std::vector<JournalEvent>> decode_body(std::string_view body, std::uint64_t expected) {
  Words words(body);
  const auto found = number(words.next());
  if (!found || *found != expected) {
    return damaged(fmt::format("transaction {} is missing", expected));
  }
  std::vector<JournalEvent> events;
  std::string_view rest = words.rest();
  while (true) {
    const std::size_t end = rest.find('\t');
    CARVE_TRY(JournalEvent event, decode_event(rest.substr(0, end)));
    events.push_back(std::move(event));
    if (end == std::string_view::npos) return events;
    rest = rest.substr(end + 1);
  }
}

/// The part of a line that its crc and length cover; nullopt when either of them is wrong.
std::optional<std::string_view> checked_body(std::string_view line) {
  Words words(line);
  const auto crc = hex(words.next());
  if (!crc || crc32c(words.rest()) != *crc) return std::nullopt;
  const auto length = number(words.next());
  if (!length || *length != words.rest().size()) return std::nullopt;
  return words.rest();
}

/// Reads the first number from the header.
Result<std::uint64_t> read_header(std::string_view line) {
  if (!line.starts_with(kMagic)) {
    return fail(Code::kInvalidArgument, "journal: this file is not a journal of carve");
  }
  Words words(line.substr(kMagic.size()));
  const auto version = number(words.next());
  if (!version) return damaged("journal: line 1, byte 0: the header's version is damaged");
  if (*version != static_cast<std::uint64_t>(kJournalVersion)) {
    return fail(Code::kUnimplemented,
                fmt::format("journal: version {} was written by another build; this one reads {}",
                            *version, kJournalVersion));
  }
  const auto first = number(words.next());
  const auto crc = hex(words.rest());
  const std::size_t covered = line.size() - words.rest().size();  // at least kMagic
  if (!first || !crc || crc32c(line.substr(0, covered - 1)) != *crc) {
    return damaged("journal: line 1, byte 0: the header is damaged");
  }
  return *first;
}

Error at(std::size_t line, std::size_t byte, Error error) {
  const Code code = error.code == Code::kUnimplemented ? error.code : Code::kDataLoss;
  return Error{code, fmt::format("journal: line {}, byte {}: {}", line, byte, error.what)};
}

}  // namespace

std::string journal_header(std::uint64_t first_number) {
  const std::string text = fmt::format("{}{} {}", kMagic, kJournalVersion, first_number);
  return fmt::format("{} {:08x}\n", text, crc32c(text));
}

Result<std::string> journal_line(std::uint64_t number_of_line,
                                 const std::vector<JournalEvent>& events) {
  if (events.empty()) return fail(Code::kInvalidArgument, "journal: a transaction without events");
  std::string body = fmt::format("{} ", number_of_line);
  for (std::size_t i = 0; i < events.size(); ++i) {
    CARVE_TRY(const std::string text, std::visit(Encode{}, events[i]));
    // An event that passes this check is read back unchanged, because it enforces the form of names and texts.
    CARVE_TRY(const JournalEvent again, decode_event(text));
    if (!(again == events[i]) || text.find_first_of("\t\n") != std::string::npos) {
      return fail(Code::kInvalidArgument, "journal: an event has a name or text that is not legal");
    }
    if (i > 0) body += '\t';
    body += text;
  }
  const std::string covered = fmt::format("{} {}", body.size(), body);
  std::string line = fmt::format("{:08x} {}\n", crc32c(covered), covered);
  if (line.size() > kMaxJournalLine) {
    return fail(Code::kOutOfRange, fmt::format("journal: a transaction of {} bytes; at most {} are "
                                               "legal",
                                               line.size(), kMaxJournalLine));
  }
  return line;
}

Result<std::string> journal_snapshot(std::uint64_t first_number, const JournalState& state,
                                     std::uint64_t* next_number) {
  std::string text = journal_header(first_number);
  std::uint64_t next = first_number;
  for (const JournalEvent& event : snapshot_of(state)) {
    CARVE_TRY(const std::string line, journal_line(next, {event}));
    text += line;
    ++next;
  }
  if (next_number != nullptr) *next_number = next;
  return text;
}

Result<Replay> replay_journal(std::string_view text) {
  const std::size_t header_end = text.find('\n');
  if (header_end == std::string_view::npos || header_end >= kMaxJournalLine) {
    // The first line is complete before a file gets its name, so a crash of the agent cannot cause this.
    if (text.starts_with(kMagic) || text.empty()) {
      return damaged("journal: line 1, byte 0: the header is cut off");
    }
    return fail(Code::kInvalidArgument, "journal: this file is not a journal of carve");
  }
  Replay replay;
  CARVE_TRY(replay.next_number, read_header(text.substr(0, header_end)));
  replay.good_bytes = header_end + 1;
  while (replay.good_bytes < text.size()) {
    const std::string_view rest = text.substr(replay.good_bytes);
    const std::size_t end = rest.find('\n');
    const std::size_t line_number = replay.lines + 2;
    if (end == std::string_view::npos) break;
    const std::string_view line = rest.substr(0, end);
    const auto body = line.size() < kMaxJournalLine ? checked_body(line) : std::nullopt;
    if (!body) {
      const bool last = end + 1 == rest.size();
      if (last && line.find('\0') != std::string_view::npos) break;
      return damaged(fmt::format("journal: line {}, byte {}: damaged (checksum mismatch)",
                                 line_number, replay.good_bytes));
    }
    auto events = decode_body(*body, replay.next_number);
    Result<void> applied;
    if (events) applied = apply_all(replay.state, *events);
    if (!events || !applied) {
      return tl::unexpected<Error>(
          at(line_number, replay.good_bytes, events ? applied.error() : events.error()));
    }
    ++replay.lines;
    ++replay.next_number;
    replay.good_bytes += end + 1;
  }
  replay.torn_bytes = text.size() - replay.good_bytes;
  return replay;
}

}  // namespace carve::codec
