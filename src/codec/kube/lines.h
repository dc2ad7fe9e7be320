#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// Cuts a stream into lines, wherever its pieces end. Empty lines are skipped.
class Lines {
 public:
  explicit Lines(std::size_t longest) : longest_(longest) {}

  /// Adds a piece of the stream.
  ///   errors  kResourceExhausted: a line longer than `longest` bytes has begun; the stream is lost
  [[nodiscard]] Result<void> add(std::string_view piece);
  /// The next whole line, without its end; none when it has not come yet.
  [[nodiscard]] std::optional<std::string> next();

 private:
  std::size_t longest_;
  std::string held_;
  std::size_t start_ = 0;    // of the line that comes next
  std::size_t begun_ = 0;    // bytes of the line that has not ended
  std::size_t scanned_ = 0;  // no line's end before here
};

}  // namespace carve::codec
