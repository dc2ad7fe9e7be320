#pragma once

#include <cstdint>
#include <string>

namespace carve {

enum class Severity : std::uint8_t { kNote, kWarning, kError };

/// A finding of `carve doctor` about a host, for readers and for programs. A note is not a fault: it says what cannot
/// be used on this host.
struct Finding {
  Severity severity = Severity::kError;
  std::string what;
  std::string cause;  // with the observed values
  std::string fix;
  std::string id;  // for programs; does not change between versions
};

}  // namespace carve
