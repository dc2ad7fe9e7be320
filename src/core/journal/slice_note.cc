#include "core/journal/slice_note.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve {
namespace {

std::size_t escaped_bytes(const std::string& text) {
  const auto plain = std::count_if(text.begin(), text.end(),
                                   [](char c) { return c > ' ' && c <= '~' && c != ';' && c != '%'; });
  return 3 * text.size() - 2 * static_cast<std::size_t>(plain);
}

void check_name(std::string_view field, const std::string& name, std::vector<Error>& errors) {
  if (valid_name(name)) return;
  add_invalid(errors, fmt::format("{}: 1 to 253 letters, digits and . _ : / - are legal", field));
}

void check_part(const PreparedFor& part, std::vector<Error>& errors) {
  if (part.owner.kind != OwnerKind::kPod && part.owner.kind != OwnerKind::kClaim) {
    add_invalid(errors, fmt::format("owner: kind {} is not legal; pod and claim are", to_string(part.owner.kind)));
  }
  check_name("owner: uid", part.owner.uid, errors);
  check_name("part", part.part, errors);
  for (std::size_t i = 0; i < part.pods.size(); ++i) check_name(fmt::format("pods[{}]", i), part.pods[i], errors);
  for (const auto& [key, value] : part.environment) {
    if (key.empty() || key.find_first_of(std::string_view("=\0", 2)) != std::string::npos ||
        value.find('\0') != std::string::npos) {
      add_invalid(errors, "environment: keys of at least 1 byte without = and NUL, and values without NUL, are legal");
      return;
    }
  }
}

}  // namespace

std::vector<Error> validate(const SliceNote& note) {
  std::vector<Error> errors;
  if (note.prepared_for) check_part(*note.prepared_for, errors);
  const bool printable = std::none_of(note.name.begin(), note.name.end(), [](unsigned char c) {
    return c < 0x20 || c == 0x7f;
  });
  if (!printable) add_invalid(errors, "name: control characters are not legal; other bytes are");
  if (const auto bytes = bytes_of(note); bytes > kMaxNoteBytes) {
    add_invalid(errors, fmt::format("texts of {} bytes together are not legal; at most {} are", bytes, kMaxNoteBytes));
  }
  return errors;
}

std::size_t bytes_of(const SliceNote& note) {
  std::size_t bytes = note.name.size();
  if (!note.prepared_for) return bytes;
  const auto& part = *note.prepared_for;
  bytes += part.owner.uid.size() + part.part.size();
  for (const auto& pod : part.pods) bytes += pod.size() + 1;
  for (const auto& [key, value] : part.environment) bytes += escaped_bytes(key) + escaped_bytes(value) + 2;
  return bytes;
}

}  // namespace carve
