#pragma once

#include <simdjson.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace carve::codec {

/// Finds pieces of JSON text without building a document of values. The whole text is checked first. Text that it
/// accepts is JSON (RFC 8259) that the complete parser (json_read.h) reads in the same way. Text that it rejects may
/// still be JSON (numbers that do not fit a double, surrogates, escapes in member names); then the complete parser
/// decides.
/// It uses buffers of the calling thread: a thread has one JsonPieces at a time.
///   cost    two passes of simdjson over a copy of the text; the buffers keep the size of the largest text
class JsonPieces {
 public:
  using Value = simdjson::ondemand::value;

  /// How deep the text may be nested. Every object of Kubernetes fits (managedFields and schemas exceed Boost's 32).
  static constexpr std::size_t kDepth = 128;

  explicit JsonPieces(std::string_view text);

  /// The text is an object. Calls `take(name, value)` for each member, in order; it may consume the value by one call
  /// of this class, and returns whether to go on.
  ///   returns  false: the text is not such an object, or `take` returned false
  template <class Take>
  bool object(Take take) {
    simdjson::ondemand::object all;
    return checked_ && document_.get_object().get(all) == simdjson::SUCCESS && members(all, take);
  }
  /// The same for a value. It stores the value's text in `whole` before the first member.
  template <class Take>
  bool object(Value& value, std::string_view* whole, Take take) {
    simdjson::ondemand::object all;
    std::string_view raw;
    if (value.get_object().get(all) != simdjson::SUCCESS || all.raw_json().get(raw) != simdjson::SUCCESS ||
        all.reset().error() != simdjson::SUCCESS)
      return false;
    *whole = value_at(raw);
    return members(all, take);
  }
  /// The value is a list. Calls `take(value)` for each item, as above.
  template <class Take>
  bool array(Value& value, Take take) {
    simdjson::ondemand::array all;
    if (value.get_array().get(all) != simdjson::SUCCESS) return false;
    for (auto item : all) {
      Value one;
      if (std::move(item).get(one) != simdjson::SUCCESS || !take(one)) return false;
    }
    return true;
  }
  /// The text of any value.
  std::optional<std::string_view> text(Value& value);
  /// The content of a string without escapes.
  std::optional<std::string_view> plain_text(Value& value);

 private:
  template <class Take>
  bool members(simdjson::ondemand::object& all, Take& take) {
    for (auto item : all) {
      simdjson::ondemand::field member;
      if (std::move(item).get(member) != simdjson::SUCCESS) return false;
      const auto name = content(member.key().raw());
      if (!name || !take(*name, member.value())) return false;
    }
    return true;
  }
  /// What is between this position and the end of the string; nullopt: it contains an escape.
  [[nodiscard]] std::optional<std::string_view> content(const char* begin) const;
  /// The piece of a value, of which simdjson returns the text up to the next token.
  [[nodiscard]] std::string_view value_at(std::string_view up_to_next) const;
  /// The same bytes in the caller's text.
  [[nodiscard]] std::string_view piece(std::string_view of_copy) const {
    return text_.substr(static_cast<std::size_t>(of_copy.data() - copy_), of_copy.size());
  }

  std::string_view text_;
  const char* copy_ = nullptr;  // the text in the thread's buffer, which has the padding that simdjson needs
  bool checked_ = false;
  simdjson::ondemand::document document_;
};

}  // namespace carve::codec
