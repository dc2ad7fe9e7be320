#pragma once

#include <cstdint>
#include <string>

namespace carve {

enum class Severity : std::uint8_t { kNote, kWarning, kError };

/// Something that a doctor saw on a host, for a person and for a program. A note is no fault: it
/// tells what cannot be used here.
struct Finding {
  Severity severity = Severity::kError;
  std::string what;
  std::string cause;  // with the values that were seen
  std::string fix;
  std::string id;  // for programs; stays the same over versions
};

}  // namespace carve
