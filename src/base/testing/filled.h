#pragma once

#include <array>
#include <boost/pfr.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/testing/decisions.h"

// Values with pseudorandom members, for tests of writers on record (decisions.h): a new member of a structure is part
// of them without a change of the test.
namespace carve {

template <class T>
void fill(T* value, Numbers& numbers);

namespace filling {

template <class T>
concept List = requires(T& value) { value.emplace_back(), value.clear(); };
template <class T>
concept Table = requires(T& value) {
  typename T::mapped_type;
  value.clear();
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class T>
inline constexpr std::size_t alternatives = 0;
template <class... Ts>
inline constexpr std::size_t alternatives<std::variant<Ts...>> = sizeof...(Ts);

template <std::size_t kAt = 0, class T>
void fill_alternative(T* value, std::size_t which, Numbers& numbers) {
  if constexpr (kAt < alternatives<T>) {
    if (which == kAt) return fill(&value->template emplace<kAt>(), numbers);
    fill_alternative<kAt + 1>(value, which, numbers);
  }
}

inline std::string text(Numbers& numbers) {
  constexpr std::array kTexts = {"", "a", "b-1", "x/y", "GPU-1", "GPU-2", "n1", "ml", "\"\xc3\xa9\n", "<two> words: c"};
  return kTexts[numbers.below(kTexts.size())];
}

template <class T>
void fill_class(T* value, Numbers& numbers) {
  if constexpr (requires { T::mib(1); }) {
    *value = numbers.one_of(3) ? T(numbers.below(3'000'000'000)) : T::mib(numbers.below(100'000));
  } else if constexpr (requires { value->hundredths(); }) {
    *value = T(static_cast<std::uint32_t>(numbers.below(101)));
  } else if constexpr (requires { value->str(); }) {
    *value = T(text(numbers));
  } else if constexpr (requires { T::of_percent(1); }) {
    *value = numbers.one_of(3) ? T::of_percent(static_cast<std::uint32_t>(1 + numbers.below(100)))
                               : T::of(decltype(value->bytes())::mib(1 + numbers.below(9'000)));
  } else if constexpr (requires { T::of_tflops(1); }) {
    *value = numbers.one_of(4) ? T::of_tflops(static_cast<std::uint32_t>(1 + numbers.below(90)))
                               : T(decltype(value->share())(static_cast<std::uint32_t>(numbers.below(101))));
  } else if constexpr (requires { value->count(), T::zero(); }) {
    *value = T(static_cast<typename T::rep>(numbers.below(10'000)));
  } else if constexpr (requires { value->first, value->second; }) {
    fill(&value->first, numbers), fill(&value->second, numbers);
  } else {
    boost::pfr::for_each_field(*value, [&numbers](auto& member) { fill(&member, numbers); });
  }
}

}  // namespace filling

/// Fills the value: lists and maps have up to three members, every enumeration has one of its first two values.
template <class T>
void fill(T* value, Numbers& numbers) {
  if constexpr (std::is_same_v<T, bool>) {
    *value = numbers.one_of(2);
  } else if constexpr (std::is_enum_v<T>) {
    *value = static_cast<T>(numbers.below(2));
  } else if constexpr (std::is_arithmetic_v<T>) {
    const std::uint64_t large = sizeof(T) == 8 && numbers.one_of(5) ? 1ULL << 33U : 120;
    *value = static_cast<T>(numbers.below(numbers.one_of(3) ? 3 : large));
    if constexpr (std::is_floating_point_v<T>) *value /= 8;
  } else if constexpr (std::is_same_v<T, std::string>) {
    *value = filling::text(numbers);
  } else if constexpr (filling::is_optional<T>) {
    value->reset();
    if (numbers.one_of(2)) fill(&value->emplace(), numbers);
  } else if constexpr (filling::alternatives<T> > 0) {
    filling::fill_alternative(value, numbers.below(filling::alternatives<T>), numbers);
  } else if constexpr (filling::Table<T>) {
    value->clear();
    for (std::uint64_t i = numbers.below(4); i > 0; --i) fill(&(*value)[filling::text(numbers)], numbers);
  } else if constexpr (filling::List<T>) {
    value->clear();
    for (std::uint64_t i = numbers.below(4); i > 0; --i) fill(&value->emplace_back(), numbers);
  } else {
    static_assert(!std::is_pointer_v<T>, "an address is not the same in each run");
    filling::fill_class(value, numbers);
  }
}

template <class T>
[[nodiscard]] T filled(Numbers& numbers) {
  T value{};
  fill(&value, numbers);
  return value;
}

}  // namespace carve
