#include "codec/kube/lines.h"

#include <fmt/format.h>

namespace carve::codec {

Result<void> Lines::add(std::string_view piece) {
  held_ += piece;
  // Complete lines can be taken; the incomplete one must not grow without limit. Only the new piece is scanned, so a
  // line that arrives in a thousand pieces is not scanned a thousand times.
  const auto last = piece.rfind('\n');
  begun_ = last == std::string_view::npos ? begun_ + piece.size() : piece.size() - last - 1;
  if (begun_ > longest_) return fail(Code::kResourceExhausted, fmt::format("a line of more than {} bytes", longest_));
  return {};
}

std::optional<std::string> Lines::next() {
  while (true) {
    const auto end = held_.find('\n', scanned_ < start_ ? start_ : scanned_);
    if (end == std::string::npos) break;
    auto line = held_.substr(start_, end - start_);
    start_ = scanned_ = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) return line;
  }
  held_.erase(0, start_);
  start_ = 0;
  scanned_ = held_.size();
  if (held_.empty() && held_.capacity() > 65536) held_.shrink_to_fit();
  return std::nullopt;
}

}  // namespace carve::codec
