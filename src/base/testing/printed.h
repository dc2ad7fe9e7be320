#pragma once

#include <fmt/format.h>

#include <boost/pfr.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>

#include "base/result.h"

// Any value as one line of text, with all members of every structure: for tests that compare whole values, so that a
// new member is part of the comparison.
namespace carve {

template <class T>
void print_to(std::string* out, const T& value);

namespace printing {

template <class T>
concept Range = requires(const T& value) { value.begin(), value.end(); };
template <class T>
concept Pointer = requires(const T& value) { value.get(), static_cast<bool>(value); };
template <class T>
concept Text = std::is_convertible_v<const T&, std::string_view>;
/// std::optional and Result.
template <class T>
concept Maybe = requires(const T& value) { value.has_value(), *value; };

template <class T>
void print_members(std::string* out, const T& value) {
  *out += '{';
  // Types that are no aggregates say their value by one of these functions (base/units.h, core/model).
  if constexpr (requires { value.bytes(), value.percent(); }) {
    print_to(out, value.bytes()), print_to(out, value.percent());
  } else if constexpr (requires { value.share(), value.tflops(); }) {
    print_to(out, value.share()), print_to(out, value.tflops());
  } else if constexpr (requires { value.str(); }) {
    print_to(out, value.str());
  } else if constexpr (requires { value.hundredths(); }) {
    print_to(out, value.hundredths());
  } else if constexpr (requires { value.count(); }) {
    print_to(out, value.count());
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([out](const auto&... member) { (print_to(out, member), ...); }, value);
  } else {
    boost::pfr::for_each_field(value, [out](const auto& member) { print_to(out, member); });
  }
  *out += '}';
}

}  // namespace printing

/// Appends the value. Two values have the same text only if they are equal, except for texts with quotation marks.
template <class T>
void print_to(std::string* out, const T& value) {
  if constexpr (printing::Text<T>) {
    fmt::format_to(std::back_inserter(*out), "\"{}\" ", std::string_view(value));
  } else if constexpr (std::is_enum_v<T>) {
    fmt::format_to(std::back_inserter(*out), "{} ", static_cast<int>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    fmt::format_to(std::back_inserter(*out), "{} ", value);
  } else if constexpr (printing::Maybe<T>) {
    if (value.has_value()) return print_to(out, *value);
    if constexpr (requires { value.error(); }) return print_to(out, value.error());
    *out += "- ";
  } else if constexpr (printing::Pointer<T>) {
    return value ? print_to(out, *value) : print_to(out, std::optional<bool>());
  } else if constexpr (printing::Range<T>) {
    *out += '[';
    for (const auto& item : value) print_to(out, item);
    *out += ']';
  } else if constexpr (requires { value.valueless_by_exception(); }) {
    print_to(out, value.index());
    std::visit([out](const auto& held) { print_to(out, held); }, value);
  } else {
    static_assert(!std::is_pointer_v<T>, "an address is not the same in each run");
    printing::print_members(out, value);
  }
}

template <class T>
[[nodiscard]] std::string printed(const T& value) {
  std::string out;
  print_to(&out, value);
  return out;
}

}  // namespace carve
