#include "codec/journal/slice_note_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/model/request.h"

namespace carve::codec {
namespace {

constexpr std::string_view kName = " name=";
constexpr std::string_view kHexDigits = "0123456789ABCDEF";

bool escaped(char c) { return c <= ' ' || c > '~' || c == ';' || c == '%'; }

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (escaped(c)) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

/// nullopt: a % without two upper case hex digits.
std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const std::size_t high = kHexDigits.find(text[i + 1]);
    const std::size_t low = kHexDigits.find(text[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    out += static_cast<char>(static_cast<unsigned char>(high * 16 + low));
    i += 2;
  }
  return out;
}

/// The pieces between the separators. An empty text has none.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

std::optional<std::uint32_t> uid_from(std::string_view text) {
  std::uint32_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return uid;
}

/// The owner in `kind/UID`; nullopt: another form, or a kind without prepared slices.
std::optional<Owner> owner_from(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto kind = owner_kind_from(text.substr(0, slash));
  if (!kind || *kind == OwnerKind::kLocal) return std::nullopt;
  return Owner{*kind, std::string(text.substr(slash + 1))};
}

tl::unexpected<Error> illegal(std::string what) { return fail(Code::kInvalidArgument, "note: " + std::move(what)); }

/// The value of the word `key=` in the words before the name; nullopt: there is none. The first word has no space
/// before it, and is not found.
std::optional<std::string_view> value_of(std::string_view words, std::string_view key) {
  const std::string start = fmt::format(" {}=", key);
  const std::size_t at = words.find(start);
  if (at == std::string_view::npos) return std::nullopt;
  words.remove_prefix(at + start.size());
  return words.substr(0, words.find(' '));
}

/// The text of an earlier release.
SliceNote decode_unversioned(std::string_view text) {
  const std::string_view words = text.substr(0, text.find(kName));
  SliceNote note;
  note.keep = words.starts_with("keep=1");
  note.uid = uid_from(value_of(words, "uid").value_or("")).value_or(0);
  note.in_private_folder = value_of(words, "gated") == "1";
  auto owner = owner_from(value_of(words, "owner").value_or(""));
  const std::string part(value_of(words, "part").value_or(""));
  if (owner && valid_name(owner->uid) && valid_name(part)) {
    PreparedFor& prepared = note.prepared_for.emplace();
    prepared.owner = *std::move(owner);
    prepared.part = part;
    prepared.ending = value_of(words, "ending") == "1";
    for (const auto pod : split(value_of(words, "pods").value_or(""), ',')) {
      if (valid_name(pod)) prepared.pods.emplace_back(pod);
    }
    for (const auto variable : split(value_of(words, "env").value_or(""), ';')) {
      const std::size_t equals = variable.find('=');
      if (equals == std::string_view::npos || equals == 0) continue;
      prepared.environment[std::string(variable.substr(0, equals))] = variable.substr(equals + 1);
    }
  }
  // At most the bytes that the limit leaves: version 1 has words that an earlier release did not write.
  const std::size_t used = std::min(bytes_of(note), kMaxNoteBytes);
  if (words.size() < text.size()) note.name = text.substr(words.size() + kName.size(), kMaxNoteBytes - used);
  return note;
}

/// Takes words from the left of a text of version 1.
class NoteWords {
 public:
  explicit NoteWords(std::string_view text) : rest_(text) {}
  bool skip(std::string_view start) {
    if (!rest_.starts_with(start)) return false;
    rest_.remove_prefix(start.size());
    return true;
  }
  /// The text up to the next space.
  std::string_view value() {
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

Result<std::map<std::string, std::string>> read_environment(std::string_view text) {
  std::map<std::string, std::string> environment;
  for (const auto variable : split(text, ';')) {
    const std::size_t equals = variable.find('=');
    if (equals == std::string_view::npos) return illegal("env: a variable without =");
    auto key = unescape(variable.substr(0, equals));
    auto value = unescape(variable.substr(equals + 1));
    if (!key || !value) return illegal("env: after % two upper case hex digits are legal");
    environment[*std::move(key)] = *std::move(value);
  }
  return environment;
}

/// Reads the words from the owner's value on.
Result<PreparedFor> read_prepared(NoteWords* words) {
  PreparedFor prepared;
  auto owner = owner_from(words->value());
  if (!owner) return illegal("owner: pod/<UID> and claim/<UID> are legal");
  prepared.owner = *std::move(owner);
  if (!words->skip(" part=")) return illegal("owner is not followed by part");
  prepared.part = words->value();
  if (words->skip(" pods=")) {
    for (const auto pod : split(words->value(), ',')) prepared.pods.emplace_back(pod);
  }
  if (words->skip(" env=")) {
    CARVE_TRY(prepared.environment, read_environment(words->value()));
  }
  prepared.ending = words->skip(" ending=1");
  return prepared;
}

Result<SliceNote> decode_v1(std::string_view text) {
  SliceNote note;
  NoteWords words(text);
  note.keep = words.skip("keep=1");
  if (!note.keep && !words.skip("keep=0")) return illegal("keep: at the start, 0 and 1 are legal");
  if (!words.skip(" uid=")) return illegal("keep is not followed by uid");
  const auto uid = uid_from(words.value());
  if (!uid) return illegal("uid: 0 to 4294967295 are legal");
  note.uid = *uid;
  if (!words.skip(" v=1")) return illegal("uid is not followed by v");
  note.in_private_folder = words.skip(" gated=1");
  if (words.skip(" owner=")) {
    CARVE_TRY(note.prepared_for, read_prepared(&words));
  }
  if (!words.skip(kName)) {
    return illegal(fmt::format("unknown, repeated, illegal or out of order from '{}' on", words.rest().substr(0, 40)));
  }
  note.name = words.rest();
  return note;
}

}  // namespace

Result<std::string> encode_slice_note(const SliceNote& note) {
  if (auto legal = joined(validate(note)); !legal) return fail_in("note", std::move(legal).error());
  std::string text = fmt::format("keep={} uid={} v={}", note.keep ? 1 : 0, note.uid, kSliceNoteVersion);
  if (note.in_private_folder) text += " gated=1";
  if (note.prepared_for) {
    const auto& prepared = *note.prepared_for;
    text += fmt::format(" owner={}/{} part={}", to_string(prepared.owner.kind), prepared.owner.uid, prepared.part);
    std::string_view before = " pods=";
    for (const auto& pod : prepared.pods) text += fmt::format("{}{}", std::exchange(before, ","), pod);
    before = " env=";
    for (const auto& [key, value] : prepared.environment) {
      text += fmt::format("{}{}={}", std::exchange(before, ";"), escape(key), escape(value));
    }
    if (prepared.ending) text += " ending=1";
  }
  return text + std::string(kName) + note.name;
}

Result<SliceNote> decode_slice_note(std::string_view text) {
  if (text.size() > kMaxNoteText) {
    return illegal(fmt::format("{} bytes are not legal; at most {} are", text.size(), kMaxNoteText));
  }
  const auto version = value_of(text.substr(0, text.find(kName)), "v");
  if (version && *version != std::to_string(kSliceNoteVersion)) {
    return fail(Code::kUnimplemented,
                fmt::format("note: version {} was written by another build; this one reads {} and texts without one",
                            *version, kSliceNoteVersion));
  }
  Result<SliceNote> note = version ? decode_v1(text) : decode_unversioned(text);
  if (!note) return note;
  const auto again = encode_slice_note(*note);
  if (!again) return tl::unexpected<Error>(again.error());
  if (version && *again != text) return illegal("not in canonical form");
  return note;
}

}  // namespace carve::codec
