#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace carve::codec {

/// Scans JSON text without building a document: values are pieces of the text. It is strict but incomplete. Text that
/// it accepts is JSON (RFC 8259) that every parser reads in the same way. Text that it rejects may still be JSON
/// (non-ASCII characters, \u escapes of surrogates, numbers that do not fit a double, escapes in member names that are
/// requested); then the complete parser (json_read.h) decides. After a failure all further calls fail.
///   cost    about two instructions per byte, no memory
class JsonWalk {
 public:
  static constexpr std::size_t kMostDigits = 200;  // in a row: still a double with the largest exponent

  explicit JsonWalk(std::string_view text, std::size_t depth = 64) : text_(text), left_(depth) {}

  /// An object begins here. Calls `take(name)` for each member; it consumes the value by one call of this class and
  /// returns whether that succeeded.
  template <class Take>
  bool object(Take take) {
    return list('{', '}', [&] {
      const auto name = plain_text();
      return name && symbol(':') && take(*name);
    });
  }
  /// A list begins here. Calls `take()` for each of its values, as above.
  template <class Take>
  bool array(Take take) {
    return list('[', ']', take);
  }
  /// A string without escapes; returns it without its quotes.
  std::optional<std::string_view> plain_text();
  /// Any value; returns its text.
  std::optional<std::string_view> value();
  /// The first character of the next value: '{', '[', '"' or another one; '\0': there is none.
  char next() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c > ' ' || (c != ' ' && c != '\n' && c != '\t' && c != '\r')) return c;
    }
    return '\0';
  }
  /// True when only white space is left.
  bool over();
  /// The number of consumed bytes.
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
  /// Makes all further calls fail.
  bool fail() {
    failed_ = true;
    text_ = {};
    at_ = 0;
    return false;
  }
  bool symbol(char wanted) {  // must not be white space or '\0'
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
  std::size_t left_;  // how much deeper the text may be nested
  bool failed_ = false;
};

}  // namespace carve::codec
