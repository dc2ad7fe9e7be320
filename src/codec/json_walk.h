#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace carve::codec {

/// Steps over JSON text and builds nothing of it: values are the pieces of text that they are. Careful, not complete:
/// what it takes whole is JSON (RFC 8259), and no two readers differ about it; what it does not take may be JSON still
/// (letters beyond ASCII, \u escapes of surrogates, numbers that no double has, names of members with escapes where
/// they are asked for): then the whole reader (json_read.h) decides. Once it has failed it goes on failing.
///   cost    some two instructions per byte, no memory
class JsonWalk {
 public:
  static constexpr std::size_t kMostDigits = 200;  // in a row: with the largest power still a double

  explicit JsonWalk(std::string_view text, std::size_t depth = 64) : text_(text), left_(depth) {}

  /// Here an object begins: `take(name)` for each member, which takes the value by one call of ours and says whether
  /// that went well.
  template <class Take>
  bool object(Take take) {
    return list('{', '}', [&] {
      const auto name = plain_text();
      return name && symbol(':') && take(*name);
    });
  }
  /// Here a list begins: `take()` for each of its values, likewise.
  template <class Take>
  bool array(Take take) {
    return list('[', ']', take);
  }
  /// A string without escapes, without its quotes.
  std::optional<std::string_view> plain_text();
  /// Any value; its text.
  std::optional<std::string_view> value();
  /// What begins here: '{', '[', '"', another value's first letter; '\0': nothing does.
  char next() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c > ' ' || (c != ' ' && c != '\n' && c != '\t' && c != '\r')) return c;
    }
    return '\0';
  }
  /// Only blanks are left.
  bool over();
  /// Bytes that were taken.
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  template <class Take>
  bool list(char open, char close, Take take) {
    if (left_ == 0 || !symbol(open)) return fail();
    --left_;
    if (next() != close) {
      do {
        if (!take()) return fail();
      } while (next() == ',' && symbol(','));
    }
    ++left_;
    return symbol(close);
  }
  /// Nothing is left to be taken any more.
  bool fail() {
    failed_ = true;
    text_ = {};
    at_ = 0;
    return false;
  }
  bool symbol(char wanted) {  // no blank, and not '\0'
    if (next() != wanted) return fail();
    ++at_;
    return true;
  }
  bool string(bool* escapes);
  bool escape();
  bool number();
  bool digits();
  bool word(std::string_view wanted);
  bool skip();

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t left_;  // how much deeper it may go
  bool failed_ = false;
};

}  // namespace carve::codec
