#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// Splits a stream into lines, regardless of where its pieces end. Empty lines are skipped.
class Lines {
 public:
  explicit Lines(std::size_t longest) : longest_(longest) {}

  /// Adds a piece of the stream.
  ///   errors  kResourceExhausted: a line is longer than `longest` bytes; the stream is lost
  [[nodiscard]] Result<void> add(std::string_view piece);
  /// The next complete line, without its end; nullopt when none is complete.
  [[nodiscard]] std::optional<std::string> next();

 private:
  std::size_t longest_;
  std::string held_;
  std::size_t start_ = 0;    // of the next line
  std::size_t begun_ = 0;    // bytes of the incomplete line
  std::size_t scanned_ = 0;  // no line end before this position
};

}  // namespace carve::codec
